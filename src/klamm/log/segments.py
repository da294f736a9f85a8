"""The segments of one log in the order of their offsets, and what else lies in its folder.

The last segment is the active one, the only one that grows. A fresh partition has none, and no folder: both come with
its first append. Here is also what finds things in a folder and takes segments away; the decisions are the log's.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

from klamm.core.env import FileRange, Files
from klamm.log.handles import Handles
from klamm.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    Segment,
    file_name,
    remove_if_there,
)

_base_offset = attrgetter("base_offset")
_DIGITS = 20
_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")


class Listing(NamedTuple):
    """What a partition's folder holds."""

    bases: list[int]  # of the segments
    snapshots: list[int]  # of the producers' state
    leftovers: list[str]  # names that an interrupted change has left behind
    has_swap: bool = False  # compaction was about to put a segment into place: see compaction.swap


def list_folder(files: Files, folder: str) -> Listing:
    try:
        names = files.list(folder)
    except FileNotFoundError:
        return Listing([], [], [])
    bases = [int(stem) for stem, suffix in map(_split, names) if suffix == LOG_SUFFIX]
    known = set(bases)
    snapshots: list[int] = []
    leftovers: list[str] = []
    for name in names:
        stem, suffix = _split(name)
        if suffix == SNAPSHOT_SUFFIX:
            snapshots.append(int(stem))
        elif (suffix in SEGMENT_SUFFIXES and int(stem) not in known) or name.endswith(_LEFTOVER_SUFFIXES):
            leftovers.append(name)
    return Listing(bases, snapshots, leftovers, any(name.endswith(SWAP_SUFFIX) for name in names))


def _split(name: str) -> tuple[str, str]:
    """Stem and suffix of a segment's file; ("", "") for all others."""
    stem, suffix = name[:_DIGITS], name[_DIGITS:]
    if suffix in SEGMENT_SUFFIXES and len(stem) == _DIGITS and stem.isascii() and stem.isdigit():
        return stem, suffix
    return "", ""


class Segments:
    __slots__ = ("folder", "handles", "items", "snapshots")

    def __init__(self, handles: Handles, folder: str, snapshots: list[int] | None = None) -> None:
        self.handles = handles
        self.folder = folder
        self.items: list[Segment] = []
        self.snapshots = snapshots if snapshots is not None else []  # offsets, ascending

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.items)

    def at(self, offset: int) -> int:
        """Number of the last segment that starts at or below the offset; -1 if there is none."""
        return bisect_right(self.items, offset, key=_base_offset) - 1

    def after(self, segment: Segment) -> Segment | None:
        if segment.next_offset is None:
            return None
        following = self.items[self.at(segment.next_offset)]
        return None if following is segment else following

    def bound(self, first: int, read: FileRange, otherwise: int) -> int:
        """An offset that is behind all which was read of one of the segments from this number on."""
        for segment in self.items[first:]:
            if segment.file is read.file:
                offset = segment.offset_behind(read.offset + read.size)
                if offset is None:
                    offset = segment.next_offset
                return otherwise if offset is None else offset
        return otherwise

    def add(self, base_offset: int, now_ms: int) -> Segment:
        """A new active segment. OSError if its file cannot be made; nothing has changed then."""
        segment = Segment(self.handles, self.folder, base_offset, size=0, created_ms=now_ms)
        segment.start_growing()
        segment.open_file(create=True)
        if self.items:
            self.items[-1].next_offset = base_offset
        self.items.append(segment)
        return segment

    def use(self, handles: Handles) -> None:
        """Close everything that is open and go on with these handles: a thread must not share those of the loop."""
        for segment in self.items:
            self.handles.forget(segment)
            segment.handles = handles
        self.handles = handles

    def snapshot_path(self, offset: int) -> str:
        return f"{self.folder}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def set_aside(self, count: int) -> list[str]:
        """Take the oldest segments out of the log: renamed, so that a restart does not find them; their paths."""
        first = self.items[count].base_offset
        paths = [segment.prefix + suffix for segment in self.items[:count] for suffix in SEGMENT_SUFFIXES[:-1]]
        paths += [self.snapshot_path(offset) for offset in self.snapshots if offset < first]
        renamed: list[str] = []
        for path in paths:
            try:
                self.handles.files.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            renamed.append(path + DELETED_SUFFIX)
        for segment in self.items[:count]:
            self.handles.forget(segment)
        del self.items[:count]
        self.snapshots = [offset for offset in self.snapshots if offset >= first]
        return renamed

    def has_finished(self, run: list[Segment]) -> bool:
        """Whether these segments are here, one after another, and none of them is the active one."""
        i = max(0, self.at(run[0].base_offset))
        return self.items[i : i + len(run)] == run and self.items[-1] is not run[-1]

    def replace(self, old: list[Segment], size: int) -> None:
        """One segment is in the place of these: the files of the first one are now its own, and those of the others
        are going."""
        first, last = old[0], old[-1]
        new = Segment(self.handles, self.folder, first.base_offset, size=size, created_ms=first.created_ms)
        assert last.next_offset is not None
        new.closed_from_disk(last.next_offset)
        i = self.items.index(first)
        self.items[i : i + len(old)] = [new]
        gone = {segment.base_offset for segment in old[1:]}
        self.snapshots = [offset for offset in self.snapshots if offset not in gone]

    def remove_from(self, index: int) -> None:
        """Remove the segments from this number on, for good. Blocks. Last first: what a crash leaves is a prefix."""
        files = self.handles.files
        for segment in reversed(self.items[index:]):
            for suffix in SEGMENT_SUFFIXES:
                remove_if_there(files, segment.prefix + suffix)
            self.handles.forget(segment)
        del self.items[index:]
        if self.items:
            self.items[-1].next_offset = None

    def remove_snapshots_above(self, offset: int) -> None:
        """Blocks."""
        for snapshot in self.snapshots:
            if snapshot > offset:
                remove_if_there(self.handles.files, self.snapshot_path(snapshot))
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot <= offset]
