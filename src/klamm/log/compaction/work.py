"""A round through a log's files: note the last offset of each key, then write the segments anew.

This runs in a child process and is all that it does. It reads the segments it is told of and writes files with names of
its own; it must never change or remove anything else. What it yields says how far it is, and which new segments are
ready and synced. Putting them into place is the broker's business (`swap`), in the order in which they come: no
tombstone may go before the values that it stands for.

Every batch is checked before it is believed. Memory: the key map, a piece of a file read and one to be written, and one
batch, decompressed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple, TypeAlias

from klamm.core.env import Buffer, File, Files
from klamm.log.compaction.batches import BatchFilter, LastBatch, filler
from klamm.log.compaction.swap import cleaned_path
from klamm.log.compaction.transactions import Transactions, read_marker
from klamm.log.handles import Handles
from klamm.log.segment import LOG_SUFFIX, MAX_RELATIVE_OFFSET, OFFSET_SUFFIX, TIME_SUFFIX, Segment, file_name
from klamm.log.txn_index import SUFFIX as TXN_SUFFIX
from klamm.log.txn_index import AbortedTxn, IndexDamaged, TxnIndex, encode_entry
from klamm.records.batch import (
    CONTROL,
    BatchError,
    BatchHeader,
    CorruptBatch,
    check,
    header_bytes,
    prefix_bytes,
    read_header,
)
from klamm.records.compression import Compression, decompress
from klamm.records.kernel import KeyMap, add_keys

STEP_BYTES: Final = 4 << 20  # read or written between two items: where a round can be slowed down or stopped
MAX_GROUP: Final = 32  # segments that become one: each costs some renames, on the loop
MAX_SEGMENT_BYTES: Final = (1 << 31) - 1  # positions in an index have 31 bits


class Source(NamedTuple):
    """A segment as it is: nothing is appended to it any more."""

    base_offset: int
    next_offset: int
    size: int


class Task(NamedTuple):
    """A round. All that the child needs to know."""

    folder: str
    token: str  # in the names of new files: nobody else has it
    sources: list[Source]  # from the log's first segment on
    following: list[int]  # where the segments behind them start: some markers are there
    first_dirty: int
    producers: dict[int, LastBatch]
    seed: bytes
    now_ms: int
    map_bytes: int
    buffer_bytes: int
    segment_bytes: int
    max_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    compression: Compression | None


class Progress(NamedTuple):
    """So many bytes were read and written since the last item."""

    size: int


class Cleaned(NamedTuple):
    """These segments are now one, in new files, durable but for their names. `size` 0: nothing has changed in the one
    that it was, and there are no files."""

    sources: list[Source]
    size: int
    has_aborted: bool


class Noted(NamedTuple):
    """The keys are noted, and all below this offset is clean once the rest is done."""

    end_offset: int
    keys: int


class Damaged(NamedTuple):
    """What lies in a segment is no batch: it will not get better."""

    reason: str


class Finished(NamedTuple):
    records_read: int
    records_kept: int
    keyless: int


Step: TypeAlias = Progress | Cleaned | Noted | Damaged | Finished


def compact(files: Files, task: Task) -> Iterator[Step]:
    try:
        yield from _Round(files, task).run()
    except BatchError as damage:
        yield Damaged(str(damage))


class _Round:
    __slots__ = ("_aborted", "_files", "_keys", "_last_markers", "_records_read", "_seen_bytes", "_task")

    def __init__(self, files: Files, task: Task) -> None:
        self._files = files
        self._task = task
        self._keys = KeyMap(task.map_bytes, task.seed)
        self._aborted = _aborted(files, task)
        self._last_markers: dict[int, int] = {}  # in the dirty part, by producer
        self._seen_bytes = 0
        self._records_read = 0

    def run(self) -> Iterator[Step]:
        task = self._task
        end_offset = yield from self._note_keys()
        yield Noted(end_offset, len(self._keys))
        batch_filter = BatchFilter(
            self._keys,
            end_offset,
            Transactions(self._aborted),
            task.producers,
            self._last_markers,
            now_ms=task.now_ms,
            delete_retention_ms=task.delete_retention_ms,
            compression=task.compression,
        )
        waiting = [source for source in task.sources if source.base_offset < end_offset]
        while waiting:
            yield from self._write_group(waiting, batch_filter)
        yield Finished(self._records_read, batch_filter.records_kept, batch_filter.keyless)

    # ---- the keys of the dirty part

    def _note_keys(self) -> Generator[Progress, None, int]:
        """Returns the offset below which all of them are noted: the end of the dirty part, unless the map is full."""
        task = self._task
        dirty = [source for source in task.sources if source.next_offset > task.first_dirty]
        begin = dirty[0].base_offset if dirty else task.first_dirty
        # An aborted transaction from before would not end here, and its producer's later ones would count as aborted.
        transactions = Transactions(entry for entry in self._aborted if entry.last_offset >= begin)
        end_offset = task.first_dirty
        for source in dirty:
            for header, batch in self._batches(source):
                if header.attributes & CONTROL:
                    if (marker := read_marker(header, batch)) is not None:
                        transactions.end(header, marker)
                        self._last_markers[header.producer_id] = header.base_offset
                elif not transactions.is_aborted(header) and header.record_count:
                    noted = self._note(header, batch)
                    if noted < header.next_offset:
                        return max(noted, end_offset)
                if self._seen_bytes >= STEP_BYTES:
                    yield self._progress()
            end_offset = source.next_offset
        return end_offset

    def _note(self, header: BatchHeader, batch: Buffer) -> int:
        return add_keys(
            self._keys,
            decompress(header.codec, memoryview(batch)[header_bytes:]),
            header.record_count,
            base_offset=header.base_offset,
            last_delta=header.last_offset_delta,
            start_offset=self._task.first_dirty,
        )

    # ---- the new segments

    def _write_group(self, waiting: list[Source], batch_filter: BatchFilter) -> Iterator[Step]:
        """Write the next ones of these segments as one: as many as fit, as far as is known before they are read."""
        task = self._task
        group: list[Source] = []
        output = _Output(self._files, task, waiting[0].base_offset)
        try:
            while waiting and (not group or (len(group) < MAX_GROUP and output.has_room(waiting[0]))):
                source = waiting.pop(0)
                group.append(source)
                yield from self._copy(source, batch_filter, output)
            if len(group) == 1 and not output.changed:
                output.discard()
                yield Cleaned(group, 0, False)
            else:
                self._seen_bytes += output.finish(group[-1].next_offset)
                yield Cleaned(group, output.size, bool(output.aborted))
        finally:
            output.close()

    def _copy(self, source: Source, batch_filter: BatchFilter, output: _Output) -> Iterator[Step]:
        for header, batch in self._batches(source):
            self._records_read += header.record_count
            kept = batch_filter.keep(header, batch)
            if batch_filter.aborted is not None:
                output.aborted.append(batch_filter.aborted)
            output.last_seen = header
            if kept is not batch:
                output.changed = True
            if kept is not None:
                output.add(kept, header if kept is batch else read_header(kept))
                self._seen_bytes += len(kept)
            if self._seen_bytes >= STEP_BYTES:
                yield self._progress()

    # ---- reading

    def _batches(self, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of a segment, each of them checked. They must not be kept past the next one."""
        path = f"{self._task.folder}/{file_name(source.base_offset, LOG_SUFFIX)}"
        file = self._files.open(path, readonly=True)
        try:
            yield from self._walk(file, source)
        except BatchError as damage:
            raise CorruptBatch(f"{path}: {damage}") from damage
        finally:
            file.close()

    def _walk(self, file: File, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
        """One function, and no properties of headers: where batches hold a single record, this is a third of it all."""
        expected, next_offset, end = source.base_offset, source.next_offset, source.size
        buffer_bytes = self._task.buffer_bytes
        position = at = 0
        chunk = memoryview(b"")
        while position < end:
            if at + header_bytes > len(chunk):
                chunk, at = memoryview(file.pread(min(buffer_bytes, end - position), position)), 0
            header = read_header(chunk, at)
            size = header[1] + prefix_bytes
            if at + size > len(chunk):
                if size > end - position:
                    raise CorruptBatch(f"a batch of {size} bytes at {position}, where {end - position} are left")
                chunk, at = memoryview(file.pread(min(max(buffer_bytes, size), end - position), position)), 0
            check(chunk, at, header)
            last_offset = header[0] + header[6]
            if not expected <= header[0] <= last_offset < next_offset:
                raise CorruptBatch(f"offset {header[0]} comes after {expected - 1}")
            yield header, chunk[at : at + size]
            self._seen_bytes += size
            expected = last_offset + 1
            position += size
            at += size

    def _progress(self) -> Progress:
        size, self._seen_bytes = self._seen_bytes, 0
        return Progress(size)


def _aborted(files: Files, task: Task) -> list[AbortedTxn]:
    """The aborted transactions that have records in the segments; their markers may be behind them."""
    end = task.sources[-1].next_offset
    found: list[AbortedTxn] = []
    for base in (*(source.base_offset for source in task.sources), *task.following):
        try:
            entries, complete = TxnIndex(files, f"{task.folder}/{file_name(base, TXN_SUFFIX)}").collect(0, end)
        except IndexDamaged as damage:
            raise CorruptBatch(f"the transaction index of segment {base}: {damage}") from damage
        found += entries
        if complete:
            break
    return found


class _Output:
    """A new segment in the making: its log grows on disk, its indexes in memory."""

    __slots__ = ("_file", "_files", "_index", "_task", "_unwritten", "aborted", "changed", "last_seen")

    def __init__(self, files: Files, task: Task, base_offset: int) -> None:
        self._files = files
        self._task = task
        self._index = Segment(Handles(files), task.folder, base_offset, size=0, created_ms=0)
        self._index.start_growing()
        self._file: File | None = None
        self._unwritten = bytearray()
        self.aborted: list[AbortedTxn] = []
        self.changed = False
        self.last_seen: BatchHeader | None = None  # of the batches read, whether any of it is left or not

    @property
    def size(self) -> int:
        return self._index.size

    def has_room(self, source: Source) -> bool:
        index = self._index
        return (
            index.size + source.size <= self._task.segment_bytes
            and source.next_offset - 1 - index.base_offset <= MAX_RELATIVE_OFFSET
            and not index.full
        )

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        index, task = self._index, self._task
        position = index.size
        if position + len(batch) > MAX_SEGMENT_BYTES:
            raise CorruptBatch(f"the segment at {index.base_offset} would grow past {MAX_SEGMENT_BYTES} bytes")
        index.add(header.last_offset, header.max_timestamp, position, task.index_interval_bytes, task.max_index_bytes)
        index.size = position + len(batch)
        index.next_offset = header.next_offset
        self._unwritten += batch
        if len(self._unwritten) >= task.buffer_bytes:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = self._files.open(self._path(LOG_SUFFIX), create=True)
        self._file.append(self._unwritten)
        self._unwritten = bytearray()

    def _path(self, suffix: str) -> str:
        return cleaned_path(self._task.folder, self._index.base_offset, suffix, self._task.token)

    def finish(self, next_offset: int) -> int:
        """Bring all of it to the disk; how much that was beside the log itself. The segment's last batch ends where
        the next segment starts."""
        last, index = self.last_seen, self._index
        written = index.next_offset or index.base_offset
        if written < next_offset:
            base_offset, epoch = (last.base_offset, last.leader_epoch) if last is not None else (written, -1)
            batch = filler(max(base_offset, written), next_offset - 1, epoch)
            self.add(batch, read_header(batch))
        self._write()
        assert self._file is not None
        self._file.sync()
        index.finish()
        small = dict(zip((OFFSET_SUFFIX, TIME_SUFFIX), index.index_data(), strict=True))
        if self.aborted:
            small[TXN_SUFFIX] = b"".join(map(encode_entry, self.aborted))
        for suffix, content in small.items():
            file = self._files.open(self._path(suffix), create=True)
            try:
                file.append(content)
                file.sync()
            finally:
                file.close()
        return sum(map(len, small.values()))

    def discard(self) -> None:
        self.close()
        if self._file is not None:
            self._files.remove(self._path(LOG_SUFFIX))
            self._file = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
