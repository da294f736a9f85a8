"""A transaction machine and the little that it needs around it: a log that is bytes, a clock, producer ids."""

from __future__ import annotations

from typing import Any

from klamm.coordinator.machine import Now, Outcome, Producer
from klamm.coordinator.records import TRANSACTIONS, encode
from klamm.coordinator.transactions.decisions import Init
from klamm.coordinator.transactions.machine import Ended, Initialized, Settings, TxnMachine, WriteMarkers
from klamm.coordinator.transactions.state import State, Transaction, to_record
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.metadata.features import TRANSACTION_VERSION
from klamm.metadata.image import Image
from klamm.metadata.replay import Delta

NONE = ErrorCode.NONE
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
START_MS = 1_000_000
LAST_EPOCH = 32766


class Asking:
    """A Reply."""

    done = False


class Driver:
    """What a shard does, without a log: the bytes of the records are kept, and the effects wait to be carried out."""

    def __init__(self, *, version: int = 2, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.version = version
        self.now = Now(0.0, START_MS)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.effects: list[WriteMarkers] = []
        self.next_id: int | None = 100
        self.machine = self._new()
        self._apply(self.machine.loaded(self.now))

    def _new(self) -> TxnMachine:
        machine = TxnMachine(self.settings, self._take_id)
        machine.image_changed(Image(features={TRANSACTION_VERSION: self.version}), Delta(), self.now)
        return machine

    def _take_id(self) -> int | None:
        taken = self.next_id
        if taken is not None:
            self.next_id = taken + 1
        return taken

    def _apply(self, outcome: Outcome) -> Any:
        for record in outcome.records:
            stored = encode(record)
            self.log.append(stored)
            read = TRANSACTIONS.decode(*stored)
            assert read is not None
            self.machine.replay(record)
        for effect in outcome.effects:
            assert isinstance(effect, WriteMarkers)
            self.effects.append(effect)
        return outcome.answers[0].value if outcome.answers else None

    def crash(self) -> None:
        """The machine is lost, and what was to be done: the next one starts from the log, and must be its equal."""
        before = dict(self.machine.transactions)
        self.effects.clear()
        self.machine = self._new()
        for key, value in self.log:
            record = TRANSACTIONS.decode(key, value)
            assert record is not None
            self.machine.replay(record)
        assert self.machine.transactions == before
        self._apply(self.machine.loaded(self.now))

    def pass_time(self, seconds: float) -> None:
        """The machine is ticked whenever it wants to be."""
        end = self.now.monotonic + seconds
        while (due := self.machine.next_due) is not None and due <= end:
            self._at(max(due, self.now.monotonic))
            self._apply(self.machine.tick(self.now))
        self._at(end)

    def _at(self, monotonic: float) -> None:
        self.now = Now(monotonic, START_MS + round(monotonic * 1000))

    def write_markers(self) -> list[WriteMarkers]:
        """Carry out all effects."""
        done, self.effects = self.effects, []
        for markers in done:
            self._apply(self.machine.completed(markers, self.now))
        return done

    # ---- requests

    def init(
        self,
        transactional_id: str = "x",
        *,
        timeout_ms: int = 60_000,
        expected: Producer | None = None,
        keep: bool = False,
        two_phase: bool = False,
    ) -> Initialized:
        ask = Init(transactional_id, timeout_ms, expected, keep)
        outcome = self.machine.init_producer_id(Asking(), self.now, lambda it: it, ask, two_phase_commit=two_phase)
        answer = self._apply(outcome)
        assert isinstance(answer, Initialized)
        return answer

    def add(self, producer: Producer, *partitions: TopicPartition, id_: str = "x", version: int = 2) -> ErrorCode:
        outcome = self.machine.add_partitions(
            Asking(), self.now, lambda it: it, id_, producer, partitions or (T0,), version=version
        )
        answer = self._apply(outcome)
        assert isinstance(answer, ErrorCode)
        return answer

    def verify(self, producer: Producer, *partitions: TopicPartition, id_: str = "x") -> list[ErrorCode]:
        outcome = self.machine.verify_partitions(Asking(), self.now, lambda it: it, id_, producer, partitions)
        assert not outcome.records
        answer = self._apply(outcome)
        return [answer[one] for one in partitions]

    def end(self, producer: Producer, committed: bool = True, *, id_: str = "x", version: int = 2) -> Ended:
        outcome = self.machine.end(
            Asking(), self.now, lambda it: it, id_, producer, committed=committed, version=version
        )
        answer = self._apply(outcome)
        assert isinstance(answer, Ended)
        return answer

    def begin(self, *partitions: TopicPartition, version: int = 2, **options: Any) -> Producer:
        """A producer with an open transaction."""
        initialized = self.init(**options)
        assert initialized.error == NONE
        assert self.add(initialized.producer, *partitions, version=version) == NONE
        return initialized.producer

    def txn(self, transactional_id: str = "x") -> Transaction:
        return self.machine.transactions[transactional_id]

    @property
    def state(self) -> State:
        return self.txn().state

    def put(self, txn: Transaction) -> None:
        """As if it had been written before."""
        self._apply(Outcome([to_record(txn)]))
