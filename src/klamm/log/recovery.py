"""Opening a log: believing a clean stop, or finding out after a crash what is there.

After a crash everything below the recovery point was durable, so a damaged batch there is a fault of the disk: the log
goes offline with a report, and nothing is dropped behind anybody's back. At and above it the tail may be torn: it is
cut after the last whole valid batch, and what comes later goes with it. Indexes, producers' state, aborted transactions
and leader epochs of the part that was read again are made anew. All of this blocks.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from klamm.core.env import Env, Files
from klamm.log.compaction.swap import finish_swaps
from klamm.log.config import LogConfig
from klamm.log.epochs import CHECKPOINT_NAME, LeaderEpochs
from klamm.log.handles import Handles
from klamm.log.producer_state import ProducerStates
from klamm.log.replay import apply, load_epochs, newest_snapshot, replay
from klamm.log.results import LogState
from klamm.log.scan import Checker
from klamm.log.segment import (
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    PASSING,
    Segment,
    file_name,
    remove_if_there,
    write_file,
)
from klamm.log.segments import Listing, Segments, list_folder
from klamm.records.batch import CorruptBatch


class LogDamaged(Exception):
    """Something is wrong with what was durable. The text is for people."""


class Recovered(NamedTuple):
    segments: Segments
    producers: ProducerStates
    epochs: LeaderEpochs
    start_offset: int
    end_offset: int
    durable: bool  # false where the disk was too full to save what was found


def find_segments(env: Env, folder: str, bases: list[int], snapshots: list[int]) -> Segments:
    segments = Segments(Handles(env.files), folder, snapshots)
    now_ms = env.clock.time_ms()
    for base in bases:
        size = env.files.size(f"{folder}/{file_name(base, LOG_SUFFIX)}")
        segment = Segment(segments.handles, folder, base, size=size, created_ms=now_ms)
        if segments.items:
            segments.items[-1].closed_from_disk(base)
        segments.items.append(segment)
    return segments


def _list(files: Files, folder: str) -> Listing:
    listing = list_folder(files, folder)
    return list_folder(files, folder) if listing.has_swap and finish_swaps(files, folder) else listing


def load_segments(env: Env, folder: str, config: LogConfig, state: LogState) -> tuple[Segments, list[str]]:
    """The segments of a log that was closed cleanly, and the paths of files to remove.

    LogDamaged if what is there does not end where the state says; CorruptBatch if its end is not sound."""
    bases, snapshots, leftovers, _ = _list(env.files, folder)
    segments = find_segments(env, folder, bases, snapshots)
    end = segments.items[-1].resume(config.index_interval_bytes) if segments.items else state.start_offset
    if end != state.end_offset:
        raise LogDamaged(f"the log should end at offset {state.end_offset}, but it ends at {end}")
    return segments, [f"{folder}/{name}" for name in leftovers]


def recover(env: Env, folder: str, config: LogConfig, checkpoint: LogState) -> Recovered:
    """LogDamaged or OSError if the log has to stay offline."""
    try:
        return _Recovery(env, folder, config, checkpoint).run()
    except CorruptBatch as damage:
        raise LogDamaged(f"below the recovery point {checkpoint.recovery_point}: {damage}") from damage


class _Recovery:
    __slots__ = (
        "checkpoint", "config", "cut", "end", "env", "epochs", "files", "folder", "producers", "segments", "snapshots"
    )  # fmt: skip

    def __init__(self, env: Env, folder: str, config: LogConfig, checkpoint: LogState) -> None:
        self.env = env
        self.files: Files = env.files
        self.folder = folder
        self.config = config
        self.checkpoint = checkpoint
        self.cut = False
        self.snapshots: list[tuple[int, bytes]] = []  # at the starts of the segments that were read again
        bases, snapshots, leftovers, _ = _list(env.files, folder)
        for name in leftovers:
            remove_if_there(env.files, f"{folder}/{name}")
        self.segments = find_segments(env, folder, bases, snapshots)
        self.end = bases[0] if bases else checkpoint.start_offset
        self.producers = ProducerStates()
        self.epochs = LeaderEpochs()

    def run(self) -> Recovered:
        segments, point = self.segments, self.checkpoint.recovery_point
        if not segments.items:
            if point > self.checkpoint.start_offset:
                raise LogDamaged(f"there are no segments, but all below offset {point} was durable")
            return Recovered(segments, self.producers, self.epochs, self.end, self.end, True)
        first = max(0, segments.at(point))
        self._start_from(first)
        for i in range(first, len(segments.items)):
            self._scan(i)
            if self.cut:
                break
        if self.end < point:
            raise LogDamaged(f"the log ends at offset {self.end}, but all below {point} was durable")
        durable = self._save(first)
        start = max(self.checkpoint.start_offset, segments.items[0].base_offset)
        return Recovered(segments, self.producers, self.epochs, min(start, self.end), self.end, durable)

    def _start_from(self, first: int) -> None:
        """Producers and epochs as of the first segment that is read again; the indexes of those before."""
        segments = self.segments
        now_ms = self.env.clock.time_ms()
        base = segments.items[first].base_offset
        segments.remove_snapshots_above(base)
        for segment in segments.items[:first]:
            segment.indexes()  # made anew here if need be, rather than on the loop later
        self.producers, offset = newest_snapshot(self.files, segments, base)
        replay(segments, self.producers, offset, base, now_ms)
        if first and offset != base:  # the crash came before it was written: the segments before may go any time
            self.snapshots.append((base, self.producers.snapshot(base)))
        self.epochs, _ = load_epochs(self.files, self.folder, segments.items[:first])
        self.epochs.truncate_from_end(base)

    def _scan(self, i: int) -> None:
        """Read a segment again, from its start, and cut it after its last valid batch. Sets `cut` if it was cut, or if
        what follows does not continue it: then nothing after it counts."""
        segments = self.segments
        segment = segments.items[i]
        if i and segment.base_offset == self.end:
            self.snapshots.append((self.end, self.producers.snapshot(self.end)))
        file = segment.open_file()
        segment.start_growing()
        segment.transactions().reset()
        checker = Checker(file, 0, segment.size)
        out_of_order = self._take_in(segment, checker)
        valid = checker.start if out_of_order else checker.position
        if valid < segment.size:
            self._damaged(self.end, f"{segment.path}, position {valid}: {out_of_order or checker.damage}")
            file.truncate(valid)
            segment.size = valid
            self.cut = True
        elif segment.next_offset is not None and segment.next_offset > self.end:
            # rolling leaves no gap, so the tail of this segment is missing
            self._damaged(self.end, f"{segment.path} ends before the next segment starts")
            self.cut = True
        if self.cut:
            segments.remove_from(i + 1)

    def _take_in(self, segment: Segment, checker: Checker) -> str | None:
        """Everything that the batches of a segment say; what is wrong with the offset of the one that ended it."""
        now_ms = self.env.clock.time_ms()
        interval, max_index_bytes = self.config.index_interval_bytes, self.config.max_index_bytes
        self.end = segment.base_offset
        # the base offset is not under the checksum, so it is held against what the segment can contain
        highest = segment.base_offset + MAX_RELATIVE_OFFSET
        if segment.next_offset is not None:
            highest = min(highest, segment.next_offset - 1)
        epoch = -1
        while (header := checker.next()) is not None:
            base_offset, last_offset = header.base_offset, header.base_offset + header.last_offset_delta
            if not self.end <= base_offset <= last_offset <= highest:
                return f"offset {base_offset} comes after {self.end - 1}"
            self.end = last_offset + 1
            segment.add(last_offset, header.max_timestamp, checker.start, interval, max_index_bytes)
            if header.leader_epoch != epoch:
                epoch = header.leader_epoch
                if epoch >= 0:  # repair leaves batches without one
                    self.epochs.assign(epoch, base_offset)
            if header.producer_id >= 0:
                aborted = apply(self.producers, header, checker.body, now_ms)
                if aborted is not None:
                    segment.transactions().append(aborted)
        return None

    def _damaged(self, offset: int, what: str) -> None:
        """Damage at this offset: the end of the log if it is above the recovery point, else the end of our wisdom."""
        if offset < self.checkpoint.recovery_point:
            raise LogDamaged(
                f"offset {offset} is damaged, below the recovery point {self.checkpoint.recovery_point}: {what}"
            )

    def _save(self, first: int) -> bool:
        """Make durable what was found: it counts as written from now on. False if there is no room for that; what is
        missing is only what can be made again."""
        segments = self.segments
        for segment in segments.items[first:]:
            segment.open_file().sync()
            segment.transactions().sync()
        # even if nothing was cut here: a truncation that the crash has interrupted may not be durable yet
        self.files.sync_dir(self.folder)
        if not self.cut and self.end == self.checkpoint.recovery_point and not self.snapshots:
            return True
        try:
            for segment in segments.items[first:-1]:
                segment.finish()
                segment.write_indexes(self.files, segment.index_data())
            for offset, snapshot in self.snapshots:
                write_file(self.files, segments.snapshot_path(offset), snapshot)
                segments.snapshots.append(offset)
            self.files.write_atomically(f"{self.folder}/{CHECKPOINT_NAME}", self.epochs.dump())
            self.files.sync_dir(os.path.dirname(self.folder))  # the folder may have been as new as its content
        except OSError as error:
            if error.errno not in PASSING:
                raise
            return False
        for segment in segments.items[first:-1]:
            segment.release_indexes()
        return True
