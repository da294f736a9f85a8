"""Whole records out of a batch's payload: as tuples, or as columns for whoever takes thousands at a time.

This is the pure twin of the decoding half of `klamm.records._native`; `klamm.records.kernel` picks one of the two, and
everybody imports from there. The arguments are the uncompressed bytes behind a batch's header and fields of that
header. What does not add up to exactly these records raises CorruptBatch, and nothing else does.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from klamm.core.env import Buffer
from klamm.records import batch
from klamm.records.batch import CorruptBatch
from klamm.records.filter import check_base, check_count
from klamm.records.varint import read_varint, read_varlong

_MIN_BODY_BYTES = batch.min_record_bytes - 1  # a record without its own length
_MIN_HEADER_BYTES = 2
_MAX_INT64 = (1 << 63) - 1
_MIN_INT64 = -(1 << 63)

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Columns(NamedTuple):
    """The records of a payload as arrays of the same length: numbers of 64 bits (format q) for offsets and timestamps,
    of 32 bits (format i) for what lies where in the payload. A length of -1 stands for null. `numpy.frombuffer` and
    Arrow take them without a copy."""

    offsets: memoryview
    timestamps: memoryview
    key_starts: memoryview
    key_lengths: memoryview
    value_starts: memoryview
    value_lengths: memoryview
    header_starts: memoryview
    """Behind the number of headers; `read_headers` goes on from there."""
    header_counts: memoryview


def decode_payload(
    payload: Buffer,
    count: int,
    *,
    base_offset: int,
    last_delta: int,
    base_timestamp: int,
    append_time: int | None = None,
) -> list[Record]:
    """All records. `append_time` is the timestamp of each, if the topic counts that of the append."""
    check_base(base_offset, last_delta)
    check_count(len(payload), count, last_delta)
    try:
        return _decode_tuples(bytes(payload), count, base_offset, last_delta, base_timestamp, append_time)
    except IndexError:
        raise CorruptBatch("a record ends too early") from None
    except ValueError as error:  # a varint that is too long, or a header key that is no UTF-8
        raise CorruptBatch(f"a record is malformed: {error}") from None


def _decode_tuples(
    body: bytes, count: int, base_offset: int, last_delta: int, base_timestamp: int, append_time: int | None
) -> list[Record]:
    records: list[Record] = []
    new = tuple.__new__  # the constructor of a NamedTuple costs three times as much
    headers: Headers
    pos = 0
    last = -1
    for _ in range(count):
        length, pos = read_varint(body, pos)
        end = pos + length
        if length < _MIN_BODY_BYTES or end > len(body):
            raise CorruptBatch(f"a record of {length} bytes where {len(body) - pos} are left")
        timestamp_delta, pos = read_varlong(body, pos + 1)  # the byte skipped: attributes, none of which is in use
        offset_delta, pos = read_varint(body, pos)
        key, pos = _read_bytes(body, pos, end)
        value, pos = _read_bytes(body, pos, end)
        if body[pos] == 0:  # most records have no headers
            headers, pos = (), pos + 1
        else:
            header_count, pos = _read_header_count(body, pos, end)
            headers, pos = _read_headers(body, pos, end, header_count)
        if pos != end:
            raise CorruptBatch(f"a record has {end - pos} bytes more than its fields")
        if not last < offset_delta <= last_delta:
            raise CorruptBatch(f"offset delta {offset_delta} after {last}, of {last_delta}")
        last = offset_delta
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not _MIN_INT64 <= timestamp <= _MAX_INT64:
            raise CorruptBatch("a timestamp of more than 64 bits")
        records.append(new(Record, (base_offset + offset_delta, timestamp, key, value, headers)))
    if pos != len(body):
        raise CorruptBatch(f"{len(body) - pos} bytes are left after the last record")
    return records


def _read_bytes(body: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(body, pos)
    if length < 0:
        if length != -1:
            raise CorruptBatch(f"a field of {length} bytes")
        return None, pos
    after = pos + length
    if after > end:
        raise CorruptBatch(f"a field of {length} bytes where {end - pos} are left")
    return body[pos:after], after


def _read_header_count(body: bytes, pos: int, end: int) -> tuple[int, int]:
    count, pos = read_varint(body, pos)
    if not 0 < count * _MIN_HEADER_BYTES <= end - pos:
        raise CorruptBatch(f"{count} headers where {end - pos} bytes are left")
    return count, pos


def _read_headers(body: bytes, pos: int, end: int, count: int) -> tuple[Headers, int]:
    headers = []
    for _ in range(count):
        key, pos = _read_bytes(body, pos, end)
        if key is None:
            raise CorruptBatch("a header without a key")
        value, pos = _read_bytes(body, pos, end)
        headers.append((key.decode(), value))
    return tuple(headers), pos


def decode_columns(
    payload: Buffer,
    count: int,
    *,
    base_offset: int,
    last_delta: int,
    base_timestamp: int,
    append_time: int | None = None,
) -> Columns:
    """Where everything is. Headers are checked for their lengths; whoever reads them finds keys that are no UTF-8."""
    check_base(base_offset, last_delta)
    check_count(len(payload), count, last_delta)
    from array import array

    body = bytes(payload)
    offsets, timestamps = array("q"), array("q")
    places = tuple(array("i") for _ in range(6))
    try:
        pos, last = 0, -1
        for _ in range(count):
            pos, timestamp_delta, offset_delta, *row = locate(body, pos)
            if not last < offset_delta <= last_delta:
                raise CorruptBatch(f"offset delta {offset_delta} after {last}, of {last_delta}")
            last = offset_delta
            offsets.append(base_offset + offset_delta)
            timestamps.append(base_timestamp + timestamp_delta if append_time is None else append_time)
            for column, number in zip(places, row, strict=True):
                column.append(number)
    except IndexError:
        raise CorruptBatch("a record ends too early") from None
    except OverflowError:
        raise CorruptBatch("a timestamp of more than 64 bits") from None
    except ValueError as error:
        raise CorruptBatch(f"a record is malformed: {error}") from None
    if pos != len(body):
        raise CorruptBatch(f"{len(body) - pos} bytes are left after the last record")
    wide = (memoryview(column.tobytes()).cast("q") for column in (offsets, timestamps))
    return Columns(*wide, *(memoryview(column.tobytes()).cast("i") for column in places))


def locate(body: bytes, pos: int) -> tuple[int, ...]:
    """The end of the record at `pos`, its deltas, and its row of the columns from key_starts on."""
    length, pos = read_varint(body, pos)
    end = pos + length
    if length < _MIN_BODY_BYTES or end > len(body):
        raise CorruptBatch(f"a record of {length} bytes where {len(body) - pos} are left")
    timestamp_delta, pos = read_varlong(body, pos + 1)
    offset_delta, pos = read_varint(body, pos)
    key, key_bytes = _locate_bytes(body, pos, end)
    value, value_bytes = _locate_bytes(body, key + max(key_bytes, 0), end)
    pos = value + max(value_bytes, 0)
    headers, header_count = pos + 1, 0
    if body[pos] == 0:
        pos = headers
    else:
        header_count, headers = _read_header_count(body, pos, end)
        pos = headers
        for _ in range(header_count):
            name, name_bytes = _locate_bytes(body, pos, end)
            if name_bytes < 0:
                raise CorruptBatch("a header without a key")
            pos, content_bytes = _locate_bytes(body, name + name_bytes, end)
            pos += max(content_bytes, 0)
    if pos != end:
        raise CorruptBatch(f"a record has {end - pos} bytes more than its fields")
    return end, timestamp_delta, offset_delta, key, key_bytes, value, value_bytes, headers, header_count


def _locate_bytes(body: bytes, pos: int, end: int) -> tuple[int, int]:
    length, pos = read_varint(body, pos)
    if length < -1 or pos + max(length, 0) > end:
        raise CorruptBatch(f"a field of {length} bytes where {end - pos} are left")
    return pos, length


def read_headers(payload: Buffer, start: int, count: int) -> Headers:
    """The headers of one row of Columns."""
    try:
        return _read_headers(bytes(payload), start, len(payload), count)[0]
    except IndexError:
        raise CorruptBatch("a record ends too early") from None
    except ValueError as error:
        raise CorruptBatch(f"a record is malformed: {error}") from None
