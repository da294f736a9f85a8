"""Records as columns, by the native kernel and by its twin: what goes in comes out, in pieces or at once, or not."""

import threading
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.records import batch, columnar
from klamm.records.batch import CorruptBatch
from klamm.records.columnar import Arrays
from klamm.records.record import Record, encode_batch
from support.tools import unavailable

MAX_INT64 = (1 << 63) - 1


@pytest.fixture(params=["native", "pure"], scope="module")
def table_type(request: pytest.FixtureRequest) -> Any:
    if request.param == "pure":
        return columnar.Table
    try:
        from klamm.records._native import kernel
    except ImportError:
        unavailable("the native kernel is not built")
    return kernel.Table


def payload_of(records: Sequence[Record]) -> bytes:
    return encode_batch(records)[batch.header_bytes :] if records else b""


def add(table: Any, records: Sequence[Record], payload: Any = None, **given: Any) -> tuple[int, int, int]:
    """All records, as the batch says them that `encode_batch` makes, unless something else is given."""
    options = {
        "base_offset": records[0].offset if records else 0,
        "last_delta": max(len(records) - 1, 0),
        "base_timestamp": records[0].timestamp if records else 0,
        "append_time": None,
        "topic": b"t",
        "partition": 3,
        "start": 0,
        "limit": 1 << 40,
    }
    count = given.pop("count", len(records))
    found: tuple[int, int, int] = table.add(
        payload_of(records) if payload is None else payload, count, **{**options, **given}
    )
    return found


def bits(data: bytearray, count: int) -> list[bool]:
    assert len(data) == (count + 7) // 8
    return [bool(data[i // 8] >> i % 8 & 1) for i in range(count)]


def fields(validity: bytearray | None, bounds: bytearray, data: bytearray, rows: int) -> list[bytes | None]:
    ends = array("i", bytes(bounds))
    assert (len(ends), ends[0], ends[-1]) == (rows + 1, 0, len(data))
    there = [True] * rows if validity is None else bits(validity, rows)
    return [bytes(data[ends[i] : ends[i + 1]]) if there[i] else None for i in range(rows)]


def rows_of(found: Arrays, headers: bool = False) -> list[tuple[Any, ...]]:
    """(topic, partition, offset, timestamp in us, timestamp type, key, value, headers) of each row."""
    assert type(found) is Arrays
    rows = found.rows
    keys = fields(found.key_validity, found.key_bounds, found.key_data, rows)
    values = fields(found.value_validity, found.value_bounds, found.value_data, rows)
    assert (found.key_nulls, found.value_nulls) == (keys.count(None), values.count(None))
    lists: list[Any] = [None] * rows
    if headers:
        names = fields(None, found.header_key_bounds, found.header_key_data, found.headers)
        contents = fields(
            found.header_value_validity, found.header_value_bounds, found.header_value_data, found.headers
        )
        assert found.header_value_nulls == contents.count(None)
        ends, there = array("i", bytes(found.headers_bounds)), bits(found.headers_validity, rows)
        pairs = [((name or b"").decode(), content) for name, content in zip(names, contents, strict=True)]
        lists = [tuple(pairs[ends[i] : ends[i + 1]]) if there[i] else None for i in range(rows)]
        assert found.headers_nulls == lists.count(None)
    else:
        assert not any(found[found._fields.index("headers_validity") :])
        assert (found.headers, found.headers_nulls, found.header_value_nulls) == (0, 0, 0)
    return list(
        zip(
            fields(None, found.topic_bounds, found.topic_data, rows),
            array("i", bytes(found.partitions)),
            array("q", bytes(found.offsets)),
            array("q", bytes(found.timestamps)),
            array("i", bytes(found.timestamp_types)),
            keys,
            values,
            lists,
            strict=True,
        )
    )


def expected(records: Sequence[Record], *, headers: bool = False, topic: bytes = b"t", partition: int = 3) -> list[Any]:
    return [
        (topic, partition, offset, time * 1000, 0, key, value, (given or None) if headers else None)
        for offset, time, key, value, given in records
    ]


blobs = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=4), blobs), max_size=3).map(tuple)
drafts = st.builds(Record, st.just(0), st.integers(-1, 1 << 42), blobs, blobs, headers)
logs = st.lists(st.lists(drafts, min_size=1, max_size=12), max_size=4)


def placed(lists: list[list[Record]]) -> list[list[Record]]:
    offset, log = 100, []
    for records in lists:
        log.append([record._replace(offset=offset + i) for i, record in enumerate(records)])
        offset += len(records) + 1
    return log


@settings(deadline=None, max_examples=100)
@given(logs, st.booleans())
def test_rows_are_the_records_of_all_batches_in_order(
    table_type: Any, lists: list[list[Record]], with_headers: bool
) -> None:
    log = placed(lists)
    table = table_type(headers=with_headers)
    for _ in range(2):  # a table is as good as new when all was taken
        for number, records in enumerate(log):
            payload = payload_of(records)
            found = add(table, records, topic=b"topic %d" % number, partition=number)
            assert found == (len(records), len(payload), records[-1].offset + 1)
        assert table.rows == sum(map(len, log))
        rows = rows_of(table.take(), with_headers)
        assert rows == [
            row
            for number, records in enumerate(log)
            for row in expected(records, headers=with_headers, topic=b"topic %d" % number, partition=number)
        ]
        assert (table.rows, table.size) == (0, 0)


@settings(deadline=None, max_examples=100)
@given(logs, st.booleans(), st.integers(1, 9), st.integers(95, 120))
def test_a_payload_can_be_added_in_pieces_and_from_an_offset_on(
    table_type: Any, lists: list[list[Record]], with_headers: bool, limit: int, start: int
) -> None:
    log = placed(lists)
    table = table_type(headers=with_headers)
    rows: list[Any] = []
    for records in log:
        payload, left, at = memoryview(payload_of(records)), len(records), start
        while left:
            walked, size, at = add(table, records, payload, count=left, start=at, limit=limit - table.rows)
            assert walked > 0
            payload, left = payload[size:], left - walked
            if table.rows == limit:
                rows += rows_of(table.take(), with_headers)
        assert at == records[-1].offset + 1
    rows += rows_of(table.take(), with_headers)
    seen = [record for records in log for record in records if record.offset >= start]
    assert rows == expected(seen, headers=with_headers)


def test_nothing_gives_no_rows(table_type: Any) -> None:
    for with_headers in (False, True):
        table = table_type(headers=with_headers)
        assert rows_of(table.take(), with_headers) == []
        assert add(table, [], start=7) == (0, 0, 7)
        records = [Record(0, 1, b"k", b"v")]
        assert add(table, records, limit=0, start=7) == (0, 0, 7)
        assert add(table, records, start=1) == (1, len(payload_of(records)), 1)
        assert rows_of(table.take(), with_headers) == []


def test_the_size_counts_keys_values_and_headers(table_type: Any) -> None:
    table = table_type(headers=True)
    records = [Record(0, 1, b"key", b"value", (("name", b"content"), ("n", None))), Record(1, 1, None, None)]
    add(table, records)
    assert table.size == 3 + 5 + 4 + 7 + 1
    table = table_type()
    add(table, records)
    assert table.size == 3 + 5


def test_times_are_microseconds_of_the_record_or_of_the_append(table_type: Any) -> None:
    table = table_type()
    records = [Record(0, 1_700_000_000_123, None, b""), Record(1, -1, None, b"")]
    add(table, records)
    add(table, records, append_time=1_800_000_000_456)
    found = rows_of(table.take())
    assert [row[3:5] for row in found] == [
        (1_700_000_000_123_000, 0),
        (-1_000, 0),
        (1_800_000_000_456_000, 1),
        (1_800_000_000_456_000, 1),
    ]


def test_times_that_microseconds_cannot_tell_are_the_outermost(table_type: Any) -> None:
    table = table_type()
    for time in (MAX_INT64, MAX_INT64 // 1000 + 1, MAX_INT64 // 1000, -MAX_INT64 - 1, -(MAX_INT64 // 1000) - 1):
        add(table, [Record(0, 0, None, None)], base_timestamp=time)
    found = array("q", bytes(table.take().timestamps))
    most = MAX_INT64 // 1000 * 1000
    assert found.tolist() == [MAX_INT64, MAX_INT64, most, -MAX_INT64 - 1, -MAX_INT64 - 1]


@pytest.mark.parametrize("with_headers", [False, True])
def test_what_is_damaged_leaves_the_table_as_it_was(table_type: Any, with_headers: bool) -> None:
    table = table_type(headers=with_headers)
    records = [Record(i, 5, b"k%d" % i, None if i % 3 else b"v", (("h", b"x"),) * (i % 2)) for i in range(13)]
    payload = payload_of(records)
    add(table, records)
    before = table.size
    for damaged, options in (
        (payload[:-1], {}),
        (payload + b"\0", {}),
        (payload[:30] + b"\xff" * 20 + payload[50:], {}),
        (payload, {"last_delta": 5}),
        (payload, {"count": 12}),
        (payload, {"count": 14}),
        (payload, {"base_offset": -1}),
        (payload, {"base_timestamp": MAX_INT64 - 1, "append_time": None, "base_offset": MAX_INT64 - 5}),
        (payload[:-1] + b"\x02", {}),
    ):
        with pytest.raises(CorruptBatch):
            add(table, records, damaged, **options)
        assert (table.rows, table.size) == (13, before)
    add(table, records)
    assert rows_of(table.take(), with_headers) == expected(records * 2, headers=with_headers)


def test_damage_behind_the_limit_is_found_when_it_is_reached(table_type: Any) -> None:
    table = table_type()
    records = [Record(i, 5, None, b"value") for i in range(4)]
    payload = payload_of(records)[:-3]
    walked, size, at = add(table, records, payload, limit=3)
    assert (walked, at, table.rows) == (3, 3, 3)
    with pytest.raises(CorruptBatch):
        add(table, records, payload[size:], count=1, start=at)
    assert rows_of(table.take()) == expected(records[:3])


@pytest.mark.parametrize(
    "name",
    [b"\xff", b"\x80", b"a\xc3", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
     b"\xf0\x80\x80\xaf", b"\xe2\x82", b"\xf5\x80\x80\x80", b"\xe2\x28\xa1"],
)  # fmt: skip
def test_header_keys_have_to_be_text_where_headers_are_read(table_type: Any, name: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        name.decode()
    sound = payload_of([Record(0, 0, None, None, (("x" * len(name), b"1"),))])
    payload = sound.replace(b"x" * len(name), name)
    one = [Record(0, 0, None, None)]
    with pytest.raises(CorruptBatch):
        add(table_type(headers=True), one, payload)
    assert add(table_type(), one, payload)[0] == 1


def test_header_keys_can_be_any_text(table_type: Any) -> None:
    text = "aé\u07ff\u0800€\ud7ff\ue000\uffff\U00010000😀\U0010ffff"
    records = [Record(0, 0, None, None, (*((letter, None) for letter in text), (text, b""), ("", None)))]
    table = table_type(headers=True)
    add(table, records)
    assert rows_of(table.take(), True) == expected(records, headers=True)


def test_headers_are_checked_even_if_nobody_reads_them(table_type: Any) -> None:
    for payload in (b"\x0e\x00\x00\x00\x01\x01\x00\x00", b"\x0c\x00\x00\x00\x01\x01\x02"):
        for with_headers in (False, True):
            for start in (0, 1):
                with pytest.raises(CorruptBatch):
                    add(table_type(headers=with_headers), [Record(0, 0, None, None)], payload, start=start)


def test_columns_grow_with_what_comes(table_type: Any) -> None:
    table = table_type()
    records = [Record(i, i, b"%d" % i * (i % 7), bytes(i * 5)) for i in range(100)]
    for _ in range(20):
        add(table, records, topic=b"a topic")
    assert rows_of(table.take()) == expected(records * 20, topic=b"a topic")


def test_any_contiguous_buffer_is_read(table_type: Any) -> None:
    records = [Record(0, 1, b"k", b"v"), Record(1, 1, None, None)]
    payload = payload_of(records)
    table = table_type()
    for data in (bytearray(payload), memoryview(b"x" + payload + b"y")[1:-1]):
        assert add(table, records, data) == (2, len(payload), 2)
    with pytest.raises(TypeError):
        table.add("text", 1)


def test_what_was_taken_is_nobody_elses(table_type: Any) -> None:
    table = table_type()
    add(table, [Record(0, 1, b"k", b"first")])
    first = table.take()
    add(table, [Record(0, 1, b"k", b"other")])
    second = table.take()
    assert (bytes(first.value_data), bytes(second.value_data)) == (b"first", b"other")


def test_memory_comes_back_only_when_nobody_has_it(table_type: Any) -> None:
    table, kept = table_type(), []
    for number in range(50):
        records = [Record(i, number, b"%d" % number * i, b"%d/%d" % (number, i)) for i in range(number % 7 + 1)]
        add(table, records)
        found = table.take()
        if number % 3:
            kept.append((memoryview(found.value_data), bytes(found.value_data), found if number % 2 else None))
        assert rows_of(found) == expected(records)
        del found
    for view, before, _ in kept:
        assert view == before


def test_a_payload_that_changes_meanwhile_gives_nonsense_at_most() -> None:
    """The native one lets go of the interpreter lock. What comes out may be wrong; nothing else may happen."""
    try:
        from klamm.records._native import kernel
    except ImportError:
        unavailable("the native kernel is not built")
    records = [Record(i, 1, b"key", b"v" * 20, (("name", b"x"), ("n", None))) for i in range(2_000)]
    sound = payload_of(records)
    payload = bytearray(sound)
    over = threading.Event()

    def change() -> None:
        at = 0
        while not over.is_set():
            payload[at] = (payload[at] + 37) & 0xFF
            at = (at + 7919) % len(payload)
            if at % 50 == 0:
                payload[:] = sound

    thread = threading.Thread(target=change)
    thread.start()
    try:
        table = kernel.Table(headers=True)
        for _ in range(300):
            try:
                add(table, records, payload)
            except CorruptBatch:
                pass
            found = table.take()
            ends = array("i", bytes(found.header_key_bounds))
            assert ends[-1] == len(found.header_key_data)
    finally:
        over.set()
        thread.join()


# Whole batches, many in one call.


def some_batches(count: int, per_batch: int, **given: Any) -> list[bytes]:
    made = []
    for number in range(count):
        records = [Record(0, 1000 + n, b"k%d" % n, b"v%d.%d" % (number, n)) for n in range(per_batch)]
        data = bytearray(encode_batch(records, **given))
        batch.assign(data, 0, number * per_batch, 7 + number)
        made.append(bytes(data))
    return made


def add_fetched(table: Any, data: bytes, pos: int = 0, **given: Any) -> tuple[int, int, int]:
    options = {"topic": b"t", "partition": 3, "start": 0, "max_rows": 1 << 20, "max_bytes": 1 << 30}
    found: tuple[int, int, int] = table.add_fetched(data, pos, **{**options, **given})
    return found


def test_many_batches_are_added_in_one_call_as_one_by_one(table_type: Any) -> None:
    made = some_batches(5, 4)
    table, other = table_type(), table_type()
    assert add_fetched(table, b"".join(made), start=6) == (sum(map(len, made)), 20, 11)
    for number, data in enumerate(made):
        header = batch.read_header(data)
        other.add(
            data[batch.header_bytes :],
            4,
            base_offset=number * 4,
            last_delta=3,
            base_timestamp=header.base_timestamp,
            append_time=None,
            topic=b"t",
            partition=3,
            start=6,
            limit=4,
        )
    assert (table.rows, table.size) == (other.rows, other.size) == (14, other.size)
    assert table.take() == other.take()


def test_what_does_not_fit_is_left_for_the_next_call(table_type: Any) -> None:
    made = some_batches(5, 4)
    data, size = b"".join(made), len(made[0])
    table = table_type()
    assert add_fetched(table, data, max_rows=10) == (2 * size, 8, 8)
    assert add_fetched(table, data, 2 * size, start=8, max_rows=10) == (2 * size, 8, -1)
    assert table.rows == 8
    assert add_fetched(table, data, 2 * size, start=8, max_bytes=table.size + 1) == (3 * size, 12, 9)
    assert add_fetched(table, data, 3 * size, start=12, max_bytes=table.size) == (3 * size, 12, -1)
    assert add_fetched(table, data, 5 * size, start=20) == (5 * size, 20, -1)
    assert add_fetched(table, data, -1, start=20) == (-1, 20, -1)
    assert table.rows == 12


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def miscounted(data: bytes) -> bytes:
    """Sound from outside, and one record too many inside."""
    header = batch.read_header(data)
    return batch.seal(header._replace(record_count=3), data[batch.header_bytes :])


@pytest.mark.parametrize(
    "spoil", [damaged, miscounted, lambda data: data[:-1], lambda data: data[:60], lambda data: bytes(16) + data[16:]]
)
def test_a_batch_that_takes_a_closer_look_ends_the_call(table_type: Any, spoil: Any) -> None:
    made = some_batches(3, 4)
    table = table_type()
    assert add_fetched(table, made[0] + spoil(made[1])) == (len(made[0]), 4, 7)
    assert table.rows == 4
    assert add_fetched(table, made[1], start=4) == (len(made[1]), 8, 8), "nothing of it is left behind"
    assert list(array("q", bytes(table.take().offsets))) == list(range(8))


def test_a_batch_before_the_start_is_passed_by(table_type: Any) -> None:
    made = some_batches(3, 4)
    table = table_type()
    assert add_fetched(table, made[0] + made[1], start=8) == (2 * len(made[0]), 8, -1)
    assert table.rows == 0
