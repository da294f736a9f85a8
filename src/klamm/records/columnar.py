"""Records of many batches as the buffers of Arrow's arrays, in the columns of Spark's Kafka source.

This is the pure twin of `Table` in `klamm.records._native`; `klamm.records.kernel` picks one of the two, and everybody
imports from there. The layout of the buffers is Arrow's, but nothing of Arrow is needed to make them, and no Python
object is made for a record (by the native one). `klamm.client.arrow` makes record batches of them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from klamm.core.env import Buffer
from klamm.records import batch
from klamm.records.batch import BatchHeader, CorruptBatch
from klamm.records.checksum import crc32c
from klamm.records.consuming import is_plain
from klamm.records.decoding import Headers, Record, locate, read_headers
from klamm.records.filter import check_base, check_count

MAX_COLUMN_BYTES: Final = (1 << 31) - 1
"""Bounds are numbers of 32 bits."""
_MAX_INT64: Final = (1 << 63) - 1
_MIN_INT64: Final = -(1 << 63)
_int32 = Struct("=i")
_int64 = Struct("=q")


class Arrays(NamedTuple):
    """`*_validity` has a bit for each row that is not null, the lowest bit of a byte first. `*_bounds` are numbers of
    32 bits: where in `*_data` each row begins, and behind them where the last one ends. Numbers are in the machine's
    byte order. What is about headers is empty unless they were asked for: a list for each row, null if there are none,
    and the keys and values of all lists one after another."""

    rows: int
    headers: int
    key_nulls: int
    value_nulls: int
    headers_nulls: int
    header_value_nulls: int
    key_validity: bytearray
    key_bounds: bytearray
    key_data: bytearray
    value_validity: bytearray
    value_bounds: bytearray
    value_data: bytearray
    topic_bounds: bytearray
    topic_data: bytearray
    partitions: bytearray
    """32 bits."""
    offsets: bytearray
    """64 bits, as are `timestamps`."""
    timestamps: bytearray
    """Microseconds since 1970; what is beyond 64 bits of them is the outermost there is."""
    timestamp_types: bytearray
    """32 bits: 0 if the record's timestamp is when it was made, 1 if when it was appended."""
    headers_validity: bytearray
    headers_bounds: bytearray
    header_key_bounds: bytearray
    header_key_data: bytearray
    header_value_validity: bytearray
    header_value_bounds: bytearray
    header_value_data: bytearray


class Table:
    """Records come in by `add`, batch by batch, and leave together by `take`."""

    __slots__ = ("_headers", "_keys", "_lists", "_numbers", "_topics", "_values", "rows", "size")

    rows: int
    size: int
    """Bytes of all keys, values and headers."""

    def __init__(self, *, headers: bool = False) -> None:
        self._headers = headers
        self._start()

    def _start(self) -> None:
        self.rows = self.size = 0
        self._keys, self._values, self._topics = _Bytes(), _Bytes(), _Bytes()
        self._numbers = bytearray(), bytearray(), bytearray(), bytearray()
        self._lists = _Lists()

    def add(
        self,
        payload: Buffer,
        count: int,
        *,
        base_offset: int,
        last_delta: int,
        base_timestamp: int,
        append_time: int | None,
        topic: bytes,
        partition: int,
        start: int,
        limit: int,
    ) -> tuple[int, int, int]:
        """Add the records of a payload from offset `start` on, up to `limit` of them.

        Says how many records it went over, how many bytes they take in the payload, and the offset behind the last of
        them; the rest of the payload can be given to another call. CorruptBatch, and nothing is added, if anything up
        to there is not sound; OverflowError if a column could have more bytes than 32 bits can tell."""
        check_base(base_offset, last_delta)
        check_count(len(payload), count, last_delta)
        body = bytes(payload)
        try:
            walked = _walk(body, count, last_delta, start - base_offset, limit)
            rows = [
                Record(
                    base_offset + offset_delta,
                    _time(base_timestamp + timestamp_delta if append_time is None else append_time),
                    _cut(body, key, key_bytes),
                    _cut(body, value, value_bytes),
                    read_headers(body, headers, number) if self._headers else (),
                )
                for timestamp_delta, offset_delta, key, key_bytes, value, value_bytes, headers, number in walked.rows
            ]
        except IndexError:
            raise CorruptBatch("a record ends too early") from None
        except ValueError as error:
            raise CorruptBatch(f"a record is malformed: {error}") from None
        self._check_room(len(body), min(count, max(limit, 0)) * len(topic))
        for record in rows:
            self._put(record, int(append_time is not None), topic, partition)
        self.rows += len(rows)
        self.size = sum(len(column.data) for column in (self._keys, self._values, self._lists.keys, self._lists.values))
        return walked.number, walked.size, base_offset + walked.last + 1 if walked.number else start

    def add_fetched(
        self, data: Buffer, pos: int, *, topic: bytes, partition: int, start: int, max_rows: int, max_bytes: int
    ) -> tuple[int, int, int]:
        """Add the records from offset `start` on of the batches at `pos`, until there are `max_rows` or `max_bytes`.
        Stops before a batch that would not fit as a whole, and before any that is not plain, as `decode_fetched` does.

        Says where the batches end that it went over, the offset behind those whose records were added (`start` if there
        are none), and the leader epoch of the last one, or -1."""
        view = memoryview(data)
        offset, epoch = start, -1
        while self.rows < max_rows and self.size < max_bytes and 0 <= pos <= len(view) - batch.header_bytes:
            try:
                header = batch.read_header(view, pos)
                if not is_plain(header, len(view) - pos) or header.record_count > max_rows - self.rows:
                    break
                if header.next_offset > start:
                    self._add_plain(view[pos : pos + header.size], header, topic, partition, start)
                    offset, epoch = header.next_offset, header.leader_epoch
            except (CorruptBatch, OverflowError):
                break
            pos += header.size
        return pos, offset, epoch

    def _add_plain(self, data: memoryview, header: BatchHeader, topic: bytes, partition: int, start: int) -> None:
        if crc32c(data[batch.crc_start :]) != header.crc:
            raise CorruptBatch("a wrong checksum")
        self.add(
            data[batch.header_bytes :],
            header.record_count,
            base_offset=header.base_offset,
            last_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp,
            append_time=header.max_timestamp if header.is_log_append_time else None,
            topic=topic,
            partition=partition,
            start=start,
            limit=header.record_count,
        )

    def _check_room(self, data_bytes: int, topic_bytes: int) -> None:
        columns = self._keys, self._values, self._lists.keys, self._lists.values
        most = max(len(column.data) for column in columns) + data_bytes
        if max(most, len(self._topics.data) + topic_bytes) > MAX_COLUMN_BYTES:
            raise OverflowError("a column of more bytes than 32 bits can tell")

    def _put(self, record: Record, timestamp_type: int, topic: bytes, partition: int) -> None:
        self._keys.put(record.key)
        self._values.put(record.value)
        self._topics.put(topic)
        partitions, offsets, timestamps, types = self._numbers
        partitions += _int32.pack(partition)
        offsets += _int64.pack(record.offset)
        timestamps += _int64.pack(record.timestamp)
        types += _int32.pack(timestamp_type)
        if self._headers:
            self._lists.put(record.headers)

    def take(self) -> Arrays:
        """All that was added; then the table is empty again."""
        keys, values, lists = self._keys, self._values, self._lists
        if not self._headers:
            lists.clear()
        made = Arrays(
            self.rows,
            lists.keys.rows,
            keys.nulls,
            values.nulls,
            lists.nulls,
            lists.values.nulls,
            *keys.buffers(),
            *values.buffers(),
            *self._topics.buffers()[1:],
            *self._numbers,
            lists.validity,
            lists.bounds,
            *lists.keys.buffers()[1:],
            *lists.values.buffers(),
        )
        self._start()
        return made


class _Bytes:
    """A column of bytes, some of them null."""

    __slots__ = ("bounds", "data", "nulls", "rows", "validity")

    def __init__(self) -> None:
        self.rows = self.nulls = 0
        self.validity = bytearray()
        self.bounds = bytearray(_int32.pack(0))
        self.data = bytearray()

    def put(self, field: bytes | None) -> None:
        _put_bit(self.validity, self.rows, field is not None)
        self.rows += 1
        if field is None:
            self.nulls += 1
        else:
            self.data += field
        self.bounds += _int32.pack(len(self.data))

    def buffers(self) -> tuple[bytearray, bytearray, bytearray]:
        return self.validity, self.bounds, self.data


class _Lists:
    """The column of headers."""

    __slots__ = ("bounds", "keys", "nulls", "rows", "validity", "values")

    def __init__(self) -> None:
        self.rows = self.nulls = 0
        self.validity = bytearray()
        self.bounds = bytearray(_int32.pack(0))
        self.keys, self.values = _Bytes(), _Bytes()

    def put(self, headers: Headers) -> None:
        _put_bit(self.validity, self.rows, bool(headers))
        self.rows += 1
        self.nulls += not headers
        for key, value in headers:
            self.keys.put(key.encode())
            self.values.put(value)
        self.bounds += _int32.pack(self.keys.rows)

    def clear(self) -> None:
        """Without headers there is not even the bound in front of the first."""
        for buffer in (self.bounds, *self.keys.buffers(), *self.values.buffers()):
            buffer.clear()


class _Walked(NamedTuple):
    rows: list[tuple[int, ...]]
    number: int
    size: int
    last: int


def _walk(body: bytes, count: int, last_delta: int, first_delta: int, limit: int) -> _Walked:
    """Go over records until `limit` of them have an offset delta of `first_delta` or more; those are the rows."""
    rows: list[tuple[int, ...]] = []
    pos, last, walked = 0, -1, 0
    while walked < count and len(rows) < limit:
        pos, *row = locate(body, pos)
        if not last < row[1] <= last_delta:
            raise CorruptBatch(f"offset delta {row[1]} after {last}, of {last_delta}")
        last = row[1]
        walked += 1
        if last >= first_delta:
            rows.append(tuple(row))
    if walked == count and pos != len(body):
        raise CorruptBatch(f"{len(body) - pos} bytes are left after the last record")
    return _Walked(rows, walked, pos, last)


def _time(milliseconds: int) -> int:
    """In microseconds."""
    if not _MIN_INT64 <= milliseconds <= _MAX_INT64:
        raise CorruptBatch("a timestamp of more than 64 bits")
    return min(max(milliseconds * 1000, _MIN_INT64), _MAX_INT64)


def _put_bit(bits: bytearray, at: int, is_set: bool) -> None:
    if at % 8 == 0:
        bits.append(0)
    bits[-1] |= is_set << at % 8


def _cut(body: bytes, start: int, length: int) -> bytes | None:
    return None if length < 0 else body[start : start + length]
