"""The native kernel and its pure twins: the same tests for both, then one against the other on any bytes."""

import gc
import importlib.util
import mmap
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.records import batch, consuming, decoding, encoding
from klamm.records import filter as pure_filter
from klamm.records.batch import CorruptBatch
from klamm.records.record import (
    ControlType,
    EndMarker,
    Record,
    decode_records,
    encode_batch,
    encode_end_marker,
)
from support.tools import unavailable

FUZZ_CASES = 3_000
SEED = bytes(range(16))
FUNCTIONS = (
    "KeyMap",
    "add_keys",
    "filter_records",
    "keyless",
    "decode_payload",
    "decode_columns",
    "decode_consumed",
    "decode_fetched",
    "measure_fetched",
    "encode_payload",
)


def native_module() -> ModuleType:
    try:
        from klamm.records._native import kernel
    except ImportError:
        unavailable("the native kernel is not built")
    return kernel


@pytest.fixture(params=["native", "pure"], scope="module")
def kernel(request: pytest.FixtureRequest) -> Any:
    if request.param == "native":
        return native_module()
    parts = {**vars(pure_filter), **vars(decoding), **vars(consuming), **vars(encoding)}
    return SimpleNamespace(**{name: parts[name] for name in FUNCTIONS})


def payload_of(records: Sequence[Record]) -> bytes:
    return encode_batch(records)[batch.header_bytes :] if records else b""


def fields(records: Sequence[Record], base_offset: int = 0) -> dict[str, int]:
    return {"base_offset": base_offset, "last_delta": max(len(records) - 1, 0)}


def key_map(kernel: Any, keys: int = 1000) -> Any:
    return kernel.KeyMap(keys * kernel.KeyMap.bytes_per_key, SEED)


def rows(*rows: tuple[bytes | None, bytes | None]) -> list[Record]:
    return [Record(i, 1_000 + i, key, value) for i, (key, value) in enumerate(rows)]


# The map.


def test_a_map_knows_the_highest_offset_of_each_key(kernel: Any) -> None:
    keys = key_map(kernel)
    assert keys.get(b"a") == -1
    assert keys.put(b"a", 0)
    assert keys.put(b"", 7)
    assert keys.put(b"a", 5)
    assert keys.put(b"a", 3)
    assert (keys.get(b"a"), keys.get(b""), keys.get(b"\0"), len(keys)) == (5, 7, -1, 2)
    keys.clear()
    assert (keys.get(b"a"), len(keys), keys.full) == (-1, 0, False)


def test_a_full_map_takes_newer_offsets_but_no_new_keys(kernel: Any) -> None:
    keys = key_map(kernel, 3)
    assert keys.capacity == 3
    assert [keys.put(b"%d" % i, i) for i in range(5)] == [True, True, True, False, False]
    assert keys.full
    assert keys.put(b"1", 9)
    assert [keys.get(b"%d" % i) for i in range(5)] == [0, 9, 2, -1, -1]


@pytest.mark.parametrize("count", [1, 2, 1_000, 30_000])
def test_a_map_holds_as_many_keys_as_it_says(kernel: Any, count: int) -> None:
    keys = key_map(kernel, count)
    for i in range(count):
        assert not keys.full
        assert keys.put(b"key %d" % i, i)
    assert keys.full
    assert not keys.put(b"one more", 0)
    assert len(keys) == keys.capacity == count
    assert all(keys.get(b"key %d" % i) == i for i in range(count))
    assert keys.get(b"one more") == -1
    keys.clear()
    assert keys.put(b"one more", 0)


def test_a_map_grows_within_its_memory() -> None:
    """Native: a small table for few keys, and never more than the bound, also while the old table is there."""
    native = native_module()
    memory = 64 << 20
    before = resident_bytes()
    keys = native.KeyMap(memory, SEED)
    for i in range(keys.capacity // 100):
        keys.put(i.to_bytes(8, "big"), i)
    few = resident_bytes() - before
    assert few < memory // 8
    for i in range(keys.capacity // 10):
        keys.put(i.to_bytes(8, "big"), i)
    assert resident_bytes() - before <= memory + (4 << 20)
    assert all(keys.get(i.to_bytes(8, "big")) == i for i in range(0, keys.capacity // 10, 97))


def resident_bytes() -> int:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("only Linux tells how much memory is in use")
    gc.collect()
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_cannot_be_a_map_or_an_offset_is_refused(kernel: Any) -> None:
    for memory, seed in ((kernel.KeyMap.bytes_per_key - 1, SEED), (0, SEED), (-5, SEED), (1 << 20, b"short")):
        with pytest.raises(ValueError):
            kernel.KeyMap(memory, seed)
    with pytest.raises(ValueError):
        key_map(kernel).put(b"key", -1)
    with pytest.raises(TypeError):
        key_map(kernel).put("text", 1)


def test_the_hash_is_siphash_2_4_with_128_bits() -> None:
    """Vectors of its authors."""
    fingerprint = native_module().fingerprint
    assert fingerprint(SEED, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert fingerprint(SEED, b"\0").hex() == "da87c1d86b99af44347659119b22fc45"
    assert fingerprint(SEED, bytes(range(16))) != fingerprint(bytes(16), bytes(range(16)))


# Compaction.


def test_the_last_record_of_each_key_survives_byte_for_byte(kernel: Any) -> None:
    records = rows((b"a", b"1"), (b"b", b"1"), (None, b"no key"), (b"a", b"2"), (b"b", None))
    records[3] = records[3]._replace(headers=(("h", b"x"),))
    payload = payload_of(records)
    keys = key_map(kernel)
    assert kernel.add_keys(keys, payload, 5, **fields(records, 100)) == 105
    found = kernel.filter_records(keys, payload, 5, **fields(records, 100), end_offset=105)
    assert found == pure_filter.Filtered(found.payload, 2, 1, 1, 4, 4)
    assert type(found.payload) is bytes
    assert payload.endswith(found.payload)  # they are the last two
    kept = kernel.decode_payload(found.payload, 2, **fields(records, 100), base_timestamp=1_000)
    assert kept == [records[3]._replace(offset=103), records[4]._replace(offset=104)]
    assert type(kept[0]) is Record


def test_tombstones_past_their_horizon_go(kernel: Any) -> None:
    records = rows((b"a", b"1"), (b"a", None), (b"b", b"1"), (b"c", None))
    payload = payload_of(records)
    keys = key_map(kernel)
    kernel.add_keys(keys, payload, 4, **fields(records))
    kept = kernel.filter_records(keys, payload, 4, **fields(records), end_offset=4)
    assert (kept.kept, kept.tombstones) == (3, 2)
    gone = kernel.filter_records(keys, payload, 4, **fields(records), end_offset=4, drop_tombstones=True)
    assert (gone.kept, gone.tombstones, gone.max_timestamp_delta, gone.max_timestamp_offset_delta) == (1, 0, 2, 2)
    rest = kernel.filter_records(keys, payload, 4, **fields(records), end_offset=3, drop_tombstones=True)
    assert (rest.kept, rest.tombstones) == (2, 1)  # behind the end of the map's knowledge nothing goes


def test_records_that_the_map_knows_nothing_of_survive(kernel: Any) -> None:
    records = rows((b"a", b"1"), (None, b"2"), (b"a", b"3"))
    payload = payload_of(records)
    everything = kernel.filter_records(key_map(kernel), payload, 3, **fields(records), end_offset=0)
    assert everything == pure_filter.Filtered(payload, 3, 0, 0, 2, 2)
    with_keys = kernel.filter_records(key_map(kernel), payload, 3, **fields(records), end_offset=3)
    assert (with_keys.kept, with_keys.keyless) == (2, 1)


def test_nothing_may_be_left(kernel: Any) -> None:
    records = rows((b"a", b"1"), (b"b", b"1"))
    keys = key_map(kernel)
    keys.put(b"a", 10)
    keys.put(b"b", 10)
    found = kernel.filter_records(keys, payload_of(records), 2, **fields(records), end_offset=11)
    assert found == pure_filter.Filtered(b"", 0, 0, 0, 0, -1)
    assert kernel.filter_records(keys, b"", 0, base_offset=5, last_delta=3, end_offset=11).kept == 0
    assert kernel.add_keys(keys, b"", 0, base_offset=5, last_delta=3) == 9


def test_keys_are_added_from_an_offset_on_and_until_the_map_is_full(kernel: Any) -> None:
    records = rows((b"a", b""), (b"b", b""), (b"a", b""), (None, b""), (b"c", b""), (b"b", b""))
    payload = payload_of(records)
    keys = key_map(kernel, 2)
    assert kernel.add_keys(keys, payload, 6, **fields(records, 50), start_offset=52) == 55  # b has no room
    assert [keys.get(key) for key in (b"a", b"b", b"c")] == [52, -1, 54]
    assert kernel.add_keys(keys, payload[:24], 3, base_offset=60, last_delta=2, start_offset=62) == 63
    assert keys.get(b"a") == 62
    keys.clear()
    assert kernel.add_keys(keys, payload, 6, **fields(records, 50)) == 54  # c has no room
    assert [keys.get(key) for key in (b"a", b"b", b"c")] == [52, 51, -1]


def test_timestamps_move_with_the_base_of_a_delete_horizon(kernel: Any) -> None:
    records = [Record(i, 1_700_000_000_000 + i * 1_000, b"%d" % i, b"v" * i * 9) for i in range(20)]
    payload = payload_of(records)
    horizon = 1_800_000_000_000
    shift = records[0].timestamp - horizon
    options = {**fields(records), "end_offset": 20, "timestamp_shift": shift}
    found = kernel.filter_records(key_map(kernel), payload, 20, **options)
    assert (found.max_timestamp_delta, found.max_timestamp_offset_delta) == (19_000, 19)
    assert kernel.decode_payload(found.payload, 20, **fields(records), base_timestamp=horizon) == records
    back = {**options, "timestamp_shift": -shift}
    assert kernel.filter_records(key_map(kernel), found.payload, 20, **back).payload == payload
    with pytest.raises(CorruptBatch):
        kernel.filter_records(key_map(kernel), payload, 20, **{**options, "timestamp_shift": (1 << 63) - 1})


def test_records_without_a_key_are_named(kernel: Any) -> None:
    records = rows((None, b""), (b"", None), (b"a", b""), (None, None))
    assert kernel.keyless(payload_of(records), 4, 3) == [0, 3]
    assert kernel.keyless(b"", 0, 0) == []


blobs = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=4), blobs), max_size=2).map(tuple)
drafts = st.builds(
    Record, st.just(0), st.integers(-1, 1 << 42), st.sampled_from([None, b"", b"a", b"b", b"c"]), blobs, headers
)
batches = st.lists(st.lists(drafts, min_size=1, max_size=8), min_size=1, max_size=5)


@settings(deadline=None, max_examples=150)
@given(batches, st.integers(0, 1 << 50), st.booleans(), st.integers(-(1 << 42), 1 << 42))
def test_compaction_of_several_batches_is_what_a_dict_says(
    kernel: Any, lists: list[list[Record]], base_offset: int, drop: bool, shift: int
) -> None:
    log: list[list[Record]] = []
    for records in lists:
        log.append([record._replace(offset=base_offset + i) for i, record in enumerate(records)])
        base_offset += len(records)
    last = {record.key: record.offset for records in log for record in records}
    keys = key_map(kernel)
    for records in log:
        kernel.add_keys(keys, payload_of(records), len(records), **fields(records, records[0].offset))
    assert len(keys) == len(last.keys() - {None})
    for records in log:
        header = fields(records, records[0].offset)
        options = {"end_offset": base_offset, "drop_tombstones": drop, "timestamp_shift": shift}
        found = kernel.filter_records(keys, payload_of(records), len(records), **header, **options)
        expected = [record for record in records if record.key is not None and last[record.key] == record.offset]
        if drop:
            expected = [record for record in expected if record.value is not None]
        base_timestamp = records[0].timestamp - shift
        kept = kernel.decode_payload(found.payload, found.kept, **header, base_timestamp=base_timestamp)
        assert kept == expected
        assert found.tombstones == sum(record.value is None for record in expected)
        if expected:
            top = max(expected, key=lambda record: record.timestamp)
            assert found.max_timestamp_delta == top.timestamp - records[0].timestamp
            assert found.max_timestamp_offset_delta == top.offset - records[0].offset


# Decoding.


@settings(deadline=None, max_examples=100)
@given(st.lists(drafts, max_size=12), st.integers(0, 1 << 50), st.none() | st.integers(-1, 1 << 42))
def test_records_and_columns_are_what_was_encoded(
    kernel: Any, drawn: list[Record], base_offset: int, append_time: int | None
) -> None:
    records = [record._replace(offset=base_offset + i) for i, record in enumerate(drawn)]
    payload = payload_of(records)
    base_timestamp = records[0].timestamp if records else 0
    header = {**fields(records, base_offset), "base_timestamp": base_timestamp, "append_time": append_time}
    if append_time is not None:
        records = [record._replace(timestamp=append_time) for record in records]
    assert kernel.decode_payload(payload, len(records), **header) == records
    whole = {**header, "topic": "t", "partition": 3, "leader_epoch": 5, "start": base_offset + 2}
    kind = 0 if append_time is None else 1
    assert kernel.decode_consumed(payload, len(records), **whole) == [
        ("t", 3, offset, timestamp, kind, key, value, headers, 5)
        for offset, timestamp, key, value, headers in records[2:]
    ]
    assert kernel.encode_payload(drawn, base_timestamp) == encoding.encode_payload(drawn, base_timestamp) == payload
    columns = kernel.decode_columns(payload, len(records), **header)
    assert [column.format for column in columns] == ["q"] * 2 + ["i"] * 6
    assert all(column.readonly for column in columns)

    def cut(start: int, length: int) -> bytes | None:
        return None if length < 0 else payload[start : start + length]

    again = [
        Record(offset, at, cut(key, key_bytes), cut(value, value_bytes), decoding.read_headers(payload, start, count))
        for offset, at, key, key_bytes, value, value_bytes, start, count in zip(*columns, strict=True)
    ]
    assert again == records


def fetched(records: Sequence[Record], **options: Any) -> bytes:
    return encode_batch(records, base_offset=records[0].offset, **options)


def test_plain_batches_are_decoded_together_up_to_one_that_is_not(kernel: Any) -> None:
    records = [Record(i, 1_000 + i, None, b"%d" % i, (("h", None),)) for i in range(9)]
    first = fetched(records[:3], leader_epoch=1) + fetched(
        records[3:6], leader_epoch=2, log_append_time=True, transactional=True, producer_id=1, base_sequence=0
    )
    damaged = bytearray(fetched(records[6:]))
    damaged[-1] ^= 1
    marker = encode_end_marker(EndMarker(ControlType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp=0)
    told = [
        ("t", 0, r.offset, r.timestamp if r.offset < 3 else 1_005, int(r.offset >= 3), None, r.value, r.headers, e)
        for r, e in zip(records, (1, 1, 1, 2, 2, 2), strict=False)
    ]
    where = {"topic": "t", "partition": 0}
    for other in (b"", damaged, damaged[:-1], marker, fetched(records[6:], codec=1), b"\0" * 70, b"\xff" * 70):
        data = memoryview(first + bytes(other))
        assert kernel.decode_fetched(data, 0, **where, start=0, limit=99) == (told, len(first))
        assert kernel.decode_fetched(data, 0, **where, start=5, limit=99) == (told[5:], len(first))
        found, after = kernel.decode_fetched(data, 0, **where, start=1, limit=1)
        assert found == told[1:3]
        assert kernel.decode_fetched(data, after, **where, start=1, limit=1) == (told[3:], len(first))
        assert kernel.decode_fetched(data, len(first), **where, start=0, limit=9) == ([], len(first))
    assert kernel.decode_fetched(first, 0, **where, start=6, limit=9) == ([], len(first))
    assert kernel.decode_fetched(first, 0, **where, start=0, limit=0) == ([], 0)
    for pos in (-1, len(first) + 1):
        assert kernel.decode_fetched(first, pos, **where, start=0, limit=9) == ([], pos)


def test_how_far_fetched_bytes_go_is_read_from_headers(kernel: Any) -> None:
    records = [Record(i, 0, None, b"") for i in range(9)]
    first, second = fetched(records[:3], leader_epoch=4), fetched(records[5:], leader_epoch=7, codec=1)
    assert kernel.measure_fetched(b"", 5) == (0, 5, -1)
    assert kernel.measure_fetched(memoryview(first), 0) == (len(first), 3, 4)
    assert kernel.measure_fetched(first + second, 0) == (len(first + second), 9, 7)
    assert kernel.measure_fetched(first + second, 11) == (len(first + second), 11, 7)
    for cut in (1, 60, 61, len(second) - 1):
        assert kernel.measure_fetched(first + second[:cut], 0) == (len(first), 3, 4)
    far = batch.read_header(first)._replace(base_offset=(1 << 63) - 2)
    for bad in (bytes(70), batch.seal(far, b"")):
        with pytest.raises(CorruptBatch):
            kernel.measure_fetched(first + bad, 0)


def test_a_batch_of_the_largest_length_that_there_can_be_is_measured(kernel: Any) -> None:
    """Two gigabytes that nobody has to have: almost all of their pages are never looked at."""
    no_reserve = 0x4000 if sys.platform == "linux" else 0
    size = batch.prefix_bytes + (1 << 31) - 1
    with mmap.mmap(-1, size + 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve) as data:
        data[: batch.prefix_bytes] = struct.pack(">qi", 5, (1 << 31) - 1)
        data[16] = batch.MAGIC
        assert kernel.measure_fetched(data, 0) == (size, 6, 0)


def test_records_that_do_not_add_up_leave_their_batch_to_others(kernel: Any) -> None:
    sound = fetched(rows((b"a", b"1"), (b"b", b"2")))
    header = batch.read_header(sound)
    torn = batch.seal(header._replace(base_offset=2), sound[batch.header_bytes : -1] + b"\x02")
    where = {"topic": "t", "partition": 0, "start": 0, "limit": 9}
    found, after = kernel.decode_fetched(sound + torn, 0, **where)
    assert ([record.offset for record in found], after) == ([0, 1], len(sound))


def test_any_contiguous_buffer_is_read(kernel: Any) -> None:
    records = rows((b"a", b"1"), (b"b", None))
    payload = payload_of(records)
    for data in (bytearray(payload), memoryview(b"x" + payload + b"y")[1:-1], memoryview(bytearray(payload))):
        found = kernel.decode_payload(data, 2, **fields(records), base_timestamp=1_000)
        assert found == records
        assert type(found[0].value) is bytes
        kept = kernel.filter_records(key_map(kernel), data, 2, **fields(records), end_offset=2)
        assert kept.payload == payload
        assert type(kept.payload) is bytes


@pytest.mark.parametrize(
    "payload, count",
    [
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", 1),  # a byte too many behind the last record
        (b"\x0a\x00\x00\x00\x01\x01\x00", 1),  # shorter than its fields
        (b"\x10\x00\x00\x00\x01\x01\x00", 1),  # longer than the payload
        (b"\x01\x00\x00\x00\x01\x01\x00", 1),  # a negative length
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1),  # a key of -2 bytes
        (b"\x0c\x00\x00\x00\x40\x01\x00", 1),  # a key longer than the record
        (b"\x0c\x00\x00\x00\x01\x40\x00", 1),  # a value longer than the record
        (b"\x0c\x00\x00\x00\x01\x02\x00", 1),  # a value that leaves no room for the number of headers
        (b"\x0c\x00\x00\x01\x01\x01\x00", 1),  # an offset delta of -1
        (b"\x0c\x00\x00\x04\x01\x01\x00", 1),  # an offset delta above the last
        (b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 2),  # the same offset twice
        (b"\x0c\x00\x00\x00\x01\x01\x00", 2),  # fewer records than counted
        (b"\x0c\x00\x00\x00\x01\x01\x00", 0),  # more than counted
        (b"\x0c\x00\x00\x00\x01\x01\x00", -1),
        (b"\xff" * 8, 1),  # an endless varint
        (b"\xff\xff\xff\xff\x1f" + bytes(9), 1),  # a varint of 33 bits
        (b"\x20\x00" + b"\xff" * 9 + b"\x02" + b"\x00\x01\x01\x00", 1),  # a varlong of 65 bits
        (b"", 1 << 40),
    ],
)
def test_payloads_that_do_not_add_up_are_corrupt(kernel: Any, payload: bytes, count: int) -> None:
    header = {"base_offset": 0, "last_delta": 1}
    sound = b"\x0c\x00\x00\x00\x01\x01\x00"
    assert kernel.decode_payload(sound, 1, **header, base_timestamp=9) == [Record(0, 9, None, None)]
    for call in (
        lambda: kernel.decode_payload(payload, count, **header, base_timestamp=0),
        lambda: kernel.decode_columns(payload, count, **header, base_timestamp=0),
        lambda: kernel.keyless(payload, count, 1),
        lambda: kernel.add_keys(key_map(kernel), payload, count, **header),
        lambda: kernel.filter_records(key_map(kernel), payload, count, **header, end_offset=9),
    ):
        with pytest.raises(CorruptBatch):
            call()


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0e\x00\x00\x00\x01\x01\x00\x00",  # a byte too many inside
        b"\x0c\x00\x00\x00\x01\x01\x01",  # -1 headers
        b"\x0c\x00\x00\x00\x01\x01\x02",  # a header without bytes
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",  # a header key that is null
        b"\x10\x00\x00\x00\x01\x01\x02\x02\x01",  # a header that ends too early
        b"\x0e\x00\x00\x00\x01\x01\x80\x00",  # no headers, said in two bytes
    ],
)
def test_headers_that_do_not_add_up_are_corrupt_for_those_who_read_them(kernel: Any, payload: bytes) -> None:
    header = {"base_offset": 0, "last_delta": 0}
    for decode in (kernel.decode_payload, kernel.decode_columns):
        with pytest.raises(CorruptBatch):
            decode(payload, 1, **header, base_timestamp=0)
    kept = kernel.filter_records(key_map(kernel), payload, 1, **header, end_offset=0)
    assert kept.payload == payload  # compaction carries them along


def test_header_keys_that_are_no_text_are_found_when_they_are_read(kernel: Any) -> None:
    payload = b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01"
    header = {"base_offset": 0, "last_delta": 0, "base_timestamp": 0}
    with pytest.raises(CorruptBatch):
        kernel.decode_payload(payload, 1, **header)
    columns = kernel.decode_columns(payload, 1, **header)
    with pytest.raises(CorruptBatch):
        decoding.read_headers(payload, columns.header_starts[0], columns.header_counts[0])


def test_offsets_and_timestamps_stay_within_64_bits(kernel: Any) -> None:
    records = [Record(0, 10, b"k", b""), Record(1, 20, b"k", b"")]
    payload = payload_of(records)
    for base_offset in (-1, (1 << 63) - 2):
        header = fields(records, base_offset)
        for call in (
            lambda header=header: kernel.decode_payload(payload, 2, **header, base_timestamp=0),
            lambda header=header: kernel.decode_columns(payload, 2, **header, base_timestamp=0),
            lambda header=header: kernel.add_keys(key_map(kernel), payload, 2, **header),
            lambda header=header: kernel.filter_records(key_map(kernel), payload, 2, **header, end_offset=0),
        ):
            with pytest.raises(CorruptBatch):
                call()
    for decode in (kernel.decode_payload, kernel.decode_columns):
        with pytest.raises(CorruptBatch):
            decode(payload, 2, **fields(records), base_timestamp=(1 << 63) - 5)
    assert kernel.add_keys(key_map(kernel), payload, 2, **fields(records, (1 << 63) - 3)) == (1 << 63) - 1


def test_records_of_any_size_are_encoded(kernel: Any) -> None:
    sizes = [0, 1, 40, 63, 64, 8_190, 8_191, 8_192, 100_000, 3 << 20]
    records = [Record(i, i * i, bytes(size), bytes(sizes[-1 - i])) for i, size in enumerate(sizes)]
    records.append(Record(len(records), -(1 << 62), None, None, tuple(("h" * i, bytes(i)) for i in range(100))))
    payload = kernel.encode_payload(records, -(1 << 61))
    assert type(payload) is bytes
    assert kernel.decode_payload(payload, 11, **fields(records), base_timestamp=-(1 << 61)) == records
    assert kernel.encode_payload([], 0) == b""


def test_lists_and_other_buffers_are_encoded_like_tuples_and_bytes(kernel: Any) -> None:
    loose = [[9, 10, bytearray(b"key"), memoryview(b"value"), [["h", b"x"], ("i", None)]]]
    assert kernel.encode_payload(loose, 10) == payload_of([Record(0, 10, b"key", b"value", (("h", b"x"), ("i", None)))])


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 0, "text", None),  # type: ignore[arg-type]
        Record(0, 0, None, 5),  # type: ignore[arg-type]
        Record(0, 0, None, b"", ((b"bytes", b""),)),  # type: ignore[arg-type]
        Record(0, 0, None, b"", (("no pair",),)),  # type: ignore[arg-type]
        Record(0, 0, None, b"", (("h", "text"),)),  # type: ignore[arg-type]
        Record(0, 0, None, b"", (("\ud800", b""),)),  # no UTF-8
        Record(0, 0, None, b"", None),  # type: ignore[arg-type]
        Record(0, 1.5, None, b""),  # type: ignore[arg-type]
        Record(0, "now", None, b""),  # type: ignore[arg-type]
        Record(0, 1 << 63, None, b""),
        Record(0, -(1 << 63), None, b""),  # too far from the base
        (0, 0, b"", b""),
        b"bytes",
        None,
    ],
)
def test_what_is_no_record_is_not_encoded(kernel: Any, record: Any) -> None:
    sound = Record(0, 0, b"key", b"value")
    with pytest.raises((TypeError, ValueError, OverflowError, AttributeError)):
        kernel.encode_payload([sound, record], 1)
    assert kernel.encode_payload([sound], 1)


# Native only.


def test_on_any_bytes_the_native_kernel_answers_as_its_twin() -> None:
    native_module()
    path = Path(__file__).parents[2] / "fuzz" / "kernel_target.py"
    spec = importlib.util.spec_from_file_location("kernel_target", path)
    assert spec is not None
    assert spec.loader is not None
    target = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(target)
    rng = Random(20_000)
    for _ in range(FUZZ_CASES):
        target.check(target.make_case(rng))


def test_a_map_that_a_bulk_call_works_with_is_nobody_elses() -> None:
    """A map may be handed from thread to thread. While one works with it without the interpreter lock, it refuses."""
    native = native_module()
    records = rows(*((b"%d" % i, b"v" * 30) for i in range(20_000)))
    payload = payload_of(records)
    keys = native.KeyMap(1 << 20, SEED)
    seen = threading.Event()

    def work() -> None:
        while not seen.is_set():
            native.add_keys(keys, payload, len(records), **fields(records))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    for use in (
        lambda: keys.get(b"7"),
        lambda: keys.put(b"7", 1),
        lambda: native.filter_records(keys, b"", 0, **fields([]), end_offset=0),
    ):
        with pytest.raises(RuntimeError, match="another thread"):
            while True:  # sooner or later it is in the middle of a call
                use()
    with pytest.raises(RuntimeError, match="another thread"):
        while True:
            keys.clear()
    seen.set()
    thread.join()
    assert native.add_keys(keys, payload, len(records), **fields(records)) == len(records)
    assert keys.get(b"19999") == 19_999


def test_no_object_is_left_behind() -> None:
    native = native_module()
    records = [Record(i, i << 40, b"key %d" % i, b"value", ((f"header {i}", b"x"), ("", None))) for i in range(50)]
    payload = payload_of(records)
    wrong_header = payload[:-1] + b"\x02"  # the last record has a header that is too long, all else is there
    no_text = payload.replace(b"header 49", b"header \xff\xff")
    keys = key_map(native)

    def calls() -> None:
        for data in (payload, wrong_header, no_text, payload[:-30], payload + b"x"):
            for call in (
                lambda data=data: native.decode_payload(data, 50, **fields(records), base_timestamp=1 << 41),
                lambda data=data: native.decode_columns(data, 50, **fields(records), base_timestamp=0),
                lambda data=data: native.keyless(data, 50, 49),
                lambda: native.encode_payload([*records, Record(0, 0, None, None, (("h",),))], 0),  # type: ignore[arg-type]
                lambda data=data: native.add_keys(keys, data, 50, **fields(records)),
                lambda data=data: native.filter_records(keys, data, 50, **fields(records), end_offset=40),
            ):
                try:
                    call()
                except (CorruptBatch, ValueError):
                    pass
        native.encode_payload(records, 0)

    calls()
    growth = []
    for _ in range(4):  # others in this process may keep something meanwhile; a leak is there each time
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(100):
            calls()
        gc.collect()
        growth.append(sys.getallocatedblocks() - before)
    assert min(growth) < 50, growth  # fewer than one for each turn


def test_no_memory_is_left_behind() -> None:
    native = native_module()
    records = [Record(i, i, b"key", bytes(1_000)) for i in range(1_000)]
    payload = payload_of(records)
    options = {**fields(records), "end_offset": 999, "timestamp_shift": 5}
    settled = 0
    for turn in range(30):
        keys = native.KeyMap(32 << 10, SEED)
        native.add_keys(keys, payload, 1_000, **fields(records))
        for shift in (0, 5):
            native.filter_records(keys, payload, 1_000, **{**options, "timestamp_shift": shift})
            with pytest.raises(CorruptBatch):
                native.filter_records(keys, payload + b"x", 1_000, **{**options, "timestamp_shift": shift})
        if turn == 10:
            settled = resident_bytes()
    assert resident_bytes() - settled < 8 << 20  # one leak of any of these is 20 MB


@pytest.mark.parametrize("wish, expected", [("1", "pure Python"), ("0", "native"), ("", "native")])
def test_the_environment_can_ask_for_the_twins(wish: str, expected: str) -> None:
    native_module()
    code = "import klamm.records.kernel as k; print(k.implementation)"
    environment = {**os.environ, "KLAMM_PURE_PYTHON": wish}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_batches_are_decoded_by_what_was_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    records = rows((b"a", b"1"), (None, None))
    encoded = encode_batch(records)
    for decode in (native_module().decode_payload, decoding.decode_payload):
        monkeypatch.setattr("klamm.records.record.decode_payload", decode)
        assert decode_records(encoded) == records
