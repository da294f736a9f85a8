"""A consumer and what brokers should not do, or do seldom: batches cut off, topics that are others by the same name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from client_broker import TOPIC_ID, FakeBroker
from client_log import FakeLogs
from client_reading import Open, fill, take

from klamm.aio import Admin, Consumer, Producer
from klamm.client.admin.topics import NewTopic
from klamm.client.errors import BadRecords, OffsetOutOfRange
from klamm.core.ids import TopicPartition
from klamm.wire.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

Fake = Callable[[], Awaitable[FakeBroker]]

T0 = TopicPartition("t", 0)


def answer_with(logs: FakeLogs, cut: Callable[[bytes, int], bytes]) -> None:
    """Fetches are answered with what `cut` makes of the right records and the number of the request."""
    broker, asked = logs.brokers[0], 0

    def fetched(request: FetchRequest, version: int) -> FetchResponse:
        nonlocal asked
        asked += 1
        wanted = request.topics[0].partitions[0]
        right = logs._fetched(broker, wanted, 1 << 20)
        data = cut(bytes(right.records or b""), asked)
        part = PartitionData(partition_index=0, high_watermark=right.high_watermark, records=data)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[part])])

    broker.on(FetchRequest, fetched)


@pytest.mark.parametrize("size", [20, 61, 70])
async def test_a_batch_that_is_always_cut_off_is_an_error_and_no_endless_loop(
    fake: Fake, consume: Open, size: int
) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 10)
    first = len(logs.logs[0].batches[0])
    answer_with(logs, lambda data, number: data[: first + size] if len(data) > first else data[:size])
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    assert await take(consumer, 5) == values[:5]
    for _ in range(2):
        with pytest.raises(BadRecords, match=r"t-0.*offset 5"):
            await consumer.getone()
    assert await consumer.position(T0) == 5
    assert len(logs.brokers[0].requests(FetchRequest)) < 10
    answer_with(logs, lambda data, number: data)
    consumer.seek(T0, 5)
    assert await take(consumer, 5) == values[5:]


async def test_a_batch_that_is_cut_off_once_is_asked_for_again(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 10)
    answer_with(logs, lambda data, number: data[:40] if number % 2 else data)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    assert await take(consumer, 10) == values


async def test_a_broker_that_sends_older_records_again_and_again_is_an_error(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 10)
    old = logs.logs[0].batches[0]
    answer_with(logs, lambda data, number: old)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    assert await take(consumer, 5) == values[:5]
    with pytest.raises(BadRecords, match="offset 5"):
        await consumer.getone()


async def test_a_cursor_that_is_set_aside_keeps_no_more_than_its_own_bytes(fake: Fake, consume: Open) -> None:
    """Not the whole answer that it came with."""
    logs = FakeLogs(await fake(), partitions=2)
    values = fill(logs, 0, 10, per_batch=1)
    for _ in range(100):
        fill(logs, 1, 100, per_batch=100)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0, ("t", 1)])
    while not {state.place for state in _fetched(consumer)} >= {T0}:
        await asyncio.sleep(0.001)
    consumer.pause(T0)
    assert await consumer.getmany(10)
    prefetched = consumer._reading._at_work.prefetched
    (aside,) = prefetched._aside
    assert len(aside._data.obj) <= 2 * aside.size
    consumer.pause(("t", 1))
    consumer.resume(T0)
    assert await take(consumer, 10) == values


def _fetched(consumer: Consumer) -> list[Any]:
    return [state for state in consumer.subscriptions.partitions.values() if state.next_offset > 0]


# Another topic by the same name.


async def _write(bootstrap: str, *values: bytes) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            await producer.send("t", value, partition=0)


async def _make_anew(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.delete_topics(["t"])
        await admin.create_topics([NewTopic("t", partitions=1)])


@pytest.mark.parametrize("options", [{}, {"group_id": "g"}, {"group_id": "g", "group_protocol": "consumer"}])
async def test_a_topic_made_anew_is_read_from_its_beginning(klamm_brokers: Any, options: dict[str, Any]) -> None:
    broker = klamm_brokers()
    broker.create_topic("t", partitions=1)
    await _write(broker.bootstrap, *[b"old"] * 10)
    given = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest", "retry_backoff_ms": 5, **options}
    async with asyncio.timeout(30), Consumer("t", **given) as consumer:
        assert set(await take(consumer, 10)) == {b"old"}
        consumer.pause(T0)  # so that it sees nothing of it
        await _make_anew(broker.bootstrap)
        await _write(broker.bootstrap, *[b"new %d" % number for number in range(20)])
        consumer.resume(T0)
        assert await take(consumer, 20) == [b"new %d" % number for number in range(20)]


async def test_without_a_policy_a_topic_made_anew_is_an_error(klamm_brokers: Any) -> None:
    broker = klamm_brokers()
    broker.create_topic("t", partitions=1)
    await _write(broker.bootstrap, b"old", b"old")
    async with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none", retry_backoff_ms=5) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 1)
        assert await take(consumer, 1) == [b"old"]
        consumer.pause(T0)
        await _make_anew(broker.bootstrap)
        await _write(broker.bootstrap, b"new", b"new", b"new")
        consumer.resume(T0)
        with pytest.raises(OffsetOutOfRange):
            await consumer.getone()
        consumer.seek(T0, 1)
        assert await take(consumer, 2) == [b"new", b"new"]
