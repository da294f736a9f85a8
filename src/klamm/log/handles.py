"""How many files the logs of a broker hold open: one limit for open segments, one for mapped indexes.

Least recently used ones go first, by the "second chance" rule: a holder only sets a flag when it is used (the append
path must not pay for bookkeeping), and the flag saves it once. All calls on the loop.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from klamm.core.env import File, Files

MAX_OPEN_SEGMENTS: Final = 4000
MAX_MAPPED_SEGMENTS: Final = 2000  # each maps two small files


class Holder(Protocol):
    """A segment, as far as its handles go."""

    file: File | None
    file_used: bool
    maps_used: bool

    def drop_maps(self) -> None: ...


class Handles:
    """`shared`: by whoever reads on the loop. Handles of one thread, or of one call, close at once instead."""

    __slots__ = ("_mapped", "_max_mapped", "_max_open", "_open", "_shared", "files")

    def __init__(
        self,
        files: Files,
        *,
        max_open: int = MAX_OPEN_SEGMENTS,
        max_mapped: int = MAX_MAPPED_SEGMENTS,
        shared: bool = False,
    ) -> None:
        self.files = files
        self._shared = shared
        self._max_open = max_open
        self._max_mapped = max_mapped
        self._open: dict[Holder, None] = {}  # oldest first
        self._mapped: dict[Holder, None] = {}

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def mapped_count(self) -> int:
        return len(self._mapped)

    def opened(self, holder: Holder) -> None:
        """The holder has opened its file; others may have to close theirs."""
        while len(self._open) >= self._max_open:
            oldest = next(iter(self._open))
            del self._open[oldest]
            if oldest.file_used:
                oldest.file_used = False
                self._open[oldest] = None
            else:
                self._close(oldest)
        self._open[holder] = None

    def mapped(self, holder: Holder) -> None:
        while len(self._mapped) >= self._max_mapped:
            oldest = next(iter(self._mapped))
            del self._mapped[oldest]
            if oldest.maps_used:
                oldest.maps_used = False
                self._mapped[oldest] = None
            else:
                oldest.drop_maps()
        self._mapped[holder] = None

    def forget(self, holder: Holder) -> None:
        """Close and unmap whatever the holder has."""
        if self._open.pop(holder, holder) is None:
            self._close(holder)
        if self._mapped.pop(holder, holder) is None:
            holder.drop_maps()

    def _close(self, holder: Holder) -> None:
        """Close, if shared at the end of this turn of the loop: an answer that is being put together may hold a range
        of the file that nobody has pinned yet."""
        file, holder.file = holder.file, None
        assert file is not None
        try:
            loop = asyncio.get_running_loop() if self._shared else None
        except RuntimeError:
            loop = None
        if loop is None:
            file.close()
        else:
            loop.call_soon(file.close)
