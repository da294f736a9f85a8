"""Record batches of Arrow: what is in them, what is left out, and where a consumer stands when it has them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from client_broker import FakeBroker
from client_log import FakeLogs

from klamm import arrow
from klamm.aio import Consumer
from klamm.client import arrow as client_arrow
from klamm.client.cursor import Rest
from klamm.client.errors import BadRecords, ConsumerMisuse
from klamm.core.ids import TopicPartition
from klamm.records import batch, columnar
from klamm.records.compression import Codec
from klamm.records.record import ControlType, EndMarker, Record, encode_batch, encode_end_marker

pa = pytest.importorskip("pyarrow")

Fake = Callable[[], Awaitable[FakeBroker]]
Open = Callable[..., Awaitable[Consumer]]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["kernel", "twin"], autouse=True)
def table(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "twin":
        monkeypatch.setattr(client_arrow, "Table", columnar.Table)


def rest(*parts: bytes, start: int = 0, aborted: tuple[tuple[int, int], ...] = (), partition: int = 0) -> Rest:
    data = b"".join(parts)
    end = max((header.next_offset for _, header in batch.iter_batches(data)), default=start)
    return Rest("t", partition, data, start, end, end, aborted)


def numbered(base: int, count: int, **options: Any) -> bytes:
    records = [Record(0, 1000 + base + n, None, b"%d" % (base + n)) for n in range(count)]
    return encode_batch(records, base_offset=base, **options)


def values(found: Iterable[Any]) -> list[bytes]:
    return [value for record_batch in found for value in record_batch.column("value").to_pylist()]


def transactional(base: int, producer: int, count: int = 1) -> bytes:
    return numbered(base, count, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)


def marker(base: int, producer: int, kind: ControlType) -> bytes:
    return encode_end_marker(EndMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=0, base_offset=base)


# The function.


def test_rows_have_the_columns_of_sparks_kafka_source() -> None:
    records = [
        Record(0, 1_700_000_000_123, b"key", b"value", (("a", b"1"), ("b", None))),
        Record(1, 1_700_000_000_124, None, None),
    ]
    (found,) = arrow.batches([rest(encode_batch(records, base_offset=7), start=7, partition=3)], headers=True)
    found.validate(full=True)
    assert str(found.schema).split("\n") == [
        "key: binary",
        "value: binary",
        "topic: string",
        "partition: int32",
        "offset: int64",
        "timestamp: timestamp[us, tz=UTC]",
        "timestampType: int32",
        "headers: list<item: struct<key: string, value: binary>>",
        "  child 0, item: struct<key: string, value: binary>",
        "      child 0, key: string",
        "      child 1, value: binary",
    ]
    shared = {"topic": "t", "partition": 3, "timestampType": 0}
    at = BEGINNING + timedelta(milliseconds=1_700_000_000_123)
    assert found.to_pylist() == [
        {
            "key": b"key",
            "value": b"value",
            "offset": 7,
            "timestamp": at,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
            **shared,
        },
        {
            "key": None,
            "value": None,
            "offset": 8,
            "timestamp": at + timedelta(milliseconds=1),
            "headers": None,
            **shared,
        },
    ]


def test_without_headers_there_is_no_such_column() -> None:
    (found,) = arrow.batches([rest(numbered(0, 3))])
    assert found.schema == arrow.schema()
    assert found.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert found.column("key").null_count == 3
    assert found.column("value").buffers()[0] is None  # nothing is null, so nothing says what is


def test_the_time_of_the_append_is_the_time_of_all_records() -> None:
    data = bytearray(numbered(0, 2))
    batch.stamp_append_time(data, 0, 5_000)
    (found,) = arrow.batches([rest(bytes(data))])
    assert found.column("timestampType").to_pylist() == [1, 1]
    assert found.column("timestamp").to_pylist() == [BEGINNING + timedelta(seconds=5)] * 2


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_read(codec: Codec) -> None:
    found = list(arrow.batches([rest(numbered(0, 50, codec=codec), numbered(50, 50), start=10)], max_rows=32))
    assert [record_batch.num_rows for record_batch in found] == [32, 32, 26]
    assert values(found) == [b"%d" % n for n in range(10, 100)]


def test_record_batches_are_filled_over_the_borders_of_what_was_fetched() -> None:
    chunks = [rest(numbered(0, 5), numbered(5, 5), start=3), rest(numbered(0, 4), partition=1), rest(numbered(10, 1))]
    found = list(arrow.batches(chunks, max_rows=8))
    assert [record_batch.num_rows for record_batch in found] == [8, 4]
    assert [record_batch.column("partition").to_pylist() for record_batch in found] == [[0] * 7 + [1], [1] * 3 + [0]]
    assert [record_batch.column("offset").to_pylist() for record_batch in found] == [[*range(3, 10), 0], [1, 2, 3, 10]]
    for record_batch in found:
        record_batch.validate(full=True)


def test_record_batches_end_when_they_have_enough_bytes() -> None:
    big = [
        encode_batch([Record(0, 0, None, bytes(60)), Record(0, 0, None, bytes(60))], base_offset=n * 2)
        for n in (0, 1, 2)
    ]
    found = list(arrow.batches([rest(*big)], max_bytes=100))
    assert [record_batch.num_rows for record_batch in found] == [2, 2, 2]
    for wrong in ({"max_rows": 0}, {"max_bytes": 0}):
        with pytest.raises(ValueError):
            list(arrow.batches([], **wrong))


def test_aborted_transactions_and_control_records_are_left_out() -> None:
    data = (
        transactional(0, 1, 2),
        transactional(2, 2),
        numbered(3, 1),
        marker(4, 1, ControlType.ABORT),
        transactional(5, 1),
        marker(6, 2, ControlType.COMMIT),
        marker(7, 1, ControlType.COMMIT),
        transactional(8, 1),
        marker(9, 1, ControlType.ABORT),
    )
    for max_rows in (1, 2, 100):
        committed = arrow.batches([rest(*data, aborted=((1, 8), (1, 0)))], max_rows=max_rows)
        assert values(committed) == [b"2", b"3", b"5"]
        assert values(arrow.batches([rest(*data)], max_rows=max_rows)) == [b"0", b"1", b"2", b"3", b"5", b"8"]
    assert list(arrow.batches([rest(marker(0, 1, ControlType.COMMIT))])) == []


def test_damage_comes_behind_everything_before_it() -> None:
    damaged = bytearray(numbered(4, 2))
    damaged[-1] ^= 1
    found = arrow.batches([rest(numbered(0, 4), bytes(damaged), numbered(6, 1))], max_rows=3)
    assert values([next(found), next(found)]) == [b"0", b"1", b"2", b"3"]
    with pytest.raises(BadRecords, match="t-0: the batch at offset 4"):
        next(found)


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(arrow.NoArrow, match="pip install pyarrow"):
        arrow.schema()


# The consumer.


@pytest.fixture
async def consume() -> AsyncIterator[Open]:
    """`await consume(*brokers, **options)` is a consumer, closed when the test is over."""
    async with AsyncExitStack() as stack:

        async def start(*brokers: FakeBroker, **options: Any) -> Consumer:
            given = {
                "bootstrap_servers": ",".join(f"127.0.0.1:{broker.port}" for broker in brokers),
                "auto_offset_reset": "earliest",
                "fetch_max_wait_ms": 1,
            }
            return await stack.enter_async_context(Consumer(**{**given, **options}))

        yield start


def fill(logs: FakeLogs, partition: int, batches: int, per_batch: int = 10) -> None:
    for _ in range(batches):
        logs.logs[partition].append(numbered(len(logs.logs[partition].records), per_batch))


async def test_a_consumer_gives_record_batches_and_stands_behind_them(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake(), partitions=2)
    for partition in range(2):
        fill(logs, partition, 5)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0, T1])
    offsets: dict[int, list[int]] = {0: [], 1: []}
    async for found in consumer.arrow(max_rows=7, timeout_ms=2000):
        assert 0 < found.num_rows <= 7
        for partition, offset in zip(
            *(found.column(name).to_pylist() for name in ("partition", "offset")), strict=True
        ):
            offsets[partition].append(offset)
        for place in (T0, T1):
            if offsets[place.partition]:
                assert await consumer.position(place) == offsets[place.partition][-1] + 1
    assert offsets == {0: list(range(50)), 1: list(range(50))}


async def test_records_and_record_batches_can_be_taken_in_turn(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    fill(logs, 0, 10)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    found: list[int] = []
    while len(found) < 100:
        found.append((await consumer.getone()).offset)
        if len(found) < 100:
            async for record_batch in consumer.arrow(max_rows=len(found) % 13 + 1):
                found += record_batch.column("offset").to_pylist()
                break
    assert found == list(range(100))


async def test_a_seek_leads_to_other_record_batches(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    fill(logs, 0, 3)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    record_batches = consumer.arrow(max_rows=4)
    assert (await anext(record_batches)).column("offset").to_pylist() == [0, 1, 2, 3]
    consumer.seek(T0, 27)
    assert (await anext(record_batches)).column("offset").to_pylist() == [27, 28, 29]
    consumer.seek(T0, 2)
    assert (await anext(record_batches)).column("offset").to_pylist() == [2, 3, 4, 5]


async def test_damage_is_raised_once_everything_before_it_was_given(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    fill(logs, 0, 2)
    broken = bytearray(logs.logs[0].batches[1])
    broken[-1] ^= 1
    logs.logs[0].batches[1] = bytes(broken)
    consumer = await consume(logs.brokers[0])
    consumer.assign([T0])
    found: list[int] = []
    with pytest.raises(BadRecords, match="t-0: the batch at offset 10"):
        async for record_batch in consumer.arrow():
            found += record_batch.column("offset").to_pylist()
    assert found == list(range(10))
    assert await consumer.position(T0) == 10
    consumer.seek(T0, 20)
    fill(logs, 0, 1)
    async for record_batch in consumer.arrow():
        assert record_batch.column("offset").to_pylist() == list(range(20, 30))
        break


async def test_columns_are_not_deserialized(fake: Fake, consume: Open) -> None:
    logs = FakeLogs(await fake())
    consumer = await consume(logs.brokers[0], value_deserializer=bytes.decode)
    consumer.assign([T0])
    with pytest.raises(ConsumerMisuse, match="deserializer"):
        await anext(consumer.arrow())
