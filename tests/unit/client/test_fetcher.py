from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import pytest
from client_broker import FakeBroker
from client_log import FakeLogs

from klamm.client import EARLIEST, LATEST, BadRecords, BrokerSaid, ClientError, Cluster, OffsetOutOfRange
from klamm.client.fetching import Answer, next_offset, read_records
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.compression import Codec
from klamm.records.record import ControlType, EndMarker, Record, encode_batch, encode_end_marker
from klamm.wire.messages.k01_fetch import FetchRequest

Fake = Callable[[], Awaitable[FakeBroker]]
Connect = Callable[..., Awaitable[Cluster]]

PLACE = TopicPartition("t", 0)


def fill(logs: FakeLogs, partition: int, count: int, *, per_batch: int = 5, codec: Codec = Codec.NONE) -> list[bytes]:
    values = [b"%d/%d" % (partition, number) for number in range(count)]
    for at in range(0, count, per_batch):
        records = [Record(0, 1000 + at, None, value) for value in values[at : at + per_batch]]
        logs.logs[partition].append(encode_batch(records, codec=codec))
    return values


async def read_all(cluster: Cluster, start: dict, end: dict | None = None, **options: object) -> dict:
    found: dict[tuple[str, int], list[bytes]] = {place: [] for place in start}
    async with cluster.fetcher(start, end=end, **options) as fetcher:
        async for chunk in fetcher:
            found[chunk.topic, chunk.partition] += [record.value for record in chunk.records]
    return found


@pytest.mark.parametrize("codec", list(Codec))
async def test_partitions_are_read_from_offset_to_offset(fake: Fake, connect: Connect, codec: Codec) -> None:
    logs = FakeLogs(await fake(), partitions=3)
    values = [fill(logs, partition, 40, codec=codec) for partition in range(3)]
    cluster = await connect(logs.brokers[0])
    ends = await cluster.offsets({("t", partition): LATEST for partition in range(3)})
    assert [found.offset for found in ends.values()] == [40, 40, 40]
    found = await read_all(
        cluster, {("t", 0): 0, ("t", 1): 7, ("t", 2): 40}, {("t", 0): 40, ("t", 1): 33, ("t", 2): 40}
    )
    assert found == {("t", 0): values[0], ("t", 1): values[1][7:33], ("t", 2): []}


@pytest.mark.parametrize("seed", range(15))
async def test_leaders_may_move_and_connections_break(fake: Fake, connect: Connect, seed: int) -> None:
    rng = Random(seed)
    logs = FakeLogs(await fake(), await fake(), partitions=3)
    values = {("t", partition): fill(logs, partition, 100) for partition in range(3)}

    def fault(partition: int) -> ErrorCode | str | None:
        if rng.random() < 0.1:
            logs.lead(partition, rng.choice(logs.brokers))
        passing = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, "lost before")
        return rng.choice(passing) if rng.random() < 0.2 else None

    logs.fault = fault
    trouble: list[ClientError] = []
    cluster = await connect(*logs.brokers, **{"max.partition.fetch.bytes": 300, "fetch.max.bytes": 700})
    found = await read_all(cluster, dict.fromkeys(values, 0), dict.fromkeys(values, 100), on_trouble=trouble.append)
    assert found == values
    assert all(error.retriable for error in trouble)


async def test_fetching_stops_while_enough_waits_to_be_taken(fake: Fake, connect: Connect) -> None:
    from klamm.client.fetcher import Fetcher

    logs = FakeLogs(await fake())
    fill(logs, 0, 500)
    few = {"max.partition.fetch.bytes": 500, "fetch.max.bytes": 500, "prefetch.max.bytes": 1000}
    cluster = await connect(logs.brokers[0], **few)
    fetcher = Fetcher(cluster, {("t", 0): 0}, end={("t", 0): 500})
    await cluster.topic("t")
    read = 0
    while (chunk := await fetcher.next()) is not None:
        read += len(chunk.records)
        assert fetcher.positions()["t", 0] - read <= 5 * (1000 + 700) / 80
    assert read == 500
    await fetcher.close()


async def test_an_offset_that_is_not_there_is_an_error(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake())
    cluster = await connect(logs.brokers[0])
    with pytest.raises(OffsetOutOfRange, match="Offset 99"):
        await read_all(cluster, {("t", 0): 99})


async def test_what_the_broker_refuses_is_an_error(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake())
    logs.fault = lambda partition: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster = await connect(logs.brokers[0])
    with pytest.raises(BrokerSaid, match="TOPIC_AUTHORIZATION_FAILED"):
        await read_all(cluster, {("t", 0): 0})


async def test_a_topic_that_was_deleted_ends_the_reading(
    fake: Fake, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.client.fetcher.GONE_AFTER_S", 0.01)
    logs = FakeLogs(await fake())
    cluster = await connect(logs.brokers[0])
    await cluster.topic("t")
    logs.brokers[0].leaders = {}
    logs.fault = lambda partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    logs.brokers[0].on(FetchRequest, lambda request, version: _unknown(request))
    with pytest.raises(BrokerSaid, match="deleted"):
        await read_all(cluster, {("t", 0): 0})


def _unknown(request: FetchRequest) -> object:
    from klamm.wire.messages.k01_fetch import FetchableTopicResponse, FetchResponse, PartitionData

    part = PartitionData(partition_index=0, error_code=ErrorCode.UNKNOWN_TOPIC_ID, records=b"")
    topic = request.topics[0]
    return FetchResponse(
        responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[part])]
    )


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
async def test_every_version_of_fetch_works(fake: Fake, connect: Connect, version: int) -> None:
    logs = FakeLogs(await fake())
    logs.brokers[0].versions[FetchRequest] = (4, version)
    values = fill(logs, 0, 12)
    cluster = await connect(logs.brokers[0])
    assert await read_all(cluster, {("t", 0): 0}, {("t", 0): 12}) == {("t", 0): values}


async def test_offsets_of_a_partition_that_is_not_there_are_an_error(fake: Fake, connect: Connect) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    cluster = await connect(logs.brokers[0])
    with pytest.raises(BrokerSaid, match="partitions 0 to 1"):
        await cluster.offsets({("t", 2): EARLIEST})
    with pytest.raises(BrokerSaid, match="other"):
        await cluster.offsets({("other", 0): EARLIEST})


def transactional(base: int, producer: int, *values: bytes) -> bytes:
    records = [Record(0, 0, None, value) for value in values]
    return encode_batch(
        records, base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(base: int, producer: int, kind: ControlType) -> bytes:
    return encode_end_marker(EndMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=0, base_offset=base)


def test_records_of_aborted_transactions_are_left_out_when_only_committed_ones_are_wanted() -> None:
    data = b"".join(
        (
            transactional(0, 1, b"aborted 0", b"aborted 1"),
            transactional(2, 2, b"kept 2"),
            encode_batch([Record(0, 0, None, b"plain 3")], base_offset=3),
            marker(4, 1, ControlType.ABORT),
            transactional(5, 1, b"kept 5"),
            marker(6, 2, ControlType.COMMIT),
            marker(7, 1, ControlType.COMMIT),
            transactional(8, 1, b"aborted 8"),
            marker(9, 1, ControlType.ABORT),
        )
    )
    answer = Answer(ErrorCode.NONE, data, 10, 0, ((1, 8), (1, 0)))
    committed = [record.value for record in read_records(PLACE, answer, 0, read_committed=True)]
    assert committed == [b"kept 2", b"plain 3", b"kept 5"]
    assert len(read_records(PLACE, answer, 0)) == 6
    assert [record.offset for record in read_records(PLACE, answer, 1, 6, read_committed=True)] == [2, 3, 5]
    assert next_offset(PLACE, data, 0) == 10


def test_a_partial_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    whole = encode_batch([Record(0, 0, None, b"1"), Record(0, 0, None, b"2")])
    data = whole + encode_batch([Record(0, 0, None, b"3")], base_offset=2)[:-1]
    answer = Answer(ErrorCode.NONE, data, 3, 0, ())
    assert [record.value for record in read_records(PLACE, answer, 1)] == [b"2"]
    assert next_offset(PLACE, data, 0) == 2
    assert next_offset(PLACE, data[:50], 7) == 7


def test_damage_and_old_formats_are_told_with_their_place() -> None:
    good = bytearray(encode_batch([Record(0, 0, None, b"value")], base_offset=5))
    good[-1] ^= 1
    with pytest.raises(BadRecords, match="t-0: the batch at offset 5"):
        read_records(PLACE, Answer(ErrorCode.NONE, bytes(good), 6, 0, ()), 5)
    good[16] = 1
    with pytest.raises(BadRecords, match="format v1"):
        next_offset(PLACE, bytes(good), 5)
