"""A consumer, and a cluster made of plain functions: where it begins, what it reads, what it does in trouble."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from client_broker import FakeBroker
from client_log import FakeLogs
from client_reading import Open, fill, take

from klamm.aio import Consumer
from klamm.client.deserializing import BadValue
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
from klamm.wire.messages.k01_fetch import FetchRequest, LeaderIdAndEpoch, NodeEndpoint

Fake = Callable[[], Awaitable[FakeBroker]]

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


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


async def test_the_leader_that_another_broker_names_is_asked_at_once(fake: Fake, consume: Open) -> None:
    old, new = await fake(), await fake()
    logs = FakeLogs(old, new)
    values = fill(logs, 0, 10)
    consumer = await consume(old, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000, max_partition_fetch_bytes=100)
    consumer.assign([T0])
    assert await take(consumer, 1) == values[:1]
    old.peers = [old]  # metadata would not help: the old leader has not heard of the new one
    logs.lead(0, new)
    plain = logs._fetch

    def knows_better(request: FetchRequest, version: int) -> Any:
        answer = plain(old, request, version)
        for part in answer.responses[0].partitions:
            part.current_leader = LeaderIdAndEpoch(leader_id=new.node_id, leader_epoch=new.epoch)
        answer.node_endpoints = [NodeEndpoint(node_id=new.node_id, host="127.0.0.1", port=new.port)]
        return answer

    old.on(FetchRequest, knows_better)
    fill(logs, 0, 10)
    assert await take(consumer, 19) == logs.values(0)[1:]


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


async def test_a_broker_that_asks_for_it_is_left_alone_for_a_while(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    broker = logs.brokers[0]
    times: list[float] = []

    def throttled(request: FetchRequest, version: int) -> Any:
        times.append(asyncio.get_running_loop().time())
        answer = logs._fetch(broker, request, version)
        answer.throttle_time_ms = 50
        return answer

    broker.on(FetchRequest, throttled)
    consumer = await consume(broker)
    consumer.assign([T0])
    while len(times) < 4:
        await consumer.getmany(timeout_ms=10)
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 0.045


async def test_iterating_ends_when_the_consumer_is_closed(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 5)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    found: list[bytes] = []

    async def read() -> None:
        async for record in consumer:
            found.append(record.value)  # noqa: PERF401 - looked at meanwhile

    reading = asyncio.ensure_future(read())
    while len(found) < 5:
        await asyncio.sleep(0)
    await consumer.close()
    await reading
    assert found == values
    with pytest.raises(Closed):
        await consumer.start()
    with pytest.raises(Closed, match="not open"):
        await anext(Consumer("t", bootstrap_servers="127.0.0.1:1"))


async def test_what_was_read_is_counted(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    fill(logs, 0, 20)
    fill(logs, 1, 10)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0, T1])
    await take(consumer, 30)
    assert await consumer.getmany(timeout_ms=1) == {}
    metrics = consumer.metrics()
    assert metrics["records-consumed-total"] == 30
    assert metrics["bytes-consumed-total"] == sum(len(batch) for log in logs.logs for batch in log.batches)
    assert (metrics["records-lag-max"], metrics["bytes-prefetched"], metrics["assigned-partitions"]) == (0, 0, 2)
    assert metrics["fetch-total"] >= 1 and metrics["request-total"] > 1
    with pytest.raises(ConsumerMisuse, match="none at all"):
        await consumer.getmany(0)


# Deserializers.


class Registry:
    """A deserializer whose schemas cannot always be had."""

    def __init__(self) -> None:
        self.failures = 2
        self.asked: list[int] = []

    async def prepare(self, records: list[Any]) -> None:
        self.asked.append(len(records))
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise OSError("the registry does not answer")

    def deserialize(self, data: bytes, *, topic: str, headers: Any, is_key: bool) -> Any:
        return topic, data.decode(), is_key


async def test_deserializers_make_what_the_application_gets(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    logs.logs[0].append(encode_batch([Record(0, 0, b"1", b"x"), Record(0, 0, None, None), Record(0, 0, b"?", b"z")]))
    consumer = await consume(logs.brokers[0], key_deserializer=int, value_deserializer=bytes.upper)
    consumer.assign([T0])
    found = [await consumer.getone() for _ in range(2)]
    assert [(record.key, record.value) for record in found] == [(1, b"X"), (None, None)]
    with pytest.raises(BadValue, match="key at offset 2") as failure:
        await consumer.getone()
    assert failure.value.record.value == b"z"
    consumer.seek(T0, failure.value.offset + 1)
    logs.logs[0].append(encode_batch([Record(0, 0, b"4", b"more")]))
    assert (await consumer.getone()).value == b"MORE"


async def test_nothing_is_lost_while_a_registry_does_not_answer(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    values = fill(logs, 0, 7)
    registry = Registry()
    consumer = await consume(logs.brokers[0], value_deserializer=registry)
    consumer.assign([T0])
    for _ in range(2):
        with pytest.raises(OSError, match="registry"):
            await consumer.getmany()
    assert [r.value for r in (await consumer.getmany())[T0]] == [("t", value.decode(), False) for value in values]
    assert registry.asked == [7, 7, 7]


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


async def test_new_partitions_and_patterns_are_found(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    values = [fill(logs, partition, 5) for partition in range(2)]
    told: list[str] = []
    consumer = await consume(logs.brokers[0], metadata_max_age_ms=20)
    consumer.subscribe(
        pattern="[t-z]",
        on_assigned=lambda places: told.append(f"+{[place.partition for place in places]}"),
        on_revoked=lambda places: told.append(f"-{[place.partition for place in places]}"),
    )
    assert sorted(await take(consumer, 10)) == sorted(values[0] + values[1])
    logs.logs.append(type(logs.logs[0])())
    logs.brokers[0].leaders["t", 2] = 1
    more = fill(logs, 2, 5)
    assert await take(consumer, 5) == more
    consumer.subscribe(pattern="[a-c]", on_revoked=lambda places: told.append(f"-{len(places)}"))
    while consumer.assignment():
        assert await consumer.getmany(timeout_ms=10) == {}
    assert told == ["+[0, 1]", "+[2]", "-3"]
