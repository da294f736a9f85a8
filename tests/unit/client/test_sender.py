from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from client_broker import FakeBroker
from client_log import FakeLogs

from klamm.client import BrokerSaid, ClientError, Closed, Cluster, TimedOut
from klamm.client.batches import Batch, BatchResult
from klamm.client.partitioner import partition_for_key
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k00_produce import ProduceRequest
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest

Fake = Callable[[], Awaitable[FakeBroker]]
Connect = Callable[..., Awaitable[Cluster]]

SMALL = {"batch.size": 200, "linger.ms": 0}
PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    "lost before",
    "lost after",
)


async def test_a_record_is_written_and_says_where(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake(), partitions=4)
    cluster = await connect(logs.brokers[0])
    async with cluster.sender() as sender:
        deliveries = [
            await sender.put("t", b"value", key=b"key", headers=(("h", None),), timestamp_ms=12),
            await sender.put("t", None, partition=3),
        ]
        results = [await delivery.result() for delivery in deliveries]
    home = partition_for_key(b"key", 4)
    assert results[0] == ("t", home, 0, 12)
    assert results[1][:3] == ("t", 3, 1 if home == 3 else 0)
    record = logs.logs[home].records[0]
    assert (record.key, record.value, record.headers, record.timestamp) == (b"key", b"value", (("h", None),), 12)


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_fails_for_a_while_nothing_is_lost_doubled_or_reordered(
    fake: Fake, connect: Connect, seed: int
) -> None:
    rng = Random(seed)
    logs = FakeLogs(await fake(), await fake(), partitions=2)
    trouble = rng.choice((0.05, 0.3, 0.6))

    def fault(partition: int) -> ErrorCode | str | None:
        if rng.random() < 0.1:
            logs.lead(partition, rng.choice(logs.brokers))
        return rng.choice(PASSING) if rng.random() < trouble else None

    logs.fault = fault
    cluster = await connect(*logs.brokers, **SMALL, **{"compression.type": rng.choice(("none", "lz4"))})
    outcomes: list[BatchResult | ClientError] = []
    sent: list[list[bytes]] = [[], []]
    async with cluster.sender(on_batch=lambda batch, result: outcomes.append(result)) as sender:
        for number in range(300):
            partition = rng.randrange(2)
            sent[partition].append(str(number).encode())
            await sender.put("t", sent[partition][-1], partition=partition)
            if rng.random() < 0.05:
                await sender.flush()
    assert [logs.values(0), logs.values(1)] == sent
    assert [outcome for outcome in outcomes if not isinstance(outcome, BatchResult)] == []
    told = sorted(outcomes)
    for partition in (0, 1):
        mine = [outcome for outcome in told if outcome.partition == partition]
        assert [outcome.base_offset for outcome in mine] == [
            sum(earlier.size for earlier in mine[:index]) for index in range(len(mine))
        ]


async def test_a_batch_that_is_too_large_for_the_broker_is_cut_in_two(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake())
    logs.max_batch_bytes = 150
    cluster = await connect(logs.brokers[0], **{"batch.size": 1000})
    async with cluster.sender() as sender:
        deliveries = [await sender.put("t", b"%d" % number * 5) for number in range(30)]
        too_large = await sender.put("t", b"x" * 200)
        behind = await sender.put("t", b"behind")
        assert [(await delivery.result()).offset for delivery in deliveries] == list(range(30))
        assert all(delivery.done for delivery in deliveries)
        with pytest.raises(BrokerSaid) as caught:
            await too_large.result()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert (await behind.result()).offset == 30
    assert logs.values() == [b"%d" % number * 5 for number in range(30)] + [b"behind"]


async def test_after_a_batch_was_given_up_the_partition_goes_on_with_a_new_id(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake())
    codes = iter([ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    logs.fault = lambda partition: next(codes, None)
    cluster = await connect(logs.brokers[0], **SMALL)
    async with cluster.sender() as sender:
        deliveries = [await sender.put("t", b"%d" % number * 70) for number in range(5)]
        with pytest.raises(BrokerSaid, match="TOPIC_AUTHORIZATION_FAILED"):
            await deliveries[0].result()
        await sender.flush()
    assert logs.values() == [b"%d" % number * 70 for number in range(1, 5)]
    assert len(logs.brokers[0].requests(InitProducerIdRequest)) == 2


async def test_a_broker_that_has_forgotten_the_producer_gets_the_rest_under_a_new_id(
    fake: Fake, connect: Connect
) -> None:
    logs = FakeLogs(await fake())
    cluster = await connect(logs.brokers[0], **SMALL)
    async with cluster.sender() as sender:
        await (await sender.put("t", b"1")).result()
        codes = iter([ErrorCode.UNKNOWN_PRODUCER_ID])
        logs.fault = lambda partition: next(codes, None)
        assert (await (await sender.put("t", b"2")).result()).offset == 1
    assert logs.producer_ids == 2


async def test_what_cannot_be_written_in_time_is_given_up_with_all_that_is_unsure(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake())
    logs.fault = lambda partition: ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster = await connect(logs.brokers[0], **SMALL, **{"delivery.timeout.ms": 1000})
    async with cluster.sender() as sender:
        first = await sender.put("t", b"1")
        with pytest.raises(TimedOut, match="1 records were not written"):
            await first.result()
        logs.fault = lambda partition: None
        assert (await (await sender.put("t", b"2")).result()).offset == 0


@pytest.mark.parametrize("how", ["lost after", "moved after"])
async def test_a_batch_that_may_be_written_is_not_cut_in_two(fake: Fake, connect: Connect, how: str) -> None:
    """The log knows its sequences as those of one batch: the halves would be strangers, and written again."""
    logs = FakeLogs(await fake())

    def fault(partition: int) -> str:
        logs.max_batch_bytes = 130  # somebody lowers max.message.bytes in between
        logs.fault = lambda partition: None
        return how

    logs.fault = fault
    cluster = await connect(logs.brokers[0], **{"batch.size": 1000})
    async with cluster.sender() as sender:
        deliveries = [await sender.put("t", b"%d" % number * 5) for number in range(10)]
        await sender.flush()
        with pytest.raises(BrokerSaid, match="MESSAGE_TOO_LARGE"):
            await deliveries[0].result()
    assert logs.values() == [b"%d" % number * 5 for number in range(10)]


async def test_what_a_leader_has_written_before_it_moved_is_not_written_under_another_id(
    fake: Fake, connect: Connect
) -> None:
    """Two batches are in the log of the leader that says it is none any more; the first is then given up."""
    logs = FakeLogs(await fake())
    cluster = await connect(logs.brokers[0], **SMALL, **{"delivery.timeout.ms": 1500, "retry.backoff.ms": 50})
    async with cluster.sender() as sender:
        await (await sender.put("t", b"known")).result()
        logs.fault = lambda partition: "moved after"
        deliveries = [await sender.put("t", b"%d" % number * 150) for number in range(2)]
        deliveries[1].batch.created += 60  # it has more time than the first
        while len(logs.values()) < 3:
            await asyncio.sleep(0.01)
        logs.fault = lambda partition: ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(TimedOut, match="were not written"):
            await deliveries[0].result()
        logs.fault = lambda partition: None
        with pytest.raises(TimedOut, match="nobody knows"):
            await deliveries[1].result()
        await (await sender.put("t", b"last")).result()
    assert logs.values() == [b"known", b"0" * 150, b"1" * 150, b"last"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"value": "text"}, "cannot be written"),
        ({"value": b"", "headers": (("\ud800", b""),)}, "cannot be written"),
        ({"value": b"", "timestamp_ms": 2**63}, "cannot be: they go from 0"),
        ({"value": b"", "timestamp_ms": -1}, "cannot be: they go from 0"),
    ],
)
async def test_what_is_no_record_fails_and_the_sender_goes_on(
    fake: Fake, connect: Connect, wrong: dict[str, Any], says: str
) -> None:
    logs = FakeLogs(await fake())
    cluster = await connect(logs.brokers[0], **SMALL)
    async with cluster.sender() as sender:
        with pytest.raises(ClientError, match=says):
            await (await sender.put("t", **wrong)).result()
        await (await sender.put("t", b"fine")).result()
    assert logs.values() == [b"fine"]


async def test_memory_is_bounded_and_a_put_waits_for_room(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake())
    gate = asyncio.Event()
    answer = logs.brokers[0].answers[ProduceRequest]

    async def later(request: ProduceRequest, version: int) -> object:
        await gate.wait()
        return answer(request, version)

    logs.brokers[0].on(ProduceRequest, later)
    cluster = await connect(logs.brokers[0], **SMALL, **{"buffer.memory": 1000})
    async with cluster.sender() as sender:
        put = asyncio.ensure_future(_put_all(sender, 100))
        while not logs.brokers[0].requests(ProduceRequest):
            await asyncio.sleep(0)
        assert not put.done()
        assert sender.records.memory.used <= 1000 + 60
        gate.set()
        await put
    assert len(logs.values()) == 100


async def _put_all(sender: object, count: int) -> None:
    for _ in range(count):
        await sender.put("t", b"x" * 50)  # type: ignore[attr-defined]


async def test_no_room_in_time_is_an_error(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake())
    logs.brokers[0].on(ProduceRequest, lambda request, version: None)
    cluster = await connect(logs.brokers[0], **SMALL, **{"buffer.memory": 1000, "max.block.ms": 20})
    sender = cluster.sender()
    with pytest.raises(TimedOut, match=r"buffer\.memory"):
        await _put_all(sender, 100)
    await sender.close(abort=True)
    with pytest.raises(Closed):
        await sender.put("t", b"late")


@pytest.mark.parametrize(("acks", "offset"), [("0", -1), ("1", 0), ("all", 0)])
async def test_every_acks_setting_writes(fake: Fake, connect: Connect, acks: str, offset: int) -> None:
    logs = FakeLogs(await fake())
    cluster = await connect(logs.brokers[0], acks=acks)
    async with cluster.sender() as sender:
        assert (await (await sender.put("t", b"v")).result()).offset == offset
    while not logs.values():
        await asyncio.sleep(0)
    assert logs.producer_ids == (1 if acks == "all" else 0)


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
async def test_every_version_of_produce_works(fake: Fake, connect: Connect, version: int) -> None:
    logs = FakeLogs(await fake())
    logs.brokers[0].versions[ProduceRequest] = (3, version)
    cluster = await connect(logs.brokers[0])
    async with cluster.sender() as sender:
        assert (await (await sender.put("t", b"v")).result()).offset == 0


async def test_a_topic_or_partition_that_is_not_there_is_an_error_at_once(
    fake: Fake, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.client.sender.CREATION_WAIT_MS", 10)
    logs = FakeLogs(await fake(), partitions=2)
    cluster = await connect(logs.brokers[0])
    async with cluster.sender() as sender:
        with pytest.raises(BrokerSaid, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await sender.put("other", b"v")
        with pytest.raises(BrokerSaid, match="partitions 0 to 1"):
            await sender.put("t", b"v", partition=2)
        with pytest.raises(BrokerSaid, match=r"max\.request\.size"):
            await sender.put("t", b"v" * (2 << 20))


async def test_records_without_a_key_fill_one_partition_after_the_other(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake(), partitions=3)
    cluster = await connect(logs.brokers[0], **{"batch.size": 1000, "linger.ms": 1000})
    async with cluster.sender() as sender:
        for _ in range(300):
            await sender.put("t", b"x" * 20)
    assert all(logs.values(partition) for partition in range(3))
    assert all(len(batch) > 700 for log in logs.logs for batch in log.batches[:-1])


async def test_an_aborted_sender_fails_what_it_still_had(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake())
    cluster = await connect(logs.brokers[0], **{"linger.ms": 100_000})
    with pytest.raises(ZeroDivisionError):
        async with cluster.sender() as sender:
            delivery = await sender.put("t", b"v")
            raise ZeroDivisionError
    with pytest.raises(Closed):
        await delivery.result()
    assert isinstance(delivery.batch, Batch)
    assert logs.values() == []
