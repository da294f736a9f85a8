"""The offset index and the time index of one segment, in Kafka's formats.

Both are sparse: an entry for every `index.interval.bytes` of log or so. An offset entry is (last offset of a batch, its
position), a time entry is (largest timestamp so far, last offset of the batch that has it). Offsets are relative to the
segment's base. The bytes are the same in memory and on disk: a bytearray while the segment grows, a map of the file
afterwards. Lookups are binary searches, so their cost does not grow with the log.

An index must never be believed blindly: it is checked roughly when it is opened, and whoever follows an entry checks
that the batch it points to is the one it names.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from klamm.core.env import Buffer

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
SAMPLES: Final = 16  # entries compared when an index is opened; all 260,000 of a full one would take 50 ms

_offset_entry = Struct(">ii")
_time_entry = Struct(">qi")
_pack_offset = _offset_entry.pack
_read_offset = _offset_entry.unpack_from
_pack_time = _time_entry.pack
_read_time = _time_entry.unpack_from


class IndexDamaged(ValueError):
    """The content cannot be an index of this segment; it has to be rebuilt from the log."""


class OffsetIndex:
    __slots__ = ("base_offset", "data")

    def __init__(self, base_offset: int, data: Buffer | None = None) -> None:
        self.base_offset = base_offset
        self.data: Buffer = bytearray() if data is None else data

    def __len__(self) -> int:
        return len(self.data) // OFFSET_ENTRY_BYTES

    def entry(self, i: int) -> tuple[int, int]:
        """(offset, position)"""
        relative, position = _read_offset(self.data, i * OFFSET_ENTRY_BYTES)
        return self.base_offset + relative, position

    def append(self, offset: int, position: int) -> None:
        assert isinstance(self.data, bytearray), "only the index of a growing segment is written to"
        self.data += _pack_offset(offset - self.base_offset, position)

    def floor(self, offset: int) -> int:
        """Number of the last entry at or below the offset; -1 if there is none."""
        return self._floor(offset - self.base_offset, 0)

    def floor_position(self, position: int) -> int:
        return self._floor(position, 1)

    def _floor(self, target: int, field: int) -> int:
        data = self.data
        low, high = 0, len(data) // OFFSET_ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            if _read_offset(data, middle * OFFSET_ENTRY_BYTES)[field] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above the offset."""
        assert isinstance(self.data, bytearray)
        del self.data[(self.floor(offset - 1) + 1) * OFFSET_ENTRY_BYTES :]

    def check(self, segment_bytes: int, next_offset: int) -> None:
        """IndexDamaged unless this looks like the index of a segment of that size that ends before `next_offset`."""
        _check_size(self.data, OFFSET_ENTRY_BYTES)
        previous = (-1, -1)
        for i in _samples(len(self)):
            entry = _read_offset(self.data, i * OFFSET_ENTRY_BYTES)
            if entry[0] <= previous[0] or entry[1] <= previous[1]:
                raise IndexDamaged(f"entry {i} of the offset index is out of order")
            previous = entry
        if previous[0] + self.base_offset >= next_offset or previous[1] >= segment_bytes:
            raise IndexDamaged("the offset index points behind the end of its segment")


class TimeIndex:
    __slots__ = ("base_offset", "data")

    def __init__(self, base_offset: int, data: Buffer | None = None) -> None:
        self.base_offset = base_offset
        self.data: Buffer = bytearray() if data is None else data

    def __len__(self) -> int:
        return len(self.data) // TIME_ENTRY_BYTES

    def entry(self, i: int) -> tuple[int, int]:
        """(timestamp, offset)"""
        timestamp, relative = _read_time(self.data, i * TIME_ENTRY_BYTES)
        return timestamp, self.base_offset + relative

    def last(self) -> tuple[int, int]:
        """The largest timestamp and its offset; (-1, base offset) if there is none."""
        return self.entry(len(self) - 1) if self.data else (-1, self.base_offset)

    def append(self, timestamp: int, offset: int) -> None:
        """Timestamps only grow: one that is not larger than the last adds nothing."""
        data = self.data
        assert isinstance(data, bytearray), "only the index of a growing segment is written to"
        if data and timestamp <= _read_time(data, len(data) - TIME_ENTRY_BYTES)[0]:
            return
        if timestamp >= 0:
            data += _pack_time(timestamp, offset - self.base_offset)

    def floor(self, timestamp: int) -> int:
        """Number of the last entry at or below the timestamp; -1 if there is none."""
        data = self.data
        low, high = 0, len(data) // TIME_ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            if _read_time(data, middle * TIME_ENTRY_BYTES)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above the offset (offsets grow with the timestamps)."""
        data = self.data
        assert isinstance(data, bytearray)
        keep = len(self)
        while keep and self.entry(keep - 1)[1] >= offset:
            keep -= 1
        del data[keep * TIME_ENTRY_BYTES :]

    def check(self, next_offset: int) -> None:
        _check_size(self.data, TIME_ENTRY_BYTES)
        previous = (-1, -1)
        for i in _samples(len(self)):
            entry = _read_time(self.data, i * TIME_ENTRY_BYTES)
            if entry[0] <= previous[0] or entry[1] <= previous[1]:
                raise IndexDamaged(f"entry {i} of the time index is out of order")
            previous = entry
        if previous[1] + self.base_offset >= next_offset:
            raise IndexDamaged("the time index points behind the end of its segment")


def _check_size(data: Buffer, entry_bytes: int) -> None:
    if len(data) % entry_bytes:
        raise IndexDamaged(f"{len(data)} bytes are no whole number of index entries")


def _samples(count: int) -> list[int]:
    """Entries to compare: the first, the last and some between, in order."""
    if count <= SAMPLES:
        return list(range(count))
    return [i * (count - 1) // (SAMPLES - 1) for i in range(SAMPLES)]
