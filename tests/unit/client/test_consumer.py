"""A consumer, and a cluster made of plain functions: where it begins, what it reads, what it does in trouble."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
from client_broker import FakeBroker
from client_log import FakeLogs

from klamm.aio import Consumer
from klamm.client.errors import (
    BadRecords,
    BrokerSaid,
    Closed,
    ConsumerMisuse,
    LogTruncated,
    NoPosition,
    NotAssigned,
    OffsetOutOfRange,
)
from klamm.client.membership import Offset
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.record import Record, encode_batch
from klamm.wire.messages.k01_fetch import FetchRequest

Fake = Callable[[], Awaitable[FakeBroker]]
Open = Callable[..., Awaitable[Consumer]]

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
async def consume() -> AsyncIterator[Open]:
    """`await consume(*brokers, **options)` is a consumer, closed when the test is over."""
    async with AsyncExitStack() as stack:

        async def start(*brokers: FakeBroker, **options: Any) -> Consumer:
            given = {
                "bootstrap_servers": ",".join(f"127.0.0.1:{broker.port}" for broker in brokers),
                "retry_backoff_ms": 1,
                "retry_backoff_max_ms": 20,
                "reconnect_backoff_ms": 1,
                "auto_offset_reset": "earliest",
                "fetch_max_wait_ms": 1,
            }
            return await stack.enter_async_context(Consumer(**{**given, **options}))

        yield start


def fill(logs: FakeLogs, partition: int, count: int, *, per_batch: int = 5, time: int = 1000) -> list[bytes]:
    first = len(logs.logs[partition].records)
    values = [b"%d/%d" % (partition, first + number) for number in range(count)]
    for at in range(0, count, per_batch):
        records = [Record(0, time + first + at + n, None, v) for n, v in enumerate(values[at : at + per_batch])]
        logs.logs[partition].append(encode_batch(records))
    return values


async def take(consumer: Consumer, count: int) -> list[bytes]:
    return [(await consumer.getone()).value for _ in range(count)]


async def test_records_come_one_by_one_with_everything_that_is_known_of_them(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    logs.logs[0].epoch = 7
    records = [Record(0, 1234, b"key", b"value", (("h", b"1"),)), Record(0, 1235, None, None)]
    logs.logs[0].append(encode_batch(records))
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    found = []
    async for record in consumer:
        found.append(record)
        if len(found) == 2:
            break
    assert found == [
        ("t", 0, 0, 1234, 0, b"key", b"value", (("h", b"1"),), 7),
        ("t", 0, 1, 1235, 0, None, None, (), 7),
    ]
    assert found[0].headers[0] == ("h", b"1")


async def test_getmany_gives_what_there_is_up_to_a_limit(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    values = [fill(logs, partition, 20) for partition in range(2)]
    consumer = await consume(logs.brokers[0], max_poll_records=13)
    consumer.assign([T0, T1])
    found: dict[TopicPartition, list[bytes]] = {T0: [], T1: []}
    while sum(map(len, found.values())) < 40:
        many = await consumer.getmany()
        assert 0 < sum(map(len, many.values())) <= 13
        for place, records in many.items():
            found[place] += [record.value for record in records]
            assert await consumer.position(place) == records[-1].offset + 1
    assert [found[T0], found[T1]] == values
    assert await consumer.getmany(timeout_ms=5) == {}
    assert consumer.lag(T0) == 0


async def test_batches_come_by_partition(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 12)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    found: list[bytes] = []
    async for batch in consumer.batches(max_records=7):
        assert (batch.topic, batch.partition, batch.high_watermark) == ("t", 0, 12)
        assert batch.next_offset == batch.records[-1].offset + 1
        found += [record.value for record in batch.records]
        if len(found) == 12:
            break
    assert found == values


@pytest.mark.parametrize(
    ("policy", "first"), [("earliest", 3), ("latest", 20), ("by_duration:PT0.005S", 15), ("by_duration:PT0.0S", 20)]
)
async def test_a_partition_begins_where_auto_offset_reset_says(
    fake: Fake, consume: Open, policy: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = FakeLogs(await fake())
    fill(logs, 0, 20, time=1000)
    logs.logs[0].start = 3
    consumer = await consume(logs.brokers[0], auto_offset_reset=policy)
    assert consumer._env is not None
    monkeypatch.setattr(type(consumer._env.clock), "time_ms", lambda self: 1020)
    consumer.assign([T0])
    assert await consumer.position(T0) == first


async def test_without_a_policy_an_offset_must_be_given(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    values = fill(logs, 0, 5)
    consumer = await consume(logs.brokers[0], auto_offset_reset="none")
    consumer.assign([T0])
    for _ in range(2):
        with pytest.raises(NoPosition, match="t, partition 0"):
            await consumer.getone()
    consumer.seek(T0, 2)
    assert await take(consumer, 3) == values[2:]
    consumer.seek(T0, 99)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange, match="Offset 99"):
            await consumer.getmany()
    consumer.seek_to_beginning()
    assert await take(consumer, 5) == values


async def test_an_offset_that_is_gone_is_reset(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 20)
    logs.logs[0].start = 10
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    consumer.seek(T0, 5)
    assert await take(consumer, 10) == values[10:]


async def test_what_was_fetched_is_read_before_a_reset(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 20)
    consumer = await consume(logs.brokers[0], max_partition_fetch_bytes=100)  # one batch at a time
    consumer.assign([T0])
    assert await take(consumer, 1) == values[:1]
    logs.logs[0].start = 20
    assert await take(consumer, 4) == values[1:5]
    more = fill(logs, 0, 5)
    while (record := await consumer.getone()).offset < 20:
        pass
    assert record.value == more[0]


async def test_seeking_drops_what_was_fetched(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 50)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    rng = Random(7)
    for _ in range(30):
        at = rng.randrange(45)
        consumer.seek(T0, at)
        assert await consumer.position(T0) == at
        assert await take(consumer, 4) == values[at : at + 4]
    consumer.seek_to_end(T0)
    assert await consumer.position(T0) == 50
    with pytest.raises(NotAssigned):
        consumer.seek(T1, 0)
    with pytest.raises(ConsumerMisuse):
        consumer.seek(T0, -5)


async def test_a_paused_partition_keeps_its_place_and_does_not_hold_up_others(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    values = [fill(logs, partition, 300) for partition in range(2)]
    consumer = await consume(logs.brokers[0], prefetch_max_bytes=500, max_partition_fetch_bytes=200)
    consumer.assign([T0, T1])
    found: dict[int, list[bytes]] = {0: [], 1: []}
    while len(found[0]) < 10:
        record = await consumer.getone()
        found[record.partition].append(record.value)
    consumer.pause(T0)
    assert consumer.paused() == {T0}
    paused_at = await consumer.position(T0)
    while len(found[1]) < 300:
        record = await consumer.getone()
        assert record.partition == 1
        found[1].append(record.value)
    assert await consumer.position(T0) == paused_at
    consumer.resume(T0)
    found[0] += await take(consumer, 300 - len(found[0]))
    assert [found[0], found[1]] == values


async def test_assigning_anew_keeps_positions_and_forgets_what_is_no_longer_ours(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake(), partitions=3)
    values = [fill(logs, partition, 20) for partition in range(3)]
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0, T1])
    consumer.pause(T1)
    assert await take(consumer, 7) == values[0][:7]
    consumer.assign([T0, T2])
    assert consumer.assignment() == {T0, T2}
    assert await consumer.position(T0) == 7
    found = [await consumer.getone() for _ in range(33)]
    assert {record.partition for record in found} == {0, 2}
    assert [record.value for record in found if record.partition == 0] == values[0][7:]
    with pytest.raises(ConsumerMisuse, match="not both"):
        consumer.subscribe("t")
    consumer.unsubscribe()
    assert not consumer.assignment()
    with pytest.raises(ConsumerMisuse, match="nothing to read"):
        await consumer.getone()


@pytest.mark.parametrize("seed", range(10))
async def test_everything_is_read_once_whatever_brokers_do(fake: Fake, consume: Open, seed: int) -> None:
    rng = Random(seed)
    logs = FakeLogs(await fake(), await fake(), partitions=3)
    values = {TopicPartition("t", partition): fill(logs, partition, 100) for partition in range(3)}

    def fault(partition: int) -> ErrorCode | str | None:
        if rng.random() < 0.1:
            logs.lead(partition, rng.choice(logs.brokers))
        passing = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, "lost before")
        return rng.choice(passing) if rng.random() < 0.2 else None

    logs.fault = fault
    consumer = await consume(*logs.brokers, max_partition_fetch_bytes=300, fetch_max_bytes=700)
    consumer.assign(values)
    found: dict[TopicPartition, list[bytes]] = {place: [] for place in values}
    while sum(map(len, found.values())) < 300:
        for place, records in (await consumer.getmany(rng.randint(1, 40))).items():
            found[place] += [record.value for record in records]
        if rng.random() < 0.2:
            consumer.pause(place := rng.choice(list(values)))
            await asyncio.sleep(0)
            consumer.resume(place)
    assert found == values


# Truncation.


async def test_records_that_a_new_leader_does_not_have_are_noticed(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    log = logs.logs[0]
    values = fill(logs, 0, 10)
    log.epoch = 1
    values += fill(logs, 0, 10)
    consumer = await consume(logs.brokers[0], auto_offset_reset="none")
    consumer.assign([T0])
    consumer.seek(T0, 0)
    assert await take(consumer, 20) == values
    log.truncate(15)
    log.epoch = 2
    fill(logs, 0, 10)  # other records than were read, up to offset 25
    logs.lead(0, logs.brokers[0])
    codes = [ErrorCode.FENCED_LEADER_EPOCH]
    logs.fault = lambda partition: codes.pop() if codes else None
    with pytest.raises(LogTruncated, match="cut at 15") as failure:
        await consumer.getone()
    assert (failure.value.offset, failure.value.diverged_at) == (20, 15)
    consumer.seek(T0, Offset(15, 1))
    assert await take(consumer, 10) == logs.values(0)[15:]


async def test_with_a_policy_reading_goes_on_where_the_logs_part(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    log = logs.logs[0]
    values = fill(logs, 0, 10)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    assert await take(consumer, 10) == values
    log.truncate(5)
    log.epoch = 1
    fill(logs, 0, 10)
    logs.lead(0, logs.brokers[0])
    await consumer._open().refresh()
    consumer._reading.changed()
    assert await take(consumer, 10) == logs.values(0)[5:]


async def test_what_was_fetched_ahead_and_is_gone_is_never_seen(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    log = logs.logs[0]
    fill(logs, 0, 20)
    consumer = await consume(logs.brokers[0], auto_offset_reset="none")
    consumer.assign([T0])
    consumer.seek(T0, 0)
    await take(consumer, 5)
    log.truncate(10)
    log.epoch = 1
    fill(logs, 0, 5)
    logs.lead(0, logs.brokers[0])
    await consumer._open().refresh()
    state = consumer.subscriptions.partitions[T0]
    consumer._reading.changed()
    await consumer._reading.until(lambda: state.leader_epoch == 1, 5)
    assert await take(consumer, 10) == logs.values(0)[5:]


# Replicas.


async def test_the_replica_that_the_leader_names_is_read_from(fake: Fake, consume: Open) -> None:
    leader, near = await fake(), await fake()
    logs = FakeLogs(leader, near)
    values = fill(logs, 0, 20)
    for broker in (leader, near):
        broker.replicas = [leader.node_id, near.node_id]
    plain = logs._fetch
    from_near: list[int] = []

    def by_leader(request: FetchRequest, version: int) -> Any:
        answer = plain(leader, request, version)
        for part in answer.responses[0].partitions:
            if request.rack_id == "near" and not part.error_code:
                part.preferred_read_replica, part.records = near.node_id, b""
        return answer

    def by_near(request: FetchRequest, version: int) -> Any:
        offset = request.topics[0].partitions[0].fetch_offset
        from_near.append(offset)
        answer = plain(leader, request, version)
        if offset == 10:  # it is behind
            part = answer.responses[0].partitions[0]
            part.error_code, part.records = ErrorCode.OFFSET_OUT_OF_RANGE, b""
        return answer

    leader.on(FetchRequest, by_leader)
    near.on(FetchRequest, by_near)
    consumer = await consume(leader, client_rack="near", max_partition_fetch_bytes=100)
    consumer.assign([T0])
    assert await take(consumer, 10) == values[:10]
    assert set(from_near) >= {0, 5}
    leader.on(FetchRequest, lambda request, version: plain(leader, request, version))
    assert await take(consumer, 10) == values[10:]


# What goes wrong.


async def test_damage_is_told_after_what_is_before_it_and_can_be_passed(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 15)
    damaged = bytearray(logs.logs[0].batches[1])
    damaged[-1] ^= 1
    logs.logs[0].batches[1] = bytes(damaged)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    assert [r.value for r in (await consumer.getmany())[T0]] == values[:5]
    for _ in range(2):
        with pytest.raises(BadRecords, match="offset 5"):
            await consumer.getmany()
    assert await consumer.position(T0) == 5
    consumer.seek(T0, 10)
    assert await take(consumer, 5) == values[10:]


async def test_what_a_broker_refuses_is_raised_and_asked_again(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 5)
    logs.fault = lambda partition: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    for _ in range(2):
        with pytest.raises(BrokerSaid, match="TOPIC_AUTHORIZATION_FAILED"):
            await consumer.getone()
    logs.fault = lambda partition: None
    while True:
        try:
            assert await take(consumer, 5) == values
            break
        except BrokerSaid:
            pass  # of before


async def test_one_task_reads_at_a_time_and_closing_ends_its_wait(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    waiting = asyncio.ensure_future(consumer.getone())
    await asyncio.sleep(0)
    with pytest.raises(ConsumerMisuse, match="Another task"):
        await consumer.getone()
    await consumer.close()
    with pytest.raises(Closed):
        await waiting
    with pytest.raises(Closed):
        await consumer.getmany()


# Without a group.


async def test_a_subscription_without_a_group_reads_every_partition(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake(), partitions=3)
    values = [fill(logs, partition, 10) for partition in range(3)]
    told: list[tuple[str, list[TopicPartition]]] = []

    async def on_assigned(places: list[TopicPartition]) -> None:
        told.append(("assigned", places))

    consumer = await consume(logs.brokers[0])
    consumer.subscribe("t", on_assigned=on_assigned, on_revoked=lambda places: told.append(("revoked", places)))
    found: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for _ in range(30):
        record = await consumer.getone()
        found[record.partition].append(record.value)
    assert [found[n] for n in range(3)] == values
    assert told == [("assigned", [T0, T1, T2])]
    with pytest.raises(ConsumerMisuse, match="no group_id"):
        await consumer.commit()
    assert await consumer.committed(T0) == {T0: None}


async def test_the_ends_of_partitions_and_times_in_them_can_be_looked_up(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    fill(logs, 0, 20, time=1000)
    logs.logs[0].start = 3
    consumer = await consume(logs.brokers[0])
    assert await consumer.beginning_offsets(T0, T1) == {T0: 3, T1: 0}
    assert await consumer.end_offsets(("t", 0)) == {T0: 20}
    found = await consumer.offsets_for_times({T0: 1010, T1: 5})
    assert found[T0] is not None and found[T0].offset == 10
    assert found[T1] is None
    assert set(await consumer.partitions_for("t")) == {0, 1}
    assert list(await consumer.topics()) == ["t"]
