"""Random clients, crashes and time: whatever happens, a transaction ends in one way, in all of its partitions, and a
producer that was replaced can do nothing any more."""

from __future__ import annotations

from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from klamm.coordinator.machine import Producer
from klamm.coordinator.transactions.machine import Settings, WriteMarkers
from klamm.coordinator.transactions.state import Transaction
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from support.transactions import LAST_EPOCH, NONE, Driver

IDS = ("x", "y")
PARTITIONS = tuple(TopicPartition("t", index) for index in range(3))
TIMEOUT_S = 60


class Name(NamedTuple):
    """Of a transaction: which client began it, and which one of its transactions it is."""

    client: int
    number: int


class Log:
    """A partition, as far as transactions go: who wrote in which one, and how they ended."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.open: dict[int, set[Name]] = {}
        self.ended: dict[Name, bool] = {}

    def write(self, producer: Producer, name: Name) -> None:
        if producer.epoch < self.epochs.get(producer.id, -1):
            return
        self.epochs[producer.id] = producer.epoch
        self.open.setdefault(producer.id, set()).add(name)

    def mark(self, markers: WriteMarkers) -> None:
        """With the rules of KIP-890 for stale markers."""
        producer = markers.producer
        current = self.epochs.get(producer.id, -1)
        stale = producer.epoch < current
        if markers.version >= 2 and producer.epoch == current and producer.epoch <= LAST_EPOCH:
            stale = bool(self.open.get(producer.id))
        if stale:
            return
        self.epochs[producer.id] = producer.epoch
        for name in self.open.pop(producer.id, ()):
            assert self.ended.setdefault(name, markers.committed) == markers.committed, "both committed and aborted"


class Client:
    def __init__(self, number: int, transactional_id: str, protocol: int, producer: Producer) -> None:
        self.number = number
        self.id = transactional_id
        self.protocol = protocol
        self.producer = producer
        self.name = Name(number, 0)
        self.kept: Name | None = None
        self.dead = False

    def next(self, producer: Producer) -> None:
        if self.protocol >= 2:
            self.producer = producer
        self.name = Name(self.number, self.name.number + 1)
        self.kept = None


class Transactions(RuleBasedStateMachine):
    @initialize(version=st.sampled_from((0, 2)), near_the_end=st.booleans())
    def begin(self, version: int, near_the_end: bool) -> None:
        self.driver = Driver(version=version, settings=Settings(two_phase_commit=True))
        self.logs = {partition: Log() for partition in PARTITIONS}
        self.clients: list[Client] = []
        self.owners: dict[str, Client] = {}
        self.decided: dict[Name, bool] = {}
        self.in_doubt: set[Name] = set()
        self.late: list[WriteMarkers] = []
        if near_the_end:
            for number, transactional_id in enumerate(IDS):
                used_up = Producer(number, LAST_EPOCH - 2)
                self.driver.put(Transaction(transactional_id, used_up, 1000, self.driver.now.time_ms))

    # ---- clients

    @rule(id_=st.sampled_from(IDS), protocol=st.sampled_from((0, 2)), keep=st.booleans(), lost=st.booleans())
    def a_client_starts(self, id_: str, protocol: int, keep: bool, lost: bool) -> None:
        before = self.owners.get(id_)
        answer = self.driver.init(id_, timeout_ms=TIMEOUT_S * 1000, keep=keep)
        assert answer.error in (NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
        if answer.error:
            return
        client = Client(len(self.clients), id_, protocol, answer.producer)
        client.dead = lost
        if answer.ongoing.id >= 0:
            assert before is not None
            client.kept = before.kept or before.name
        self.clients.append(client)
        self.owners[id_] = client

    def _living(self, number: int) -> Client | None:
        living = [client for client in self.clients if not client.dead]
        return living[number % len(living)] if living else None

    @rule(number=st.integers(0, 20), partition=st.sampled_from(PARTITIONS))
    def a_client_writes(self, number: int, partition: TopicPartition) -> None:
        client = self._living(number)
        if client is None:
            return
        code = self.driver.add(client.producer, partition, id_=client.id, version=client.protocol)
        if code == NONE:
            assert self.owners[client.id] is client, "a producer that was replaced"
            assert client.kept is None
            assert self.driver.verify(client.producer, partition, id_=client.id) == [NONE]
            self.logs[partition].write(client.producer, client.name)
        elif code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            client.dead = True

    @rule(number=st.integers(0, 20), committed=st.booleans(), lost=st.booleans())
    def a_client_ends_its_transaction(self, number: int, committed: bool, lost: bool) -> None:
        client = self._living(number)
        if client is None:
            return
        name = client.kept or client.name
        answer = self.driver.finish(client.producer, committed, id_=client.id, version=client.protocol)
        if lost:
            self.in_doubt.add(name)  # it may go on to ask for the same again, or for something else
            return
        if answer.error == NONE:
            assert self.owners[client.id] is client, "a producer that was replaced"
            assert self.decided.setdefault(name, committed) == committed
            self.in_doubt.discard(name)
            client.next(answer.producer)
        elif answer.error != ErrorCode.CONCURRENT_TRANSACTIONS:
            client.dead = True
            if name not in self.in_doubt:
                assert self.decided.setdefault(name, False) is False, "what was refused is not committed"

    # ---- the world

    @rule(some=st.sets(st.sampled_from(PARTITIONS)))
    def markers_reach_some_partitions(self, some: set[TopicPartition]) -> None:
        for markers in self.driver.effects:
            assert isinstance(markers, WriteMarkers)
            self._mark(markers, some)

    @rule()
    def markers_are_written(self) -> None:
        for markers in self.driver.effects:
            assert isinstance(markers, WriteMarkers)
            self._mark(markers, set(PARTITIONS))
            self.late.append(markers)
        self.driver.write_markers()

    @rule()
    @precondition(lambda self: self.late)
    def a_late_marker_comes_again(self) -> None:
        self._mark(self.late.pop(), set(PARTITIONS))

    def _mark(self, markers: WriteMarkers, partitions: set[TopicPartition]) -> None:
        for partition in sorted(partitions):
            if partition.partition in markers.partitions.get(partition.topic, ()):
                self.logs[partition].mark(markers)

    @rule()
    def the_coordinator_crashes(self) -> None:
        self.driver.crash()

    @rule(seconds=st.sampled_from((1, TIMEOUT_S)))
    def time_passes(self, seconds: int) -> None:
        self.driver.wait(seconds)

    # ---- what must hold

    @invariant()
    def a_transaction_ends_in_one_way(self) -> None:
        ends: dict[Name, bool] = {}
        for log in self.logs.values():
            for name, committed in log.ended.items():
                assert ends.setdefault(name, committed) == committed, "committed here and aborted there"
                if name in self.decided and name not in self.in_doubt:
                    assert self.decided[name] == committed, "not as the client was told"
                if name not in self.decided and name not in self.in_doubt:
                    assert not committed, "nobody asked for that"

    @invariant()
    def a_fresh_machine_that_reads_the_log_knows_as_much(self) -> None:
        assert self.driver.replayed().transactions == self.driver.machine.transactions

    def teardown(self) -> None:
        """Nothing is left hanging."""
        if not hasattr(self, "driver"):
            return
        self.markers_are_written()
        self.driver.wait(TIMEOUT_S + 1)
        self.markers_are_written()
        for log in self.logs.values():
            assert not log.open, "left open"
        assert not any(txn.prepared for txn in self.driver.machine.transactions.values())
        self.a_transaction_ends_in_one_way()


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
