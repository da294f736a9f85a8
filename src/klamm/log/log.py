"""One partition's log: batches in the order of their offsets, on disk.

The log gives out offsets, writes, reads, and knows what of it is durable (`recovery_point`) and what is visible
(`end_offset`). A write goes inline into the page cache as long as that is quick (see `writer.py`); whatever blocks for
long runs in the executor. It must never serve a torn batch, never drop a batch below the recovery point, and never
change anything it has served, other than by `truncate_to`, or by the removal of records in compaction.

A log is used from the loop. What blocks says so: `Log.open` without a state, `load`, `close`, `truncate_to` and
`truncate_and_restart_at` may run in the executor while nobody else uses the log.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.core.env import Env, FileRange
from klamm.core.errors import ErrorCode
from klamm.log import timestamps
from klamm.log.appending import AppendingLog
from klamm.log.base import FRESH, passes
from klamm.log.compaction.plan import Dirt, assess
from klamm.log.config import LogConfig
from klamm.log.handles import Handles
from klamm.log.replay import producers_at
from klamm.log.results import LogState, Rejected, TimestampOffset
from klamm.log.retention import deletable, is_expired
from klamm.log.segment import Segment
from klamm.log.segments import Segments
from klamm.log.txn_index import AbortedTxn
from klamm.records.batch import BatchError, CorruptBatch


class Log(AppendingLog):
    __slots__ = ()

    @classmethod
    def open(
        cls,
        env: Env,
        path: str,
        config: LogConfig,
        *,
        name: str,
        handles: Handles,
        state: LogState | None,
        checkpoint: LogState | None = None,
        on_create: Callable[[], None] | None = None,
        on_availability: Callable[[Log], None] | None = None,
    ) -> Log:
        """A log that was closed cleanly with this state, or a fresh one (all zero): no file is touched now.

        Without a state it is recovered, which blocks; `checkpoint` is then what is known from before the crash.
        `on_create` is called when the first append has made the folder, `on_availability` whenever the log has failed
        or is back: in the executor if that is where it happens."""
        log = cls(env, path, config, name, handles, state or FRESH, on_create, on_availability)
        if state is None:
            log._recover(checkpoint or FRESH)
        return log

    # ---- reading

    def read(self, offset: int, max_bytes: int, *, limit: int, min_one: bool = True) -> FileRange | Rejected | None:
        """The bytes from the batch that holds the offset on, below `limit`; None if there is nothing to give.

        They may end inside of a batch, where no index entry helps to avoid that. The first batch is whole, even if it
        is larger than `max_bytes`; without `min_one` it is left out then."""
        if self.failure is not None:
            return self._offline()
        end_offset = self.end_offset
        if not self.start_offset <= offset <= end_offset:
            return Rejected(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} has offsets {self.start_offset} to {end_offset}, not {offset}",
            )
        if offset >= end_offset or offset >= limit or (max_bytes <= 0 and not min_one):
            return None
        try:
            if self._reader is None:
                self.load()
                if self._reader is None:
                    return self._offline()
            return self._reader.read(offset, max_bytes, limit=limit, end_offset=end_offset, min_one=min_one)
        except (OSError, CorruptBatch) as error:
            return self._unreadable(error)

    def offset_for_timestamp(self, timestamp: int, limit: int) -> TimestampOffset | Rejected | None:
        """The first record at or after the timestamp, below `limit`."""
        try:
            segments = self._loaded()
            if self.failure is not None:  # maybe only now: this was the first to look into its files
                return self._offline()
            return timestamps.first_at_or_after(segments, timestamp, self.start_offset, min(limit, self.end_offset))
        except (OSError, BatchError) as error:
            return self._unreadable(error)

    def max_timestamp_offset(self) -> TimestampOffset | Rejected | None:
        """The record with the largest timestamp."""
        try:
            segments = self._loaded()
            if self.failure is not None:
                return self._offline()
            return timestamps.latest(segments, self.start_offset, self.end_offset)
        except (OSError, BatchError) as error:
            return self._unreadable(error)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where readers of committed records stop: the start of the first open transaction, or the high watermark."""
        unstable = self.producers.first_unstable_offset(high_watermark)
        if unstable is None or unstable > high_watermark:
            return high_watermark
        return max(unstable, self.start_offset)  # its first records may have been deleted

    def aborted_transactions(self, start: int, end: int, read: FileRange | None = None) -> list[AbortedTxn]:
        """Those that overlap with the offsets from `start` and below `end`; given what was read from `start` on, no
        more than those that overlap with that."""
        segments = self._loaded()
        first = max(0, segments.at(start))
        if read is not None:
            end = min(end, segments.bound(first, read, end))
        found: list[AbortedTxn] = []
        for segment in segments.items[first:]:
            entries, complete = segment.transactions().collect(start, end)
            found += entries
            if complete:
                break
        return found

    # ---- maintenance

    def roll(self) -> None:
        """Start a new segment, unless the active one is empty. OSError if that fails."""
        if self.failure is None and self._loaded().items and self._position:
            self._roll(self._clock.time_ms())

    def delete_old_segments(self, now_ms: int, limit_offset: int) -> list[str]:
        """Take segments out of the log that retention does not keep, or that are below its start; the paths of their
        files, renamed, for whoever removes them later. Nothing at or above `limit_offset` goes.

        Only what is flushed goes: by then the name of the segment that follows is durable, and a crash cannot leave the
        log without any. So an expired active segment is finished now and goes in the next round."""
        if self.failure is not None:
            return []
        was_touched = self.touched
        try:
            segments = self._loaded()
            active = self._active if self._position and self.end_offset <= limit_offset else None
            if active is not None and is_expired(active, self.config, now_ms):
                self._roll(now_ms)
            limit = min(limit_offset, self.recovery_point)
            count = deletable(segments, self.config, now_ms, self.start_offset, limit)
            if count:
                return self._delete(segments, count)
        except (OSError, CorruptBatch) as error:
            if not passes(error):  # else the next round tries again
                self._fail(f"old segments cannot be deleted: {error}")
                self._tell()
        if not was_touched:
            self._unload()
        return []

    def _delete(self, segments: Segments, count: int) -> list[str]:
        renamed = segments.set_aside(count)
        self._names_made += 1
        self.advance_start_offset(max(self.start_offset, segments.items[0].base_offset))
        if self._reader is not None:
            self._reader.forget()
        return renamed

    def dirt(self, high_watermark: int, now_ms: int) -> Dirt:
        """What compaction would find to do. OSError or CorruptBatch if the ends of segments cannot be read."""
        was_touched = self.touched
        segments = self._loaded()
        limit = self.recovery_point
        if len(segments.items) > 1:  # most have one: nobody need read their producers for this
            limit = min(limit, self.last_stable_offset(high_watermark))
        dirt = assess(segments, self.config, self.clean_offset, self.start_offset, limit, now_ms)
        if not was_touched and not dirt.is_due(self.config):
            self._unload()
        return dirt

    def replace(self, old: list[Segment], size: int, put_in_place: Callable[[], None]) -> bool:
        """Have one new segment of this size in the place of these, or leave all as it is (False) if they are not what
        they were any more. What `put_in_place` renames must not be seen half done, so this is one step of the loop.
        OSError if it fails in the middle: then the log is offline, and the next start finishes it."""
        segments = self._segments
        if segments is None or self.failure is not None or not segments.has_finished(old):
            return False
        for segment in old:
            self.handles.forget(segment)
        try:
            put_in_place()
        except OSError as error:
            self.fail(f"compacted segments cannot be put into place: {error}")
            raise
        segments.replace(old, size)
        self._names_made += 1
        if self._reader is not None:
            self._reader.forget()
        return True

    def advance_start_offset(self, offset: int) -> Rejected | None:
        """Records below the offset are gone for readers; their segments go with the next round of retention."""
        if self.failure is not None:
            return self._offline()
        if offset > self.end_offset:
            return Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name} ends at {self.end_offset}, below {offset}")
        if offset > self.start_offset:
            self.start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self._epochs_dirty = True
        return None

    def expire_producers(self, now_ms: int) -> bool:
        """Forget some of the producers that were not heard of for long; True while there are more to look at. Those of
        a log that was not used since its clean start wait until it is."""
        if self._producers is None:
            return False
        return self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # ---- truncation

    def batch_start(self, offset: int) -> int:
        """Where the log would end if it were truncated to the offset: after the last batch that lies below it. Reads;
        CorruptBatch or OSError if that fails."""
        segments = self._loaded()
        i = segments.at(offset)
        if i < 0 or offset >= self.end_offset:
            return min(offset, self.end_offset)
        segment = segments.items[i]
        return segment.end_before(segment.locate(offset)[0])

    def truncate_to(self, offset: int) -> None:
        """Drop everything from the batch on that holds the offset. Blocks. OSError if it fails: the log is offline.

        Before this starts, the recovery point in the state file must not be above `batch_start(offset)`: a crash would
        look like lost data otherwise."""
        self._assert_settled()
        if offset >= self._next_offset:
            return
        segments = self._loaded()
        segments.use(Handles(self.env.files))
        try:
            self._truncate(segments, offset)
        except OSError as error:
            self._fail(f"truncation to {offset} failed: {error}")
            raise
        finally:
            segments.use(self.handles)

    def _truncate(self, segments: Segments, offset: int) -> None:
        i = segments.at(offset)
        if i < 0:
            self._restart(segments, offset)
            return
        segments.remove_from(i + 1)
        active = segments.items[i]
        position, _ = active.locate(offset)
        end = active.end_before(position)
        active.cut(end, position, self.config.index_interval_bytes)
        self._rolled = [entry for entry in self._rolled if entry[0] in segments.items[:-1]]
        self._active, self._position = active, position
        segments.remove_snapshots_above(end)
        self._ends_at(end)
        self._producers = producers_at(self.env.files, segments, end, self._clock.time_ms())
        if self.epochs.truncate_from_end(end):
            self._save_epochs()
        self.env.files.sync_dir(self.path)

    def _ends_at(self, end: int) -> None:
        self.end_offset = self._next_offset = end
        self.start_offset = min(self.start_offset, end)
        self.recovery_point = min(self.recovery_point, end)
        self.high_watermark = min(self.high_watermark, end)
        self.clean_offset = min(self.clean_offset, end)
        self._epoch = -1  # looked up again at the next append
        if self._reader is not None:
            self._reader.forget()

    def truncate_and_restart_at(self, offset: int) -> None:
        """Drop everything and go on with this offset, as a follower does that is too far behind. Blocks."""
        self._assert_settled()
        segments = self._loaded()
        segments.use(Handles(self.env.files))
        try:
            self._restart(segments, offset)
        except OSError as error:
            self._fail(f"restarting at {offset} failed: {error}")
            raise
        finally:
            segments.use(self.handles)

    def _restart(self, segments: Segments, offset: int) -> None:
        self.epochs.clear()
        if segments.items:
            self._save_epochs()
        segments.remove_from(0)
        segments.remove_snapshots_above(-1)
        self._rolled = []
        self._active = None
        self._ends_at(offset)
        self.start_offset = self.recovery_point = self.high_watermark = offset
        self.clean_offset = 0
        self.producers.clear()
        self._first_segment(self._clock.time_ms())
        names = self._new_names()
        for folder in names.folders:
            self.env.files.sync_dir(folder)
        self._names_are_durable(names)

    def _cut_back(self) -> None:
        """In the executor, after queued writes were lost: the log ends with what is written."""
        assert self._segments is not None
        self._before_cut = self._producers
        self._truncate(self._segments, self.end_offset)
