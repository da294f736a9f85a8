"""Produce in transactions: what the coordinator is asked, when, and what happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from klamm.apis.api import Hangup, Operation, Pending, ResourceType
from klamm.apis.transactional import MAX_WAITING_BYTES, Verifier
from klamm.coordinator.machine import Producer
from klamm.coordinator.transactions.decisions import Init
from klamm.coordinator.transactions.state import State
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.record import ControlType, EndMarker, encode_end_marker
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

VERIFYING = range(3, 12)
ADDING = (12, 13)


class Client:
    """One transactional producer, as far as the coordinator is concerned."""

    def __init__(self, node: Any, tools: Any, name: str = "tx") -> None:
        self.node = node
        self.tools = tools
        self.name = name
        self.producer = Producer(-1, -1)
        self.topic_id = b""

    async def init(self) -> None:
        self.topic_id = await self.node.create(partitions=3)
        await self.again()

    async def again(self) -> None:
        """What a restarted producer does: it fences the one before."""
        coordinator = self.node.broker.transactions
        assert await coordinator.ensure_topic() == ErrorCode.NONE
        await self.node.broker.producer_ids.have()  # so that there are some at hand
        ask = Init(self.name, 60_000)
        answer = await self.tools.finished(
            coordinator.call(self.name, lambda m, r, now: m.init_producer_id(r, now, lambda i: i, ask), lambda e: e)
        )
        self.producer = answer.producer

    def add(self, *indexes: int) -> None:
        partitions = [TopicPartition("t", index) for index in indexes]
        answer = self.node.broker.transactions.call(
            self.name,
            lambda m, r, now: m.add_partitions(r, now, lambda e: [e], self.name, self.producer, partitions),
            lambda e: [e],
        )
        assert answer == [ErrorCode.NONE]

    def transaction(self) -> Any:
        ((_, machine),) = self.node.broker.transactions.shards()
        return machine.transactions[self.name]

    def batch(self, value: bytes, sequence: int = 0, producer: Producer | None = None) -> bytes:
        owner = producer or self.producer
        records: bytes = self.tools.batch(
            value, transactional=True, producer_id=owner.id, producer_epoch=owner.epoch, base_sequence=sequence
        )
        return records

    def request(self, *parts: tuple[int, bytes], acks: int = -1) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=records) for index, records in parts]
        topic = TopicProduceData(name="t", topic_id=self.topic_id, partition_data=data)
        return ProduceRequest(transactional_id=self.name, acks=acks, timeout_ms=30_000, topic_data=[topic])

    async def send(self, *parts: tuple[int, bytes], version: int = 9) -> list[int]:
        return errors(await self.node.call(self.request(*parts), version))

    def marker(self, index: int = 0, *, commit: bool = True, epoch: int | None = None) -> None:
        end = EndMarker(ControlType.COMMIT if commit else ControlType.ABORT, 0)
        batch = encode_end_marker(
            end,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch if epoch is None else epoch,
            timestamp=self.node.env.clock.time_ms(),
        )
        assert not hasattr(self.node.partition(index=index).append_internal(bytearray(batch)), "code")

    def values(self, index: int = 0) -> list[Any]:
        log = self.node.partition(index=index).log
        found = log.read(log.start_offset, 1 << 20, limit=log.end_offset)
        return [] if found is None else self.tools.values_of(found.file.pread(found.size, found.offset))


class SlowCoordinator:
    """Keeps questions until the test answers them."""

    def __init__(self, node: Any) -> None:
        self.asked: list[Pending] = []
        self.refuse: list[Callable[[ErrorCode], Any]] = []
        self.questions = 0
        self.at_once: list[ErrorCode] = []
        node.broker.transactions = self

    def call(self, key: str, decide: Any, refuse: Callable[[ErrorCode], Any]) -> Any:
        self.questions += 1
        if self.at_once:
            return refuse(self.at_once.pop(0))
        self.asked.append(Pending())
        self.refuse.append(refuse)
        return self.asked[-1]

    def answer(self, code: ErrorCode) -> None:
        self.asked.pop(0).set(self.refuse.pop(0)(code))

    def close(self) -> None: ...


def errors(response: Any) -> list[int]:
    return [p.error_code for topic in response.responses for p in topic.partition_responses]


@pytest.fixture
async def client(node: Any, tools: Any) -> Client:
    client = Client(node, tools)
    await client.init()
    return client


@pytest.mark.parametrize("version", VERIFYING)
async def test_a_partition_that_was_not_added_takes_no_batch_of_the_transaction(client: Client, version: int) -> None:
    client.add(1)
    refused = ErrorCode.INVALID_TXN_STATE if version < 11 else ErrorCode.TRANSACTION_ABORTABLE
    batches = [(index, client.batch(b"%d" % index)) for index in (0, 1)]
    assert await client.send(*batches, version=version) == [refused, ErrorCode.NONE]
    assert client.values(0) == [] and client.values(1) == [b"1"]


@pytest.mark.parametrize("version", ADDING)
async def test_a_producer_of_version_2_has_its_partitions_added_by_the_broker(client: Client, version: int) -> None:
    assert client.transaction().state == State.EMPTY
    assert await client.send((0, client.batch(b"a")), (2, client.batch(b"b")), version=version) == [ErrorCode.NONE] * 2
    assert client.transaction().state == State.ONGOING
    assert client.transaction().partitions == {"t": (0, 2)}
    assert client.transaction().version == 2


@pytest.mark.parametrize("version", [9, 12])
async def test_the_coordinator_is_asked_once_for_each_partition(node: Any, client: Client, version: int) -> None:
    client.add(0, 1)
    coordinator = SlowCoordinator(node)
    coordinator.at_once = [ErrorCode.NONE, ErrorCode.NONE]
    for sequence in range(3):
        assert await client.send((0, client.batch(b"x", sequence)), version=version) == [ErrorCode.NONE]
    assert coordinator.questions == 1
    batches = [(0, client.batch(b"x", 3)), (1, client.batch(b"y"))]
    assert await client.send(*batches, version=version) == [ErrorCode.NONE] * 2
    assert coordinator.questions == 2
    assert client.values(0) == [b"x"] * 4


@pytest.mark.parametrize("version", [9, 12])
async def test_after_its_end_a_transaction_has_to_be_confirmed_anew(client: Client, version: int) -> None:
    client.add(0)
    assert await client.send((0, client.batch(b"a")), version=9) == [ErrorCode.NONE]
    client.marker()
    del client.node.partition().log.producers._producers[client.producer.id]  # its sequence is of no interest here
    coordinator = SlowCoordinator(client.node)
    coordinator.at_once = [ErrorCode.TRANSACTION_ABORTABLE]
    refused = ErrorCode.INVALID_TXN_STATE if version < 11 else ErrorCode.TRANSACTION_ABORTABLE
    assert await client.send((0, client.batch(b"b")), version=version) == [refused]
    assert client.values()[0] == b"a" and len(client.values()) == 2  # and the marker


@pytest.mark.parametrize("version", [9, 12])
async def test_whoever_was_fenced_writes_nothing(client: Client, version: int) -> None:
    old = client.producer
    await client.again()
    assert client.producer.id == old.id and client.producer.epoch > old.epoch
    assert await client.send((0, client.batch(b"a", 0, old)), version=version) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    client.add(0)
    assert await client.send((0, client.batch(b"b")), version=version) == [ErrorCode.NONE]
    # now the partition knows as well, and nobody has to be asked
    SlowCoordinator(client.node)
    assert await client.send((0, client.batch(b"c", 1, old)), version=version) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert client.values() == [b"b"]


async def test_a_transactional_id_that_nobody_has_is_not_taken(client: Client) -> None:
    client.name = "another"
    assert await client.send((0, client.batch(b"a")), version=12) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("version", [9, 12])
async def test_a_stranger_with_a_larger_epoch_is_in_nobodys_way(client: Client, version: int) -> None:
    client.add(0)
    stranger = client.producer._replace(epoch=client.producer.epoch + 5)
    refused = [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await client.send((0, client.batch(b"x", 0, stranger)), version=version) == refused
    assert await client.send((0, client.batch(b"a")), version=version) == [ErrorCode.NONE]


async def test_one_request_is_of_one_producer(client: Client) -> None:
    client.add(0, 1)
    other = Producer(client.producer.id + 1, 0)
    refused = [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert await client.send((0, client.batch(b"a")), (1, client.batch(b"b", 0, other))) == refused


async def test_without_verification_batches_of_version_1_are_taken_as_they_come(start: Any, tools: Any) -> None:
    node = await start(transaction_partition_verification_enable="false")
    client = Client(node, tools)
    await client.init()
    SlowCoordinator(node)
    assert await client.send((0, client.batch(b"a"))) == [ErrorCode.NONE]


async def test_who_may_not_use_the_transactional_id_writes_nothing(node: Any, client: Client, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx"))
    client.add(0)
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await client.send((0, client.batch(b"a")), (9, client.batch(b"b"))) == [denied] * 2
    with pytest.raises(Hangup):
        await node.call(client.request((0, client.batch(b"a")), acks=0), 9)


async def test_other_errors_are_those_of_any_produce_request(client: Client) -> None:
    client.add(0)
    plain = client.tools.batch(b"outside of the transaction")
    assert await client.send((0, client.batch(b"a")), (7, client.batch(b"b")), (1, plain), (2, b"")) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_RECORD,
    ]


# ---- while the coordinator takes its time


@pytest.mark.parametrize("version", [9, 12])
async def test_requests_of_a_producer_are_appended_in_their_order(client: Client, version: int) -> None:
    coordinator = SlowCoordinator(client.node)
    calls = [asyncio.ensure_future(client.send((0, client.batch(b"%d" % n, n)), version=version)) for n in range(5)]
    await asyncio.sleep(0)
    assert coordinator.questions == 1  # the others wait for what comes of the first
    coordinator.answer(ErrorCode.NONE)
    assert await asyncio.gather(*calls) == [[ErrorCode.NONE]] * 5
    assert client.values() == [b"0", b"1", b"2", b"3", b"4"]
    assert coordinator.questions == 1


async def test_records_that_wait_are_not_the_connections_any_more(node: Any, client: Client) -> None:
    from klamm import wire

    coordinator = SlowCoordinator(node)
    frame = memoryview(bytearray(wire.encode(client.request((0, client.batch(b"mine"))), 9)))
    answer = node.api(client.request()).handle(node.context(9), wire.decode(ProduceRequest, frame, 9))
    frame[:] = bytes(len(frame))
    waiting = asyncio.ensure_future(client.tools.finished(answer))
    await asyncio.sleep(0)
    coordinator.answer(ErrorCode.NONE)
    assert errors(await waiting) == [ErrorCode.NONE]
    assert client.values() == [b"mine"]


async def test_a_producer_that_is_refused_does_not_hold_up_what_it_sent_next(client: Client) -> None:
    coordinator = SlowCoordinator(client.node)
    calls = [asyncio.ensure_future(client.send((n, client.batch(b"x")))) for n in range(2)]
    await asyncio.sleep(0)
    coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert await calls[0] == [ErrorCode.INVALID_TXN_STATE]
    await asyncio.sleep(0)
    coordinator.answer(ErrorCode.NONE)
    assert await calls[1] == [ErrorCode.NONE]


async def test_a_first_batch_that_failed_has_to_come_before_those_behind_it(client: Client) -> None:
    coordinator = SlowCoordinator(client.node)
    coordinator.at_once = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE]
    assert await client.send((0, client.batch(b"0", 7))) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await client.send((0, client.batch(b"1", 8))) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await client.send((0, client.batch(b"0", 7))) == [ErrorCode.NONE]
    assert await client.send((0, client.batch(b"1", 8))) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR],
)
async def test_a_coordinator_that_is_not_there_is_told_in_a_way_that_any_client_retries(
    client: Client, code: ErrorCode
) -> None:
    SlowCoordinator(client.node).at_once = [code]
    assert await client.send((0, client.batch(b"a"))) == [ErrorCode.NOT_ENOUGH_REPLICAS]


async def test_a_producer_of_version_2_is_let_wait_for_the_end_of_its_last_transaction(client: Client) -> None:
    coordinator = SlowCoordinator(client.node)
    coordinator.at_once = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    assert await client.send((0, client.batch(b"a")), version=12) == [ErrorCode.NONE]
    assert coordinator.questions == 3


async def test_but_not_for_ever(start: Any, tools: Any) -> None:
    node = await start(add_partitions_to_txn_retry_backoff_max_ms="0")
    client = Client(node, tools)
    await client.init()
    coordinator = SlowCoordinator(client.node)
    coordinator.at_once = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    assert await client.send((0, client.batch(b"a")), version=12) == [ErrorCode.CONCURRENT_TRANSACTIONS]


async def test_a_producer_of_version_1_has_to_come_again_if_its_last_transaction_is_still_ending(
    client: Client,
) -> None:
    SlowCoordinator(client.node).at_once = [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert await client.send((0, client.batch(b"a")), version=11) == [ErrorCode.NOT_ENOUGH_REPLICAS]


async def test_an_answer_is_brought_to_its_end_although_nobody_waits_any_more(client: Client) -> None:
    coordinator = SlowCoordinator(client.node)
    ended = asyncio.Event()

    async def later() -> ProduceResponse:
        ended.set()
        return ProduceResponse()

    request = client.request((0, client.batch(b"a")))
    answer = Verifier(client.node.broker).produce(client.node.context(9), request, lambda *_: later())
    waiting = asyncio.ensure_future(answer)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    coordinator.answer(ErrorCode.NONE)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(ended.wait(), 10)


async def test_what_waits_is_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klamm.apis.transactional.MAX_WAITING_BYTES", 1)
    assert MAX_WAITING_BYTES > 1
    coordinator = SlowCoordinator(client.node)
    first = asyncio.ensure_future(client.send((0, client.batch(b"a"))))
    await asyncio.sleep(0)
    assert await client.send((0, client.batch(b"b", 1))) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    coordinator.answer(ErrorCode.NONE)
    assert await first == [ErrorCode.NONE]


async def test_an_error_where_no_answer_is_wanted_closes_the_connection(node: Any, client: Client) -> None:
    coordinator = SlowCoordinator(node)
    call = asyncio.ensure_future(node.call(client.request((0, client.batch(b"a")), acks=0), 9))
    await asyncio.sleep(0)
    coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(Hangup):
        await call


async def test_a_log_that_is_offline_says_so_and_nobody_has_to_abort_for_it(client: Client) -> None:
    client.add(0, 1)
    log = client.node.partition().log
    log.failure = "the disk is full"
    assert await client.send((0, client.batch(b"a", 3)), (1, client.batch(b"b"))) == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
    ]
    log.failure = None
    assert await client.send((0, client.batch(b"behind it", 4))) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await client.send((0, client.batch(b"a", 3))) == [ErrorCode.NONE]


# ---- the marker comes in between


async def test_a_marker_voids_what_was_confirmed_before(client: Client) -> None:
    partition = client.node.partition()
    from klamm.records.batch import read_header

    records = client.batch(b"late")
    verification = partition.verification(read_header(records), adds=False)
    client.marker(commit=False)
    partition.confirm(verification)
    refused = partition.append(bytearray(records), -1, in_transaction=True)
    assert refused.code == ErrorCode.INVALID_TXN_STATE


async def test_the_marker_of_the_last_transaction_does_not_stop_the_next_one_of_version_2(client: Client) -> None:
    """The marker carries the epoch of the next transaction, whose first batch may be waiting already."""
    partition = client.node.partition()
    from klamm.records.batch import read_header

    following = client.producer._replace(epoch=client.producer.epoch + 1)
    records = client.batch(b"next", 0, following)
    verification = partition.verification(read_header(records), adds=True)
    client.marker(epoch=following.epoch)
    partition.confirm(verification)
    assert not hasattr(partition.append(bytearray(records), -1, in_transaction=True), "code")


async def test_a_transaction_that_ended_while_a_batch_was_compressed_anew_does_not_get_it(
    start: Any, tools: Any
) -> None:
    """Nobody would ever end the transaction that it would open."""
    node = await start(compression_type="gzip")
    client = Client(node, tools)
    await client.init()
    client.add(0)
    large = client.batch(b"x" * 100_000)  # more than is compressed on the loop
    sending = asyncio.ensure_future(client.send((0, large)))
    await asyncio.sleep(0)
    client.marker(commit=False)
    assert await sending == [ErrorCode.INVALID_TXN_STATE]
    log = node.partition().log
    assert log.last_stable_offset(log.end_offset) == log.end_offset == 1
