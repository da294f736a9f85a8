"""How a log gets to the disk: rolling, flushing, the ordered writer, closing.

What is below the recovery point is durable, and all that goes with it: indexes, the producers' state at the ends of
segments, leader epochs, and the names of files. It must never move past anything that a power loss could still take.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Final

from klamm.core.env import Volume
from klamm.log.base import LogBase
from klamm.log.epochs import CHECKPOINT_NAME
from klamm.log.flusher import Finished, Flusher, Names, Plan
from klamm.log.handles import Handles
from klamm.log.results import LogState, Rejected
from klamm.log.segment import PASSING, Segment, WriteFile, write_file, write_over
from klamm.log.segments import Segments
from klamm.log.writer import SLOW_WRITE_S, Done, Writer

TEMPORARY_SUFFIX: Final = ".tmp"  # what is found with it after a crash is removed

_logger = logging.getLogger("klamm.log")


class DurableLog(LogBase):
    __slots__ = ()

    # ---- rolling

    def _first_segment(self, now_ms: int) -> Segment:
        """The active segment, made if this is the log's first append. OSError if that fails."""
        segments = self._loaded()
        if self._active is None and self.failure is None:
            files = self.env.files
            if not files.exists(self.path):
                files.make_dirs(self.path)
                self._folder_is_new = True
            if self._on_create is not None:
                self._on_create()  # even if the folder is there: the first attempt may have failed in between
            self._active = segments.add(self._next_offset, now_ms)
            self._active.jitter_ms = self._jitter_ms()
            self._position = 0
            self._names_made += 1
        assert self._active is not None
        return self._active

    def _roll(self, now_ms: int) -> Segment:
        """Finish the active segment and start the next one, at the next offset. OSError if its file cannot be made."""
        segments, old = self._segments, self._active
        assert segments is not None and old is not None
        snapshot = self.producers.snapshot(self._next_offset)
        segment = self._active = segments.add(self._next_offset, now_ms)
        segment.jitter_ms = self._jitter_ms()
        self._position = 0
        self._names_made += 1
        self._rolled.append((old, snapshot))
        self._flushing().request(whole=False)
        return segment

    def _new_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """The checkpoint is written by the next flush: below the recovery point it must be right, above it the
        batches themselves say their epoch."""
        self._epoch = leader_epoch
        if leader_epoch >= 0 and self.epochs.assign(leader_epoch, start_offset):
            self._epochs_dirty = True

    def _save_epochs(self) -> None:
        """Blocks."""
        self.env.files.write_atomically(self._epochs_path, self.epochs.dump())
        self._epochs_dirty = False

    @property
    def _epochs_path(self) -> str:
        return f"{self.path}/{CHECKPOINT_NAME}"

    # ---- flushing

    def flush(self) -> asyncio.Future[Rejected | None]:
        """Make everything durable that is written now; `recovery_point` has moved when the future is done."""
        if self.failure is not None:
            future: asyncio.Future[Rejected | None] = asyncio.get_running_loop().create_future()
            future.set_result(self._offline())
            return future
        return self._flushing().flush()

    def _flushing(self) -> Flusher:
        if self._flusher is None:
            self._flusher = Flusher(
                self.env,
                plan=self._plan_flush,
                done=self._flushed,
                postponed=self._flush_postponed,
                failed=self._flush_failed,
            )
        return self._flusher

    def _plan_flush(self, whole: bool) -> Plan | None:
        segments, end = self._segments, self.end_offset
        if segments is None or self._cutting is not None or self.failure is not None:
            return None
        finished: list[Finished] = []
        for segment, snapshot in self._rolled:
            next_offset = segment.next_offset
            if next_offset is None or next_offset > end:
                break
            segment.finish()
            path = segments.snapshot_path(next_offset)
            finished.append(Finished(segment, segment.open_file(), segment.index_data(), path, snapshot))
        active = None
        if whole and segments.items and self.recovery_point < end:
            last = segments.items[max(0, segments.at(end - 1))]
            if not any(last is done.segment for done in finished):
                active = last, last.open_file()
        if not finished and active is None and not (whole and self._epochs_dirty):
            return None
        del self._rolled[: len(finished)]
        target = end if whole else finished[-1].segment.next_offset
        assert target is not None
        epochs = self.epochs.dump() if self._epochs_dirty else None
        self._epochs_dirty = False
        return Plan(target, self.path, finished, active, epochs, self._new_names())

    def _new_names(self) -> Names:
        """What has to be synced. Names are new until a sync that began after them has ended: a write must not count on
        one that somebody else is still about to do."""
        folders = [self.path] if self._names_made > self._names_synced else []
        if self._folder_is_new:
            folders.append(os.path.dirname(self.path))
        return Names(self._names_made, folders)

    def _names_are_durable(self, names: Names) -> None:
        self._names_synced = max(self._names_synced, names.made)
        self._folder_is_new = False

    def _flush_failed(self, error: OSError) -> None:
        self._fail(f"flush failed: {error}")
        self._tell()
        self._start_cutting()

    def _flush_postponed(self, plan: Plan) -> None:
        """The disk is full: the next flush tries again."""
        self._rolled[:0] = [(done.segment, done.snapshot) for done in plan.finished]
        self._epochs_dirty |= plan.epochs is not None
        self._start_cutting()

    def _flushed(self, plan: Plan) -> None:
        if self._segments is None:
            return  # closed in the meantime
        self._names_are_durable(plan.names)
        for done in plan.finished:
            assert done.segment.next_offset is not None
            self._segments.snapshots.append(done.segment.next_offset)
            done.segment.release_indexes()
        self._durable_to(plan.target)
        self._start_cutting()

    def _durable_to(self, offset: int) -> None:
        if offset > self.recovery_point:
            self.recovery_point = offset
        if self.recovery_point >= self.end_offset:
            self.dirty_since_ms = -1

    # ---- the ordered writer

    def _use_writer(self) -> Writer:
        if self._writer is None:
            self._writer = Writer(self.env, self._written, self._new_names)
        return self._writer

    def _written(self, done: Done) -> bool:
        """A job of the writer has ended; whether the next one has to sync."""
        if done.error is not None:
            self._writes_lost(done.error)
            return False
        config, segment = self.config, done.segment
        for write in done.writes:
            for position, last_offset, timestamp, size in write.batches:
                segment.add(last_offset, timestamp, position, config.index_interval_bytes, config.max_index_bytes)
                segment.size = position + size
                self.end_offset = last_offset + 1
        if done.synced is not None:
            self._names_are_durable(done.synced)
            if self._rolled or self._epochs_dirty or not self._flushing().idle:
                self._flushing().request(whole=True)
            else:
                self._durable_to(self.end_offset)
        if self._rolled:
            self._flushing().request(whole=False)
        if self._writer is not None and self._writer.idle and done.took_s < SLOW_WRITE_S:
            self._writer = None
        self._tell()
        return self._next_offset - self.recovery_point >= config.flush_messages

    def _writes_lost(self, error: OSError) -> None:
        """Queued batches that were promised a place do not have one. Whoever waits for them has to hear of it, so the
        log fails for a moment even if only the disk is full; then it is cut back to what is written, and goes on."""
        reason = f"write failed: {error}"
        self._fail(reason)
        assert self._writer is not None
        self._writer.drop()
        self._tell()
        if error.errno in PASSING:
            self._cut_for = reason
            self._start_cutting()

    def _start_cutting(self) -> None:
        """Once no flush is running; the callbacks of the flusher come back here."""
        segments = self._segments
        if self._cut_for is None or self._cutting is not None or segments is None or not self._flushing().idle:
            return
        segments.use(Handles(self.env.files))
        self._cutting = self.env.executor.submit(self._cut_back)
        self._cutting.add_done_callback(self._cut_finished)

    def _cut_back(self) -> None:
        raise NotImplementedError

    def _cut_finished(self, cutting: asyncio.Future[None]) -> None:
        reason, self._cut_for, self._cutting = self._cut_for, None, None
        if self._segments is None or cutting.cancelled():
            return
        self._segments.use(self.handles)
        error = cutting.exception()
        if error is None:
            if self._before_cut is not None:
                self.producers.await_again(self._before_cut, self.end_offset)
                self._before_cut = None
            if self.failure is reason:  # and nothing worse has happened since
                self.failure = None
                self._writer = None
                self._availability_changed()
                _logger.warning("The log %s is back; it ends at offset %d.", self.name, self.end_offset)
        elif isinstance(error, OSError):
            self._fail(f"cutting back after a failed write failed as well: {error}")
        else:
            raise error

    # ---- closing

    async def settle(self) -> None:
        """Wait for queued writes and running flushes and give back all handles: what blocks may run in a thread then,
        as long as nobody uses the log."""
        while True:
            if self._writer is not None and self._writer.job is not None:
                await asyncio.wait([self._writer.job])
            elif self._cutting is not None:
                await asyncio.wait([self._cutting])
            elif self._flusher is not None and not self._flusher.idle:
                await self._flusher.wait()
            elif self.swapping is not None:
                await asyncio.wait([self.swapping])
            else:
                break
            await asyncio.sleep(0)  # their callbacks run first
        if self._segments is not None:
            self._segments.use(self.handles)

    def _assert_settled(self) -> None:
        assert self._writer is None or self._writer.idle, "queued writes: await settle() first"
        assert self._flusher is None or self._flusher.idle, "a flush is running: await settle() first"

    def close(self) -> LogState | None:
        """Make everything durable, indexes and producers' state included, so that the next start has nothing to do but
        to believe the state. None if it cannot be believed: the log has failed, and the next start has to look. Blocks.
        The log must be settled."""
        self._while_closing(self._save)
        return self.close_synced()

    def write_down(self, volume: Volume) -> None:
        """The first step of closing many logs at once: write what `close` would, and leave the syncing to the volume.
        Once that is synced, the log is asked to `put_in_place`, the volume is synced again, and `close_synced` ends it.
        At any step `close` may take over. A log that fails says so at the end. Blocks."""
        self._while_closing(partial(self._write_unsynced, volume))

    def put_in_place(self) -> bool:
        """Whether there was something that could not have its name before its content was durable. Blocks."""
        return self._while_closing(self._put_in_place)

    def close_synced(self) -> LogState | None:
        """All that was written is durable: the end of `close`."""
        if self.failure is None and self._segments is not None:
            self.recovery_point = self.end_offset
        state = self.state() if self.failure is None else None
        self.discard()
        return state

    def _while_closing(self, step: Callable[[Segments, Segment], bool]) -> bool:
        """Take a step with handles of our own, in whatever thread this is. There is nothing to do for a log that has
        failed, was not used, or is empty."""
        self._assert_settled()
        segments, active = self._segments, self._active
        if segments is None or active is None or self.failure is not None:
            return False
        segments.use(Handles(self.env.files))
        try:
            return step(segments, active)
        except OSError as error:
            self._fail(f"closing failed: {error}")
            return False
        finally:
            segments.use(Handles(self.env.files))  # closes them: the next step may be far away

    def _save(self, segments: Segments, active: Segment) -> bool:
        files = self.env.files
        self._write_small_files(segments, active, write_file)
        for segment in (*(segment for segment, _ in self._rolled), active):
            segment.open_file().sync()
            if segment.txns is not None:
                segment.txns.sync()
        if self._epochs_dirty:
            self._save_epochs()
        self._names_made += 1  # index and snapshot
        for folder in self._new_names().folders:
            files.sync_dir(folder)
        return True

    def _write_small_files(self, segments: Segments, active: Segment, write: WriteFile) -> None:
        """What lies next to the batches. The active segment's indexes were never written, nor those of the segments
        that no flush has seen since they were finished."""
        files = self.env.files
        ends = [(segment, segment.next_offset, snapshot) for segment, snapshot in self._rolled]
        for segment, end, snapshot in (*ends, (active, self.end_offset, self.producers.snapshot(self.end_offset))):
            segment.finish()
            segment.write_indexes(files, segment.index_data(), write)
            if end is not None and end not in segments.snapshots:
                write(files, segments.snapshot_path(end), snapshot)

    def _write_unsynced(self, volume: Volume, segments: Segments, active: Segment) -> bool:
        if not volume.holds(self.path):
            return self._save(segments, active)
        self._write_small_files(segments, active, write_over)
        if self._epochs_dirty:
            write_over(self.env.files, self._epochs_path + TEMPORARY_SUFFIX, self.epochs.dump())
        return True

    def _put_in_place(self, segments: Segments, active: Segment) -> bool:
        if not self._epochs_dirty:
            return False
        self.env.files.rename(self._epochs_path + TEMPORARY_SUFFIX, self._epochs_path)
        self._epochs_dirty = False
        return True

    def discard(self) -> None:
        """Close all files, leave them as they are, and stop whatever still runs: this log is not used any more."""
        if self.failure is None:
            self.failure = "closed"
        if self._flusher is not None:
            self._flusher.stopped = True
        if self._writer is not None:
            self._writer.drop()
        self._unload()

    def _unload(self) -> None:
        if self._segments is not None:
            self._segments.use(self.handles)
        self._segments = self._active = self._reader = None
