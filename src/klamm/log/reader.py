"""Reading a log by offset: from an offset to a range of bytes in a segment file.

An index lookup and a short walk over batch headers find the first batch. A reader that goes on where it stopped needs
neither: the ends of the last ranges are remembered. What does not fit into an answer is cut off where an index entry
says that a batch starts, so that no part of a batch is sent that the reader throws away, and the end is one that can be
remembered. Nothing is read but headers, and those only at the two ends.
"""

from __future__ import annotations

from typing import Final

from klamm.core.env import FileRange
from klamm.log.scan import header_at
from klamm.log.segment import Segment
from klamm.log.segments import Segments

REMEMBERED_POSITIONS: Final = 16  # readers of one partition that go on without a lookup


class Reader:
    __slots__ = ("_positions", "_segments")

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._positions: dict[int, tuple[Segment, int]] = {}  # offset -> where the batch that starts with it begins

    def forget(self) -> None:
        """The segments have changed otherwise than by growing."""
        self._positions.clear()

    def read(self, offset: int, max_bytes: int, *, limit: int, end_offset: int, min_one: bool) -> FileRange | None:
        """The bytes from the batch that holds the offset, up to `limit` or `max_bytes`; start <= offset < limit."""
        segment, position = self._positions.get(offset) or self._locate(offset)
        while position >= segment.size:
            following = self._segments.after(segment)
            if following is None:
                return None
            segment, position = following, 0
        end, next_offset = self._end_in(segment, limit, end_offset)
        size = end - position
        if size > max_bytes:
            boundary = segment.boundary(position, position + max_bytes)
            if boundary is not None:
                end, next_offset = boundary
                size = end - position
            else:
                first = header_at(segment.open_file(), position).size
                if first > max_bytes and not min_one:
                    return None
                size = max(first, max_bytes)
        if size <= 0:
            return None
        if position + size == end:
            self._remember(next_offset, segment, end)
        file = segment.file
        if file is None:
            file = segment.open_file()
        else:
            segment.file_used = True
        return FileRange(file, position, size)

    def _locate(self, offset: int) -> tuple[Segment, int]:
        segment = self._segments.items[max(0, self._segments.at(offset))]
        return segment, segment.locate(offset)[0]

    def _end_in(self, segment: Segment, limit: int, end_offset: int) -> tuple[int, int]:
        """Where readable bytes end in this segment, and the offset that comes there."""
        following = segment.next_offset
        if limit >= end_offset or (following is not None and limit >= following):
            if following is None or following > end_offset:  # the writer may be behind, by more than a segment
                following = end_offset
            return segment.size, following
        known = self._positions.get(limit)
        if known is not None and known[0] is segment:
            return known[1], limit
        position, _ = segment.locate(limit)
        self._remember(limit, segment, position)
        return position, limit

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        if offset in positions:
            del positions[offset]  # to the end of the line
        elif len(positions) >= REMEMBERED_POSITIONS:
            del positions[next(iter(positions))]
        positions[offset] = (segment, position)
