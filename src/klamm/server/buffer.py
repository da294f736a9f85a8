"""The receive buffer of one connection: bytes in, whole frames out, nothing copied.

It starts small, because most connections are idle most of the time, and grows with the bytes that really arrive: a
peer that announces a frame of 100 MB and sends nothing costs nothing. A frame is handed out as a view into the buffer
and is valid until the next read. A bytearray is never resized, only replaced: a view that somebody kept stays sound
memory, though its content is stale. No I/O here, and no policy: how large a frame may be is told from outside.
"""

from __future__ import annotations

from struct import Struct

START_BYTES = 4 * 1024
"""Room for dozens of small requests. 256 KiB each would cost 153 MB at 500 connections (measured)."""
SMALL_BYTES = 16 * 1024
"""Up to here a buffer grows when a read fills it, to save system calls; beyond only as far as a frame needs it."""
_SLOW_GROWTH_BYTES = 1024 * 1024
"""Below this growth is fourfold, above twofold, so that the room ahead of the data stays a small multiple of it."""

_read_size = Struct(">i").unpack_from


class BadFrameSize(Exception):
    """The peer announced a frame that is negative or too large: it speaks something else, or means harm."""

    def __init__(self, size: int, first_bytes: bytes) -> None:
        super().__init__(f"frame size {size}")
        self.size = size
        self.first_bytes = first_bytes


class FrameBuffer:
    """`_data[_start:_end]` was received and not handed out yet; `_view` is all of `_data`."""

    __slots__ = ("_data", "_end", "_filled", "_start", "_view", "capacity", "largest", "max_frame_bytes", "needed")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._start = 0
        self._end = 0
        self._filled = False  # a read reached the end of the buffer
        self.needed = 0  # size of the frame, with its size field, of which a part is here; 0: none, or not known yet
        self.largest = 0  # the most that was needed since it was last set to 0
        self._replace(START_BYTES)

    def _replace(self, capacity: int) -> None:
        self._data = bytearray(capacity)
        self._view = memoryview(self._data)
        self.capacity = capacity

    def __len__(self) -> int:
        """Bytes received and not handed out."""
        return self._end - self._start

    def writable(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._filled:
            self._make_room()
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """The peer's next `count` bytes are in what `writable` returned."""
        self._end += count
        if self._end == self.capacity:
            self._filled = True

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None. BadFrameSize if there can be none any more."""
        start = self._start
        left = self._end - start
        if left >= 4:
            (size,) = _read_size(self._data, start)
            if not 0 <= size <= self.max_frame_bytes:
                raise BadFrameSize(size, bytes(self._view[start : start + min(left, 16)]))
            if left - 4 >= size:
                begin = start + 4
                self._start = end = begin + size
                self.needed = 0
                return self._view[begin:end]
            self._keep(left, size + 4)
        elif left:
            self._keep(left, 0)
        else:
            self._start = self._end = 0
        return None

    def _keep(self, left: int, needed: int) -> None:
        """A part of a frame stays. Put it where the rest of it will fit, if the buffer is large enough at all."""
        self.needed = needed
        if needed > self.largest:
            self.largest = needed
        start = self._start
        if start and (left <= START_BYTES or start + needed > self.capacity):
            self._move(self._view, left)

    def _make_room(self) -> None:
        """A read reached the end of the buffer: move what is left to the front, or into a larger one."""
        self._filled = False
        left = self._end - self._start
        capacity = self.capacity
        old = self._view
        if left == capacity:
            larger = capacity * (4 if capacity < _SLOW_GROWTH_BYTES else 2)
            self._replace(min(larger, self.needed) if self.needed > capacity else larger)
        elif capacity < SMALL_BYTES:
            self._replace(SMALL_BYTES)
        elif self._end < capacity:
            return
        self._move(old, left)

    def _move(self, source: memoryview, left: int) -> None:
        self._view[:left] = source[self._start : self._end]
        self._start = 0
        self._end = left

    def shrink(self, keep_bytes: int) -> None:
        """Give memory back down to `keep_bytes`, unless more than that waits in the buffer."""
        left = self._end - self._start
        keep = max(keep_bytes, START_BYTES)
        if keep < self.capacity and left < keep:
            old = self._view
            self._replace(keep)
            self._move(old, left)
            self._filled = False

    def detach(self) -> None:
        """Leave the memory of the frames handed out so far to whoever has views into it; go on with another."""
        left = self._end - self._start
        old = self._view
        self._replace(max(START_BYTES, left + 1))
        self._move(old, left)
        self._filled = False

    def clear(self) -> None:
        """Drop everything that was received."""
        self._start = self._end = self.needed = 0
        self.shrink(START_BYTES)
