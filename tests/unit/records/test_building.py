"""The builder of batches and the spreading of records over partitions: the native ones and their pure twins."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.records import building
from klamm.records.decoding import Record, decode_payload
from klamm.records.encoding import encode_payload
from support.tools import unavailable

ROOM = 1 << 20
KNOWN_HASHES = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}

texts = st.text(max_size=6)
fields = st.none() | st.binary(max_size=150)
headers = st.lists(st.tuples(texts, fields), max_size=3).map(tuple)
times = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 1000)
rows = st.lists(st.tuples(times, fields, fields, headers), max_size=30)


def native() -> Any:
    try:
        from klamm.records._native import kernel
    except ImportError:
        unavailable("the native kernel is not built")
    return kernel


@pytest.fixture(params=["native", "pure"], scope="module")
def twin(request: pytest.FixtureRequest) -> Any:
    if request.param == "native":
        return native()
    return SimpleNamespace(Builder=building.Builder, spread=building.spread, murmur2=building.murmur2)


def state(builder: Any) -> tuple[object, ...]:
    return builder.count, builder.size, builder.base_timestamp, builder.max_timestamp, builder.payload()


def records_of(builder: Any) -> list[Record]:
    return decode_payload(
        builder.payload(),
        builder.count,
        base_offset=0,
        last_delta=max(0, builder.count - 1),
        base_timestamp=builder.base_timestamp,
        append_time=None,
    )


def test_a_builder_holds_what_encoding_the_same_records_at_once_gives(twin: Any) -> None:
    records = [
        Record(-1, 5, b"k", b"v", (("h", b"x"), ("n", None))),
        Record(-1, 3, None, b""),
        Record(-1, 9, b"", None),
    ]
    builder = twin.Builder()
    numbers = [builder.append(r.timestamp, r.key, r.value, r.headers, ROOM) for r in records]
    assert numbers == [0, 1, 2]
    assert builder.payload() == encode_payload(records, 5)
    assert (builder.base_timestamp, builder.max_timestamp) == (5, 9)


def test_a_payload_can_leave_room_for_a_header(twin: Any) -> None:
    builder = twin.Builder()
    assert builder.payload_behind(3) == bytearray(3)
    builder.append(1, b"k", b"v", (), ROOM)
    assert builder.payload_behind(61) == bytearray(61) + builder.payload()
    for room in (-1, 1 << 40):
        with pytest.raises(ValueError):
            builder.payload_behind(room)


def test_what_has_no_room_changes_nothing(twin: Any) -> None:
    builder = twin.Builder()
    assert builder.append(1, None, b"x" * 20, (), 20) == -1
    assert state(builder) == (0, 0, -1, -1, b"")
    assert builder.append(1, None, b"x" * 20, (), 27) == 0
    before = state(builder)
    assert before[1] == 27
    assert builder.append(1, None, b"", (), 33) == -1
    assert state(builder) == before


@pytest.mark.parametrize(
    "row",
    [
        (1, None, "text", ()),
        (1, "text", None, ()),
        (1, 5, None, ()),
        ("1", None, None, ()),
        (1 << 63, None, None, ()),
        (-(1 << 63), None, None, ()),  # too far from the record before it
        (1, None, None, (("\ud800", b""),)),
        (1, None, None, ((b"name", b""),)),
        (1, None, None, (("name",),)),
        (1, None, None, 5),
    ],
)
def test_what_is_no_record_is_refused_and_changes_nothing(twin: Any, row: Any) -> None:
    builder = twin.Builder()
    builder.append(7, b"k", b"v", (), ROOM)
    before = state(builder)
    with pytest.raises((TypeError, ValueError, AttributeError, OverflowError)):
        builder.append(*row, ROOM)
    assert state(builder) == before


def test_keys_and_values_may_be_any_bytes(twin: Any) -> None:
    builder = twin.Builder()
    builder.append(0, bytearray(b"key"), memoryview(b"-value-")[1:-1], None, ROOM)
    assert records_of(builder) == [Record(0, 0, b"key", b"value")]


def test_columns_are_taken_as_far_as_there_is_room(twin: Any) -> None:
    values, keys = [b"%d" % n for n in range(100)], [b"k"] * 100
    first, second = twin.Builder(), twin.Builder()
    end = first.extend(values, keys, 12, None, 0, 100, 300)
    assert 0 < end < 100 and first.size <= 300
    assert second.extend(tuple(values), None, list(range(100)), [(("h", b""),)] * 100, end, 100, ROOM) == 100
    assert [record.value for record in records_of(first) + records_of(second)] == values
    assert {record.timestamp for record in records_of(first)} == {12}
    assert [record.timestamp for record in records_of(second)] == list(range(end, 100))
    assert {record.headers for record in records_of(second)} == {(("h", b""),)}


@pytest.mark.parametrize("columns", [(iter(()), None, 0, None), ([b""], b"k", 0, None), ([b""], None, "0", None)])
def test_columns_are_lists_and_tuples(columns: Any) -> None:
    with pytest.raises(TypeError):
        native().Builder().extend(*columns, 0, 1, ROOM)


def test_a_column_that_is_too_short_is_refused_where_it_ends(twin: Any) -> None:
    builder = twin.Builder()
    with pytest.raises(IndexError):
        builder.extend([b"1", b"2"], [b"k"], 0, None, 0, 2, ROOM)
    assert builder.count == 1


def test_records_are_spread_by_their_keys(twin: Any) -> None:
    keys = [b"key-%d" % n for n in range(200)]
    builders = [twin.Builder() for _ in range(7)]
    end, _, total = twin.spread(builders, keys, keys, 0, None, None, 0, 200, ROOM)
    assert end == 200
    assert total == sum(builder.size for builder in builders)
    for partition, builder in enumerate(builders):
        mine = [key for key in keys if (building.murmur2(key) & 0x7FFFFFFF) % 7 == partition]
        assert [record.key for record in records_of(builder)] == mine


def test_spreading_ends_at_a_builder_that_is_full_or_missing_and_at_a_record_without_a_key(twin: Any) -> None:
    builders: list[Any] = [twin.Builder(), None]
    assert twin.spread(builders, [b"a", b"b", b"c"], None, 0, None, [0, 0, 1], 0, 3, ROOM)[:2] == (2, 1)
    assert twin.spread(builders, [b"x" * 90], None, 0, None, [0], 0, 1, 50) == (0, 0, 0)
    assert twin.spread(builders, [b"a"], [None], 0, None, None, 0, 1, ROOM) == (0, -1, 0)
    with pytest.raises(IndexError):
        twin.spread(builders, [b"a"], None, 0, None, [2], 0, 1, ROOM)


def test_columns_end_at_what_is_no_record(twin: Any) -> None:
    builder = twin.Builder()
    assert builder.extend([b"1", b"2", "text", b"4"], None, 0, None, 0, 4, ROOM) == 2
    assert builder.extend([b"1"], None, ["now"], None, 0, 1, ROOM) == 0
    assert builder.count == 2
    builders = [twin.Builder()]
    found = twin.spread(builders, [b"1", 2], [b"k", b"k"], 0, None, None, 0, 2, ROOM)
    assert found == (1, 0, builders[0].size)
    assert twin.spread(builders, [b"1"], ["text"], 0, None, None, 0, 1, ROOM) == (0, -1, 0)


@given(rows, st.integers(-100, 400))
def test_the_twins_build_the_same(rows: list[Any], room: int) -> None:
    one, other = native().Builder(), building.Builder()
    for row in rows:
        answers = []
        for builder in (one, other):
            try:
                answers.append(builder.append(*row, room))
            except (OverflowError, UnicodeEncodeError) as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
    assert state(one) == state(other)


@given(st.lists(fields, max_size=40), st.data())
def test_the_twins_spread_the_same(keys: list[bytes | None], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    partitions = data.draw(st.none() | st.lists(st.integers(0, count - 1), min_size=len(keys), max_size=len(keys)))
    room = data.draw(st.integers(-100, 500))
    found = []
    for twin in (native(), building):
        builders = [twin.Builder() for _ in range(count)]
        answer = twin.spread(builders, keys, keys, 3, None, partitions, 0, len(keys), room)
        found.append((answer, [state(builder) for builder in builders]))
    assert found[0] == found[1]


@pytest.mark.parametrize("data", KNOWN_HASHES)
def test_the_hash_is_the_one_of_java(twin: Any, data: bytes) -> None:
    assert twin.murmur2(data) == KNOWN_HASHES[data] & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_the_twins_hash_the_same(data: bytes) -> None:
    assert native().murmur2(data) == building.murmur2(data) == native().murmur2(bytearray(data))


def test_no_reference_is_lost_or_kept() -> None:
    kernel = native()
    value, key, header = b"value of its own", b"key of its own", ("name of its own", b"content")
    odd = memoryview(bytearray(b"odd"))
    before = [sys.getrefcount(each) for each in (value, key, header, odd)]
    for _ in range(100):
        builder = kernel.Builder()
        builder.append(1, key, value, (header,), ROOM)
        builder.append(1, odd, value, [header], 10)
        with pytest.raises(TypeError):
            builder.append(1, key, 5, (header,), ROOM)
        with pytest.raises(TypeError):
            builder.append(1, key, value, (header, ("name", 5)), ROOM)
        builder.extend([value, odd, 5], [key, key, key], 1, [(header,)] * 3, 0, 3, ROOM)
        kernel.spread([builder, None], [value, 5], [key, key], 1, None, [0, 0], 0, 2, ROOM)
        kernel.spread([builder, None], [value], [5], 1, None, None, 0, 1, ROOM)
        kernel.murmur2(odd)
        builder.payload()
        builder.payload_behind(61)
    del builder
    assert [sys.getrefcount(each) for each in (value, key, header, odd)] == before
    odd.release()  # nobody holds on to it
