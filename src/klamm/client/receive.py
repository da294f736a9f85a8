"""Bytes of one connection in, whole response frames out.

Small frames arrive together in one buffer and are copied out of it. A frame that does not fit there gets memory of its
own, into which the socket is read directly, so that a fetched megabyte is never copied; its records may be kept as
views for as long as anybody wants. No I/O here.
"""

from __future__ import annotations

from typing import Final

from klamm.core.env import Buffer

BUFFER_BYTES: Final = 64 * 1024
MAX_FRAME_BYTES: Final = 256 << 20
"""The largest answer that is taken: a broker may exceed fetch.max.bytes by one batch, and batches can be large."""


class BadFrame(Exception):
    """A size that no answer has: the peer speaks something else. `first_bytes` may tell what."""

    def __init__(self, size: int, first_bytes: bytes) -> None:
        super().__init__(f"an answer of {size} bytes")
        self.first_bytes = first_bytes


class FrameReceiver:
    """`_shared[_start:_end]` was received and not handed out. `_large`, where there is one, is a frame being filled."""

    __slots__ = ("_end", "_filled", "_large", "_max_frame_bytes", "_shared", "_start", "_view")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._shared = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._shared)
        self._start = 0
        self._end = 0
        self._large: memoryview | None = None
        self._filled = 0

    def writable(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._view[self._end :]

    def received(self, count: int) -> list[Buffer]:
        """The frames, without their sizes, that the next `count` bytes complete. `BadFrame`: there will be no more."""
        if self._large is not None:
            self._filled += count
            if self._filled < len(self._large):
                return []
            frame, self._large = self._large, None
            return [frame]
        self._end += count
        return self._whole_frames()

    def _whole_frames(self) -> list[Buffer]:
        frames: list[Buffer] = []
        while self._end - self._start >= 4:
            begin = self._start + 4
            size = int.from_bytes(self._view[self._start : begin], "big", signed=True)
            if not 4 <= size <= self._max_frame_bytes:
                raise BadFrame(size, bytes(self._view[self._start : min(self._end, self._start + 16)]))
            if self._end - begin < size:
                self._expect(begin, size)
                break
            self._start = begin + size
            frames.append(bytes(self._view[begin : self._start]))
        self._compact()
        return frames

    def _expect(self, begin: int, size: int) -> None:
        """A frame has begun; give it memory of its own if it will not fit."""
        if size + 4 > BUFFER_BYTES:
            self._large = memoryview(bytearray(size))
            self._filled = self._end - begin
            self._large[: self._filled] = self._view[begin : self._end]
            self._start = self._end = 0

    def _compact(self) -> None:
        left = self._end - self._start
        if self._start and left:
            self._shared[:left] = self._shared[self._start : self._end]
        self._start, self._end = 0, left
