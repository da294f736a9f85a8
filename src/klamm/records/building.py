"""Records of a batch, encoded as they come; and which partition a key belongs to.

This is the pure twin of that part of `klamm.records._native`; `klamm.records.kernel` picks one of the two, and
everybody imports from there. What has no place in a record raises what `encoding` does, and leaves the builder as it
was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm.core.env import Buffer
from klamm.records.decoding import Headers, Record
from klamm.records.encoding import write_record
from klamm.records.filter import MAX_PAYLOAD_BYTES

Column = Sequence[Buffer | None]
"""One field of many records: a list or a tuple."""

NOT_A_RECORD: Final = (TypeError, ValueError, AttributeError, OverflowError)
"""What `append` raises for what has no place in a record."""
MAX_HEADER_ROOM: Final = 4096

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


class Builder:
    """The payload of one batch in the making. Offset deltas count from 0, the first record's time is the base."""

    __slots__ = ("_out", "base_timestamp", "count", "max_timestamp", "size")

    count: int
    size: int
    """Bytes so far."""
    base_timestamp: int
    """-1 while there is no record; so is `max_timestamp`."""
    max_timestamp: int

    def __init__(self) -> None:
        self._out = bytearray()
        self.count = self.size = 0
        self.base_timestamp = self.max_timestamp = -1

    def append(
        self, timestamp: int, key: Buffer | None, value: Buffer | None, headers: Headers | None, room: int, /
    ) -> int:
        """The number of the record in the batch; -1, and nothing happens, if all would be more than `room` bytes."""
        base = self.base_timestamp if self.count else timestamp
        # Text has a length, too; only what has a buffer may be written.
        fields = [None if field is None else bytes(memoryview(field)) for field in (key, value)]
        record = bytearray()
        write_record(record, self.count, base, Record(0, timestamp, fields[0], fields[1], headers or ()))
        if self.size + len(record) > min(room, MAX_PAYLOAD_BYTES):
            return -1
        self._out += record
        self.size += len(record)
        self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, timestamp) if self.count else timestamp
        self.count += 1
        return self.count - 1

    def extend(
        self,
        values: Column,
        keys: Column | None,
        timestamps: Sequence[int] | int,
        headers: Sequence[Headers] | None,
        start: int,
        stop: int,
        room: int,
    ) -> int:
        """Append the records from index `start` on, up to one that has no room, or is none (`append` says what is wrong
        with it); the index of the first that is left."""
        for index in range(start, stop):
            key = None if keys is None else keys[index]
            if not _append_row(self, index, key, values, timestamps, headers, room):
                return index
        return max(start, stop)

    def payload(self) -> bytes:
        return bytes(self._out)

    def payload_behind(self, room: int, /) -> bytearray:
        """The same behind so many zeros, for a header."""
        if not 0 <= room <= MAX_HEADER_ROOM:
            raise ValueError(f"room for {room} bytes")
        return bytearray(room) + self._out


def _append_row(
    builder: Builder,
    index: int,
    key: Buffer | None,
    values: Column,
    timestamps: Sequence[int] | int,
    headers: Sequence[Headers] | None,
    room: int,
) -> bool:
    time = timestamps if isinstance(timestamps, int) else timestamps[index]
    try:
        return builder.append(time, key, values[index], None if headers is None else headers[index], room) >= 0
    except NOT_A_RECORD:
        return False


def spread(
    builders: list[Builder | None],
    values: Column,
    keys: Column | None,
    timestamps: Sequence[int] | int,
    headers: Sequence[Headers] | None,
    partitions: Sequence[int] | None,
    start: int,
    stop: int,
    room: int,
) -> tuple[int, int, int]:
    """Append each record to the builder of its partition: by `partitions`, else by its key as Java's client does.

    Ends at a record that cannot be appended, for want of room or because it is none: its index, its partition (-1: it
    has neither), and how many bytes were appended before it."""
    total = 0
    for index in range(start, stop):
        key = None if keys is None else keys[index]
        if partitions is not None:
            chosen = partitions[index]
            if not 0 <= chosen < len(builders):
                raise IndexError(f"partition {chosen} of {len(builders)}")
        else:
            try:
                chosen = -1 if key is None else (murmur2(key) & 0x7FFFFFFF) % len(builders)
            except NOT_A_RECORD:
                chosen = -1
        builder = builders[chosen] if chosen >= 0 else None
        before = 0 if builder is None else builder.size
        if builder is None or not _append_row(builder, index, key, values, timestamps, headers, room):
            return index, chosen, total
        total += builder.size - before
    return max(start, stop), -1, total


def murmur2(data: Buffer, /) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, unsigned."""
    data = bytes(memoryview(data))
    size = len(data)
    h = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if size > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
