"""The producer on fake brokers: what callers see of it. How batches are kept in order is in test_sender."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from client_broker import FakeBroker
from client_log import FakeLogs

from klamm.aio import Producer
from klamm.client import BrokerSaid, ClientError, Closed, ConfigError, NotReachable
from klamm.client.batches import BatchResult
from klamm.client.partitioner import partition_for_key
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k00_produce import ProduceRequest

Fake = Callable[[], Awaitable[FakeBroker]]
QUICK = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "retry_backoff_max_ms": 20}


@asynccontextmanager
async def producing(logs: FakeLogs, **options: Any) -> AsyncIterator[Producer]:
    async with Producer(bootstrap_servers=f"127.0.0.1:{logs.brokers[0].port}", **{**QUICK, **options}) as producer:
        yield producer


def all_values(logs: FakeLogs) -> list[bytes | None]:
    return [record.value for log in logs.logs for record in log.records]


async def test_a_record_is_sent_with_all_that_belongs_to_it(fake: Fake) -> None:
    logs = FakeLogs(await fake(), partitions=4)
    async with producing(logs) as producer:
        home = partition_for_key(b"key", 4)
        sent = await producer.send("t", b"value", key=b"key", headers={"h": b"x", "n": None}, timestamp_ms=12)
        assert sent == ("t", home, 0, 12)
        assert (await producer.send("t", partition=home)).offset == 1
    first, second = logs.logs[home].records
    assert (first.key, first.value, first.timestamp) == (b"key", b"value", 12)
    assert first.headers == (("h", b"x"), ("n", None))
    assert (second.key, second.value) == (None, None)


async def test_what_is_sent_soon_can_be_awaited_or_left_alone(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    async with producing(logs, linger_ms=100_000) as producer:
        deliveries = [await producer.send_soon("t", b"%d" % number) for number in range(10)]
        assert not deliveries[3].done
        await producer.flush()
        assert deliveries[3].done
        assert [(await delivery).offset for delivery in deliveries] == list(range(10))
        await producer.send_soon("t", b"left alone")
    assert logs.values()[-1] == b"left alone"


async def test_who_stops_waiting_takes_nothing_from_the_others(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    async with producing(logs, linger_ms=30) as producer:
        await producer.send("t", b"first")  # so that the topic is known
        waiting = [asyncio.ensure_future(producer.send("t", b"%d" % number)) for number in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        assert (await waiting[0]).offset == 1
        assert (await waiting[2]).offset == 3
    assert logs.values() == [b"first", b"0", b"1", b"2"]


@pytest.mark.parametrize("keyed", [False, True])
async def test_bulk_arrives_whole_and_its_pieces_say_where(fake: Fake, keyed: bool) -> None:
    logs = FakeLogs(await fake(), partitions=3)
    values = [b"%d" % number for number in range(10_000)]
    keys = [b"key-%d" % (number % 50) for number in range(10_000)] if keyed else None
    told: list[BatchResult] = []
    async with producing(logs, batch_size=2000) as producer:
        await producer.send_many("t", values, keys=keys, timestamps_ms=77, on_batch=told.append)
        await producer.flush()
        assert sum(result.size for result in told) == 10_000
        assert producer._ready().records.memory.used == 0
    assert sorted(all_values(logs)) == sorted(values)  # type: ignore[type-var]
    assert {record.timestamp for log in logs.logs for record in log.records} == {77}
    for partition, log in enumerate(logs.logs):
        mine = [result for result in told if result.partition == partition]
        assert [result.base_offset for result in mine] == [
            sum(earlier.size for earlier in mine[:index]) for index in range(len(mine))
        ]
        if keyed:
            homes = {partition_for_key(record.key or b"", 3) for record in log.records}
            assert homes == {partition}
            numbers = [int(record.value or b"") for record in log.records]
            assert numbers == sorted(numbers)


async def test_bulk_takes_partitions_times_headers_and_any_sequence(fake: Fake) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    async with producing(logs) as producer:
        await producer.send_many(
            "t",
            range_of_bytes(4),
            keys=(None, b"k", None, b"k"),
            partition=1,
            headers=[(("n", b"%d" % n),) for n in range(4)],
            timestamps_ms=[5, 6, 7, 8],
        )
        await producer.send_many("t", [])
    assert logs.values(0) == []
    assert [(r.key, r.headers, r.timestamp) for r in logs.logs[1].records] == [
        (None, (("n", b"0"),), 5),
        (b"k", (("n", b"1"),), 6),
        (None, (("n", b"2"),), 7),
        (b"k", (("n", b"3"),), 8),
    ]


def range_of_bytes(count: int) -> Any:
    class Values:
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> bytes:
            if index >= count:
                raise IndexError
            return b"%d" % index

    return Values()


@pytest.mark.parametrize("partitioner", ["default", "sticky", "round_robin", lambda key, all_, led: 1])
async def test_bulk_and_single_records_go_where_the_partitioner_says(fake: Fake, partitioner: Any) -> None:
    logs = FakeLogs(await fake(), partitions=3)
    async with producing(logs, partitioner=partitioner, batch_size=200) as producer:
        await producer.send_many("t", [b"x" * 50] * 90, keys=[None, b"a", None] * 30)
        for _ in range(9):
            await producer.send("t", b"x")
    counts = [len(logs.values(partition)) for partition in range(3)]
    assert sum(counts) == 99
    if partitioner == "round_robin":
        assert counts == [33, 33, 33]
    elif callable(partitioner):
        assert counts == [0, 99, 0]
    else:
        keyed = [record for log in logs.logs for record in log.records if record.key]
        assert len(keyed) == 30
        assert all(record in logs.logs[partition_for_key(b"a", 3)].records for record in keyed)


async def test_bulk_waits_for_room(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    gate = asyncio.Event()
    answer = logs.brokers[0].answers[ProduceRequest]

    async def later(request: ProduceRequest, version: int) -> object:
        await gate.wait()
        return answer(request, version)

    logs.brokers[0].on(ProduceRequest, later)
    async with producing(logs, batch_size=1000, buffer_memory=20_000) as producer:
        sending = asyncio.ensure_future(producer.send_many("t", [b"x" * 93] * 5000))
        while not logs.brokers[0].requests(ProduceRequest):
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not sending.done()
        held = sum(batch.size for batch in producer._ready()._pending())
        assert producer._ready().records.memory.used <= held < 22_000 + 1000  # with the headers of some 20 batches
        gate.set()
        await sending
    assert len(logs.values()) == 5000


async def test_bulk_that_is_too_large_for_the_broker_is_cut_and_its_pieces_are_told_of(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    logs.max_batch_bytes = 150
    values = [b"%02d" % number * 5 for number in range(30)]
    first: list[BatchResult] = []
    second: list[BatchResult] = []
    async with producing(logs, batch_size=1000, linger_ms=100_000) as producer:
        await producer.send_many("t", values[:13], on_batch=first.append)
        await producer.send_many("t", values[13:], on_batch=second.append)
        await producer.flush()
        assert producer._ready().records.memory.used == 0
    assert logs.values() == values
    for told, begin, count in ((first, 0, 13), (second, 13, 17)):
        assert sum(result.size for result in told) == count
        ends = [result.base_offset + result.size for result in told]
        assert [begin, *ends[:-1]] == [result.base_offset for result in told]


async def test_what_bulk_could_not_write_is_raised_where_it_is_waited_for(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    codes = iter([ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    logs.fault = lambda partition: next(codes, None)
    async with producing(logs) as producer:
        await producer.send_many("t", [b"lost"])
        with pytest.raises(BrokerSaid, match="TOPIC_AUTHORIZATION_FAILED") as caught:
            await producer.flush()
        assert (caught.value.topic, caught.value.partition) == ("t", 0)
        await producer.flush()
        told: list[BatchResult] = []
        codes = iter([ErrorCode.INVALID_RECORD])
        await producer.send_many("t", [b"lost", b"too"], on_batch=told.append)
        await producer.flush()
        assert [(result.size, result.base_offset) for result in told] == [(2, -1)]
        assert isinstance(told[0].error, BrokerSaid)
        assert producer.metrics()["record-error-total"] == 3


async def test_a_callback_that_raises_is_its_own_problem(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    logs = FakeLogs(await fake())

    def broken(result: BatchResult) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.CRITICAL, "asyncio"):
        async with producing(logs) as producer:
            await producer.send_many("t", [b"1"], on_batch=broken)
            await producer.flush()
            assert (await producer.send("t", b"2")).offset == 1


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"values": b"text"}, "a list of values"),
        ({"values": [b"1"], "keys": []}, "1 values, and 0 keys"),
        ({"values": [b"1"], "headers": [(), ()]}, "2 headers"),
        ({"values": [b"1"], "timestamps_ms": [1, 2]}, "2 timestamps_ms"),
        ({"values": [b"1"], "timestamps_ms": -1}, "they go from 0"),
        ({"values": [b"1"], "partition": 3}, "only partition 0"),
        ({"values": [b"x" * 3000]}, r"max\.request\.size"),
        ({"values": ["text"]}, "cannot be written"),
    ],
)
async def test_what_is_no_bulk_is_refused(fake: Fake, columns: dict[str, Any], says: str) -> None:
    logs = FakeLogs(await fake())
    async with producing(logs, max_request_size=2000, batch_size=1000) as producer:
        with pytest.raises(ClientError, match=says):
            await producer.send_many("t", **columns)
    assert logs.values() == []


async def test_records_before_one_that_is_none_are_on_their_way(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    told: list[BatchResult] = []
    async with producing(logs) as producer:
        with pytest.raises(ClientError, match="cannot be written"):
            await producer.send_many("t", [b"1", b"2", 3, b"4"], on_batch=told.append)
        await producer.flush()
        assert [result.size for result in told] == [2]
    assert logs.values() == [b"1", b"2"]


class Registry:
    """A serializer that looks something up first, and says in a header what it found."""

    def __init__(self) -> None:
        self.prepared: list[object] = []

    async def prepare(self, topic: str, data: Any) -> None:
        self.prepared.append((topic, list(data)))

    def serialize(self, data: Any, *, topic: str, headers: Any, is_key: bool) -> bytes:
        headers.append(("schema", topic.encode()))
        return str(data).encode()


async def test_serializers_make_the_bytes(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    registry = Registry()
    async with producing(logs, key_serializer=str.encode, value_serializer=registry) as producer:
        await producer.send("t", 5, key="five", headers=(("h", b""),))
        await producer.send_many("t", [6, None], keys=["six", "none"], headers=[{"h": b"x"}, ()])
        with pytest.raises(ClientError, match="a key cannot be serialized"):
            await producer.send("t", 7, key=b"bytes have no encode")
    assert [(r.key, r.value, r.headers) for r in logs.logs[0].records] == [
        (b"five", b"5", (("h", b""), ("schema", b"t"))),
        (b"six", b"6", (("h", b"x"), ("schema", b"t"))),
        (b"none", None, ()),
    ]
    assert registry.prepared == [("t", [5]), ("t", [6, None]), ("t", [7])]


async def test_options_have_kafkas_names_with_dots_or_underscores(fake: Fake) -> None:
    producer = Producer(config={"linger.ms": 7, "acks": "1"}, linger_ms=9, client_id=None)
    assert (producer.config.linger_ms, producer.config.acks, producer.config.client_id) == (9, "1", "klamm")
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        Producer(linger_ms="soon")
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        Producer(transactional_id="x", acks="1")


async def test_a_producer_that_is_not_open_says_so(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    async with producing(logs) as producer:
        await producer.send("t", b"1")
        with pytest.raises(ClientError, match="no transactions"):
            await producer.begin()
    for call in (producer.send("t"), producer.send_soon("t"), producer.send_many("t", [b""]), producer.flush()):
        with pytest.raises(Closed):
            await call
    with pytest.raises(NotReachable):
        async with Producer(bootstrap_servers="127.0.0.1:1"):
            pass


async def test_a_producer_counts(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    codes = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER])
    async with producing(logs, linger_ms=100_000) as producer:
        for _ in range(10):
            await producer.send_soon("t", b"x" * 10)
        await producer.flush()
        logs.fault = lambda partition: next(codes, None)
        await producer.send_many("t", [b"x" * 10] * 5)
        await producer.flush()
        found = producer.metrics()
        assert (found["record-send-total"], found["record-retry-total"], found["batch-total"]) == (15, 5, 2)
        assert found["produce-request-total"] == 3
        assert found["buffer-available-bytes"] == found["buffer-total-bytes"]
        assert [partition.leader for partition in await producer.partitions_for("t")] == [1]


async def test_a_batch_goes_again_only_as_often_as_retries_says(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    logs.fault = lambda partition: ErrorCode.NOT_ENOUGH_REPLICAS
    async with producing(logs, retries=2) as producer:
        with pytest.raises(BrokerSaid, match="NOT_ENOUGH_REPLICAS"):
            await producer.send("t", b"1")
    assert len(logs.brokers[0].requests(ProduceRequest)) == 3


async def test_who_waits_for_room_hears_that_the_producer_was_closed(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    logs.brokers[0].on(ProduceRequest, lambda request, version: None)
    options = {**QUICK, "buffer_memory": 1000, "batch_size": 200}
    producer = Producer(bootstrap_servers=f"127.0.0.1:{logs.brokers[0].port}", **options)
    await producer.start()
    sending = asyncio.ensure_future(producer.send_many("t", [b"x" * 100] * 100))
    while not logs.brokers[0].requests(ProduceRequest):
        await asyncio.sleep(0)
    assert not sending.done()
    await producer.close(abort=True)
    with pytest.raises(Closed):
        await sending


async def test_a_close_that_nobody_waits_for_to_the_end_ends_all_the_same(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    logs.brokers[0].on(ProduceRequest, lambda request, version: None)
    producer = Producer(bootstrap_servers=f"127.0.0.1:{logs.brokers[0].port}", **QUICK)
    await producer.start()
    delivery = await producer.send_soon("t", b"1")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await producer.close()
    with pytest.raises(Closed):
        await delivery


async def test_without_a_batch_size_every_record_travels_alone(fake: Fake) -> None:
    logs = FakeLogs(await fake())
    async with producing(logs, batch_size=0) as producer:
        await producer.send_many("t", [b"1", b"2", b"3"])
        await producer.send("t", b"4")
    assert logs.values() == [b"1", b"2", b"3", b"4"]
    assert len(logs.logs[0].batches) == 4
