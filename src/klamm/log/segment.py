"""One segment: a file of batches, its two indexes and its aborted transactions.

The segment that grows (the active one) has its indexes in memory; they reach the disk when it is finished, at a flush
of the whole or at a clean close. A finished segment maps them when they are needed. Files are opened at first use and
given back to `Handles` under pressure. Offsets and positions only: what they mean is the log's business.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, TypeAlias

from klamm.core.env import File, Files
from klamm.log.config import LogConfig
from klamm.log.handles import Handles
from klamm.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, IndexDamaged, OffsetIndex, TimeIndex
from klamm.log.scan import find, header_at, headers
from klamm.log.txn_index import SUFFIX as TXN_SUFFIX
from klamm.log.txn_index import TxnIndex
from klamm.records.batch import BatchHeader, CorruptBatch

LOG_SUFFIX: Final = ".log"
OFFSET_SUFFIX: Final = ".index"
TIME_SUFFIX: Final = ".timeindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"  # the producers' state just before the segment's base offset
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"  # both of compaction, see compaction.swap
SWAP_SUFFIX: Final = ".swap"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX, TXN_SUFFIX, SNAPSHOT_SUFFIX)

PASSING: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE))
"""To be waited for, unlike every other error: the disk is full, or too many files are open."""
MAX_RELATIVE_OFFSET: Final = 0x7FFF_FFFF
MAX_UNINDEXED_BATCHES: Final = 1000  # behind the last index entry; with more it pays to make the index anew


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


class Segment:
    __slots__ = (
        "_max_timestamp_known",
        "base_offset",
        "created_ms",
        "file",
        "file_used",
        "first_timestamp",
        "full",
        "growing",
        "handles",
        "index_at",
        "jitter_ms",
        "maps_used",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offsets",
        "prefix",
        "size",
        "times",
        "txns",
    )

    def __init__(self, handles: Handles, folder: str, base_offset: int, *, size: int, created_ms: int) -> None:
        self.handles = handles
        self.prefix = f"{folder}/{base_offset:020d}"
        self.base_offset = base_offset
        self.size = size  # bytes that are written
        self.next_offset: int | None = None  # where the following segment starts; None: this is the active one
        self.created_ms = created_ms  # when this process first saw it: Kafka takes the file's time, we have none
        self.first_timestamp = -1  # largest timestamp of its first batch, which decides when it is time to roll
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self._max_timestamp_known = True
        self.jitter_ms = 0  # taken off segment.ms
        self.index_at = 0  # a batch that starts behind this position gets an index entry
        self.full = False  # no more index entries fit
        self.growing = False  # its indexes are in memory, ahead of the disk
        self.file: File | None = None
        self.file_used = False
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.maps_used = False
        self.txns: TxnIndex | None = None

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}, {self.size} bytes)"

    @property
    def path(self) -> str:
        return self.prefix + LOG_SUFFIX

    # ---- the file

    def open_file(self, *, create: bool = False) -> File:
        """The open file; on the loop only."""
        file = self.file
        if file is None:
            file = self.file = self.handles.files.open(self.path, create=create)
            self.handles.opened(self)
        self.file_used = True
        return file

    def transactions(self) -> TxnIndex:
        if self.txns is None:
            self.txns = TxnIndex(self.handles.files, self.prefix + TXN_SUFFIX)
        return self.txns

    # ---- growing

    def start_growing(self) -> None:
        """Empty indexes in memory, to be filled by `add`."""
        self.offsets = OffsetIndex(self.base_offset)
        self.times = TimeIndex(self.base_offset)
        self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self._max_timestamp_known = True
        self.first_timestamp = -1
        self.index_at = 0
        self.full = False
        self.growing = True

    def rolls_before(
        self, config: LogConfig, position: int, size: int, last_offset: int, timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch that would go to this position belongs into the next segment. Time is the batches' own, from
        the first one here; the clock counts only where they have none."""
        first = self.first_timestamp
        return position > 0 and (
            position + size > config.segment_bytes
            or self.full
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            or (timestamp - first if first >= 0 else now_ms - self.created_ms) > config.segment_ms - self.jitter_ms
        )

    def add(self, last_offset: int, timestamp: int, position: int, interval: int, max_index_bytes: int) -> None:
        """A batch that ends with this offset has its place at this position. Kafka's rules for index entries."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = timestamp
            self.index_at = interval
        elif position > self.index_at:
            offsets, times = self.offsets, self.times
            assert offsets is not None and times is not None
            offsets.append(last_offset, position)
            times.append(self.max_timestamp, self.max_timestamp_offset)
            self.index_at = position + interval
            self.full = (
                len(offsets.data) + OFFSET_ENTRY_BYTES > max_index_bytes
                or len(times.data) + 2 * TIME_ENTRY_BYTES > max_index_bytes  # one is kept for `finish`
            )

    def finish(self) -> None:
        """No more batches for now: the time index gets the largest timestamp, as the last entry."""
        assert self.times is not None
        self.times.append(self.max_timestamp, self.max_timestamp_offset)

    def index_data(self) -> tuple[bytes, bytes]:
        """What belongs into the two index files."""
        assert self.offsets is not None and self.times is not None
        return bytes(self.offsets.data), bytes(self.times.data)

    def write_indexes(self, files: Files, data: tuple[bytes, bytes], write: WriteFile | None = None) -> None:
        """Blocks. The names are durable after a sync of the folder."""
        for suffix, content in zip((OFFSET_SUFFIX, TIME_SUFFIX), data, strict=True):
            (write or write_file)(files, self.prefix + suffix, content)

    def release_indexes(self) -> None:
        """They are on disk and the segment is finished: map them when they are needed again."""
        self.growing = False
        self.drop_maps()

    # ---- finished

    def drop_maps(self) -> None:
        self.offsets = self.times = None

    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        offsets, times = self.offsets, self.times
        if offsets is None or times is None:
            offsets, times = self.offsets, self.times = self._open_indexes()
            self.handles.mapped(self)
        self.maps_used = True
        return offsets, times

    def _open_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        files = self.handles.files
        try:
            offsets = OffsetIndex(self.base_offset, files.map(self.prefix + OFFSET_SUFFIX))
            times = TimeIndex(self.base_offset, files.map(self.prefix + TIME_SUFFIX))
            self._check(offsets, times)
        except (FileNotFoundError, IndexDamaged):
            return self.rebuild_indexes()
        return offsets, times

    def _check(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        end = self.base_offset + MAX_RELATIVE_OFFSET + 1 if self.next_offset is None else self.next_offset
        offsets.check(self.size, end)
        times.check(end)
        if self.size:
            self._check_newest(offsets, times)

    def _check_newest(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """The last time entry stands for the whole segment (retention and lookups go by it), so it must be right."""
        file = self.open_file()
        timestamp, offset = times.last()
        try:
            if timestamp >= 0:
                i = offsets.floor(offset)
                named, position = offsets.entry(i) if i >= 0 else (None, 0)
                _, header = find(file, position, self.size, offset, named)
                if header is None or header.max_timestamp != timestamp or header.last_offset != offset:
                    raise IndexDamaged("the time index names a batch that is not there")
            # The files may be from a clean stop after which the segment grew on, was finished, and then there was no
            # room for new ones, or no time. What they do not know of comes after their last entry.
            last = offsets.entry(len(offsets) - 1)[1] if len(offsets) else 0
            for count, (_, header) in enumerate(headers(file, last, self.size)):
                if header.max_timestamp > timestamp or count > MAX_UNINDEXED_BATCHES:
                    raise IndexDamaged("the indexes do not know the end of the segment")
        except CorruptBatch as error:
            raise IndexDamaged(str(error)) from error

    def rebuild_indexes(self, interval: int = 4096) -> tuple[OffsetIndex, TimeIndex]:
        """Make them from the log, as they would be had the segment just grown and been finished. Blocks for long; it
        happens only to a finished segment whose index files are damaged or gone."""
        copy = Segment(self.handles, "", self.base_offset, size=0, created_ms=0)
        copy.start_growing()
        expected = self.base_offset
        for position, header in headers(self.open_file(), 0, self.size):
            last_offset = header.last_offset
            if not expected <= header.base_offset <= last_offset <= self.base_offset + MAX_RELATIVE_OFFSET:
                raise CorruptBatch(f"{self.path}, position {position}: offset {header.base_offset} cannot be here")
            copy.add(last_offset, header.max_timestamp, position, interval, 1 << 31)
            expected = last_offset + 1
        copy.finish()
        assert copy.offsets is not None and copy.times is not None
        self.offsets, self.times = copy.offsets, copy.times
        self.max_timestamp, self.max_timestamp_offset = copy.max_timestamp, copy.max_timestamp_offset
        self._max_timestamp_known = True
        self.first_timestamp, self.index_at = copy.first_timestamp, copy.index_at
        try:
            self.write_indexes(self.handles.files, self.index_data())
        except OSError:
            pass  # they are right in memory, and the next one to open them tries again
        return copy.offsets, copy.times

    def resume(self, interval: int) -> int:
        """Let a segment that is on disk grow on; the offset after its last batch. CorruptBatch where it has none."""
        old_offsets, old_times = self.indexes()
        offsets = OffsetIndex(self.base_offset, bytearray(old_offsets.data))
        times = TimeIndex(self.base_offset, bytearray(old_times.data))
        self.handles.forget(self)  # these indexes must not be let go like maps: they are ahead of the disk soon
        self.offsets, self.times = offsets, times
        self.growing = True
        self.max_timestamp, self.max_timestamp_offset = times.last()
        self._max_timestamp_known = True
        if not self.size:
            return self.base_offset
        file = self.open_file()
        self.first_timestamp = header_at(file, 0).max_timestamp
        indexed = offsets.entry(len(offsets) - 1)[1] if len(offsets) else 0
        self.index_at = indexed + interval
        next_offset = self.base_offset
        for _, header in headers(file, indexed, self.size):  # what came after the last entry is not in the time index
            next_offset = header.next_offset
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, next_offset - 1
        return next_offset

    def cut(self, offset: int, position: int, interval: int) -> None:
        """Drop everything from the batch at this position on, which starts with the offset. Blocks. The segment grows
        on from there."""
        old_offsets, old_times = self.indexes()
        offsets = OffsetIndex(self.base_offset, bytearray(old_offsets.data))
        times = TimeIndex(self.base_offset, bytearray(old_times.data))
        offsets.truncate_to(offset)
        times.truncate_to(offset)
        self.handles.forget(self)  # its position in the file would be behind the end
        file = self.handles.files.open(self.path)
        try:
            file.truncate(position)
            file.sync()
        finally:
            file.close()
        self.size = position
        self.transactions().truncate_to(offset)
        self.start_growing()
        self.offsets, self.times = offsets, times
        self.resume(interval)

    def closed_from_disk(self, next_offset: int) -> None:
        """This segment was found on disk, and it is a finished one."""
        self.next_offset = next_offset
        self._max_timestamp_known = False

    def largest_timestamp(self) -> int:
        """-1 if no batch has one."""
        if not self._max_timestamp_known:
            self.max_timestamp, self.max_timestamp_offset = self.indexes()[1].last()
            self._max_timestamp_known = True
        return self.max_timestamp

    # ---- lookup

    def locate(self, offset: int) -> tuple[int, BatchHeader | None]:
        """The first batch that ends at or after the offset: its position and header; (size, None) if there is none.

        An index entry counts only if the batch it points to is the one it names; otherwise the index is made anew."""
        offsets, _ = self.indexes()
        i = offsets.floor(offset)
        if i < 0:
            return self._walk(0, offset, None)
        try:
            return self._walk(offsets.entry(i)[1], offset, offsets.entry(i)[0])
        except CorruptBatch:
            if self.growing:
                raise  # its index is in memory, so it is the log that is wrong
        offsets, _ = self.rebuild_indexes()
        i = offsets.floor(offset)
        return self._walk(0 if i < 0 else offsets.entry(i)[1], offset, None)

    def boundary(self, after: int, up_to: int) -> tuple[int, int] | None:
        """The last batch between these positions that has an index entry: where it starts, and with which offset. None
        if there is none, or if the entry is wrong: whoever looks for an offset there finds out and mends it."""
        offsets, _ = self.indexes()
        i = offsets.floor_position(up_to)
        if i < 0:
            return None
        named, start = offsets.entry(i)
        if start <= after:
            return None
        try:
            header = header_at(self.open_file(), start)
        except CorruptBatch:
            return None
        return (start, header.base_offset) if header.last_offset == named else None

    def offset_behind(self, position: int) -> int | None:
        """An offset that no batch before this position has, and the next one that the index knows; None if it knows of
        no later batch."""
        offsets, _ = self.indexes()
        i = offsets.floor_position(position - 1) + 1
        return offsets.entry(i)[0] if i < len(offsets) else None

    def end_before(self, position: int) -> int:
        """The offset after the last batch before this position, which must be the start of one or the end."""
        if position == 0:
            return self.base_offset
        offsets, _ = self.indexes()
        i = offsets.floor_position(position - 1)
        next_offset = self.base_offset
        for _, header in headers(self.open_file(), 0 if i < 0 else offsets.entry(i)[1], position):
            next_offset = header.next_offset
        return next_offset

    def _walk(self, position: int, offset: int, named: int | None) -> tuple[int, BatchHeader | None]:
        if position >= self.size and named is not None:
            raise CorruptBatch("the offset index points behind the end of its segment")
        return find(self.open_file(), position, self.size, offset, named)


WriteFile: TypeAlias = Callable[[Files, str, bytes], None]


def write_file(files: Files, path: str, content: bytes) -> None:
    """Replace a small file that can be made anew if a crash comes in between. Its name is durable only after a sync of
    the folder. The old file is not written over: somebody may have mapped it."""
    remove_if_there(files, path)
    file = files.open(path, create=True)
    try:
        file.append(content)
        file.sync()
    finally:
        file.close()


def write_over(files: Files, path: str, content: bytes) -> None:
    """The same for a file that nobody has mapped, and without a sync. The file stays the one it is: on ext4, making
    thousands of files just after as many were removed takes 0.5 ms for each, which is 30 times the usual."""
    file = files.open(path, create=True)
    try:
        size = file.size()
        if size == len(content) and file.pread(size, 0) == content:
            return
        file.pwrite(content, 0)
        if size > len(content):
            file.truncate(len(content))
    finally:
        file.close()


def remove_if_there(files: Files, path: str) -> None:
    try:
        files.remove(path)
    except FileNotFoundError:
        pass
