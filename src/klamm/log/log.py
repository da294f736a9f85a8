"""One partition's log: batches in the order of their offsets, on disk.

The log gives out offsets, writes, reads, and knows what of it is durable (`recovery_point`) and what is visible
(`end_offset`). A write goes inline into the page cache as long as that is quick (see `writer.py`); whatever blocks for
long runs in the executor. It must never serve a torn batch, never drop a batch below the recovery point, and never
change anything it has served, other than by `truncate_to`, or by the removal of records in compaction.

A log is used from the loop. What blocks says so: `Log.open` without a state, `load`, `close`, `truncate_to` and
`truncate_and_restart_at` may run in the executor while nobody else uses the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klamm.core.env import Buffer, Env, FileRange
from klamm.core.errors import ErrorCode
from klamm.log import timestamps
from klamm.log.base import FRESH, LogBase, passes
from klamm.log.compaction.plan import Dirt, assess
from klamm.log.config import LogConfig
from klamm.log.handles import Handles
from klamm.log.producer_state import Duplicate
from klamm.log.replay import apply, end_marker, producers_at
from klamm.log.results import Appended, LogState, Rejected, TimestampOffset
from klamm.log.retention import deletable, is_expired
from klamm.log.segment import MAX_RELATIVE_OFFSET, PASSING, Segment
from klamm.log.segments import Segments
from klamm.log.txn_index import AbortedTxn
from klamm.log.writer import MAX_QUEUED_BYTES, SLOW_WRITE_S, Placed, Write
from klamm.records.batch import (
    CONTROL,
    BatchError,
    BatchHeader,
    CorruptBatch,
    assign,
    check,
    iter_batches,
    prefix_bytes,
    read_header,
    stamp_append_time,
    validate,
)

_new = tuple.__new__  # half the time of calling a NamedTuple

WritableBuffer = bytearray | memoryview


class Log(LogBase):
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

    # ---- appending

    def append(
        self,
        batches: WritableBuffer,
        *,
        leader_epoch: int,
        from_client: bool = True,
        transaction_version: int = 0,
    ) -> Appended | Rejected:
        """Check a batch, give it its offsets, in place, and write it. The broker's own appends may hold several.

        `transaction_version` is that of the transaction which the batch belongs to or, being its marker, ends."""
        if self._segments is None and (unloaded := self._load_now()) is not None:
            return unloaded
        if self.failure is not None:
            return self._refused(batches)
        config = self.config
        now_ms = self._clock.time_ms()
        try:
            header = read_header(batches)
            # one unpacking costs as much as two attributes
            _, length, _, _, _, attributes, last_delta, base_timestamp, timestamp, producer_id, _, _, _ = header
            size = length + prefix_bytes
            if size < len(batches):
                return self._append_each(batches, leader_epoch, from_client, transaction_version)
            if size > config.max_message_bytes or size > config.segment_bytes:
                return _too_large(size, config)
            validate(batches, 0, header, from_client=from_client)
            if config.log_append_time:
                timestamp = now_ms
            elif timestamp > now_ms + config.timestamp_after_max_ms or (
                0 <= base_timestamp < now_ms - config.timestamp_before_max_ms
            ):
                return _bad_timestamp(header, now_ms)
            if producer_id >= 0:
                verdict = self._check_producer(header, batches, from_client, transaction_version)
                if verdict is not None:
                    return verdict
            base_offset = self._next_offset
            last_offset = base_offset + last_delta
            segment = self._active
            if segment is None or segment.rolls_before(config, self._position, size, last_offset, timestamp, now_ms):
                segment = self._make_room(size, last_offset, timestamp, now_ms)
        except BatchError as error:
            return Rejected(error.code, str(error))
        except OSError as error:
            if header.producer_id >= 0 and self._producers is not None:
                self._producers.not_written(header)
            return self._write_failed(error, None)
        if config.log_append_time:
            stamp_append_time(batches, 0, now_ms)
        assign(batches, 0, base_offset, leader_epoch)
        refused = self._store(segment, batches, ((self._position, last_offset, timestamp, size),), now_ms)
        if refused is not None:
            if header.producer_id >= 0:
                self.producers.not_written(header)
            return refused
        if producer_id >= 0:
            if attributes & CONTROL:
                self._note_marker(header._replace(base_offset=base_offset), batches, now_ms)
            else:
                self.producers.update(header, base_offset, last_offset, now_ms, timestamp)
        if leader_epoch != self._epoch:
            self._new_epoch(leader_epoch, base_offset)
        return _new(Appended, (base_offset, last_offset, now_ms if config.log_append_time else -1, False))

    def _load_now(self) -> Rejected | None:
        """Why the log cannot be loaded at the moment, if it cannot."""
        try:
            self.load()
        except OSError as error:
            return self._unreadable(error)
        return None

    def _refused(self, batches: WritableBuffer) -> Rejected:
        """The log is offline. If only until it is cut back, because the disk was full, it matters who was refused: what
        a new producer has sent behind this batch must not be taken for its first."""
        if self._cut_for is not None and self._producers is not None:
            try:
                self._producers.not_written(read_header(batches))
            except BatchError:
                pass
        return self._offline()

    def _append_each(
        self, batches: WritableBuffer, leader_epoch: int, from_client: bool, transaction_version: int
    ) -> Appended | Rejected:
        """Several batches at once, only for the broker itself. They are written one after another: if one is refused,
        those before it stay."""
        if from_client:
            return Rejected(ErrorCode.INVALID_RECORD, "a client sends one batch for each partition, not several")
        view = memoryview(batches)
        first: Appended | None = None
        position = 0
        while position < len(view):
            size = read_header(view, position).size
            result = self.append(
                view[position : position + size],
                leader_epoch=leader_epoch,
                from_client=False,
                transaction_version=transaction_version,
            )
            if isinstance(result, Rejected):
                return result
            first = first or result
            position += size
        assert first is not None
        return first._replace(last_offset=self._next_offset - 1)

    def append_as_follower(self, batches: Buffer) -> Appended | Rejected:
        """Append what the leader sent, as it is: offsets, epochs and timestamps are the leader's. A partial batch at
        the end, as fetch answers have, is left out."""
        if self._segments is None and (unloaded := self._load_now()) is not None:
            return unloaded
        if self.failure is not None:
            return self._offline()
        now_ms = self._clock.time_ms()
        found: list[tuple[int, BatchHeader]] = []
        expected = self._next_offset
        try:
            for position, header in iter_batches(batches):
                check(batches, position, header)
                if header.base_offset < expected:
                    return _out_of_order(header, expected)
                expected = header.next_offset
                found.append((position, header))
            if not found:
                return Rejected(ErrorCode.CORRUPT_MESSAGE, "the leader's answer holds no whole batch")
            refused = self._store_runs(memoryview(batches), found, now_ms)
        except BatchError as error:
            return Rejected(error.code, str(error))
        except OSError as error:
            return self._write_failed(error, None)
        if refused is not None:
            return refused
        return Appended(found[0][1].base_offset, expected - 1, -1)

    def _store_runs(self, batches: memoryview, found: list[tuple[int, BatchHeader]], now_ms: int) -> Rejected | None:
        """Write the batches, as many at once as go into the same segment."""
        i = 0
        while i < len(found):
            start, header = found[i]
            segment = self._active
            timestamp = header.max_timestamp
            if segment is None or segment.rolls_before(
                self.config, self._position, header.size, header.last_offset, timestamp, now_ms
            ):
                segment = self._make_room(header.size, header.last_offset, timestamp, now_ms)
            position = self._position
            run: list[tuple[int, int, int, int]] = []
            first = i
            while i < len(found):
                header = found[i][1]
                size, last, timestamp = header.size, header.last_offset, header.max_timestamp
                if run and segment.rolls_before(self.config, position, size, last, timestamp, now_ms):
                    break
                run.append((position, last, timestamp, size))
                position += size
                i += 1
            refused = self._store(segment, batches[start : start + position - self._position], run, now_ms)
            if refused is not None:
                return refused
            for at, header in found[first:i]:
                if header.leader_epoch != self._epoch:
                    self._new_epoch(header.leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    self._note_marker(header, batches[at : at + header.size], now_ms)
        return None

    def _make_room(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """The segment that takes a batch: the first one, or the next one where it does not fit. OSError if its file
        cannot be made; BatchError if no segment can."""
        segment = self._active or self._first_segment(now_ms)
        if segment.rolls_before(self.config, self._position, size, last_offset, timestamp, now_ms):
            segment = self._roll(now_ms)
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            raise BatchError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {last_offset} is too far from the log's end, {self._next_offset}",
            )
        return segment

    def _store(self, segment: Segment, data: Buffer, batches: Sequence[Placed], now_ms: int) -> Rejected | None:
        """Write batches that have their places in the active segment, now or through the ordered writer."""
        config = self.config
        next_offset = batches[-1][1] + 1
        if self._writer is not None or next_offset - self.recovery_point >= config.flush_messages:
            return self._enqueue(segment, data, batches, now_ms)
        clock = self._clock
        try:
            file = segment.file or segment.open_file()
            segment.file_used = True
            started = clock.monotonic()
            file.pwrite(data, self._position)  # not `append`: a handle that was opened anew need not stand at the end
        except OSError as error:
            return self._write_failed(error, segment)
        if clock.monotonic() - started > SLOW_WRITE_S:
            self._use_writer()
        for position, last_offset, timestamp, size in batches:
            segment.add(last_offset, timestamp, position, config.index_interval_bytes, config.max_index_bytes)
            self._position = segment.size = position + size
        self._next_offset = self.end_offset = next_offset
        if self.dirty_since_ms < 0:
            self.dirty_since_ms = now_ms
        return None

    def _enqueue(self, segment: Segment, data: Buffer, batches: Sequence[Placed], now_ms: int) -> Rejected | None:
        writer = self._use_writer()
        if writer.queued_bytes + len(data) > MAX_QUEUED_BYTES:
            # retriable, and the clients' back-off is what the disk needs
            return Rejected(ErrorCode.REQUEST_TIMED_OUT, f"{self.name}: the disk is behind with its writes")
        position, last_offset, _, size = batches[-1]
        self._position = position + size
        self._next_offset = last_offset + 1
        if self.dirty_since_ms < 0:
            self.dirty_since_ms = now_ms
        sync = self._next_offset - self.recovery_point >= self.config.flush_messages
        writer.put(Write(segment, bytes(data), batches), sync=sync)
        return self._offline() if self.failure is not None else None

    def _write_failed(self, error: OSError, segment: Segment | None) -> Rejected:
        """An inline write, or the making of a file, has failed. A full disk, or too many open files, is no reason to
        stop: what was written of the batch is cut off again."""
        if error.errno in PASSING:
            try:
                if segment is not None and segment.file is not None:  # otherwise it could not even be opened
                    segment.file.truncate(segment.size)
                return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error.strerror}")
            except OSError as second:
                error = second
        self._fail(f"write failed: {error}")
        return self._offline()

    def _check_producer(
        self, header: BatchHeader, batch: WritableBuffer, from_client: bool, transaction_version: int
    ) -> Appended | Rejected | None:
        producers = self.producers
        if self.failure is not None:
            return self._offline()  # their state cannot be read
        if header.attributes & CONTROL:
            marker = end_marker(batch)
            if marker is None:
                return None
            return producers.check_marker(header, marker.coordinator_epoch, transaction_version=transaction_version)
        verdict = producers.check(header, sequenced=from_client, transaction_version=transaction_version)
        if isinstance(verdict, Duplicate):
            time_ms = verdict.timestamp if self.config.log_append_time else -1
            return Appended(verdict.base_offset, verdict.last_offset, time_ms, True)
        return verdict

    def _note_marker(self, header: BatchHeader, batch: Buffer, now_ms: int) -> None:
        """Take in a batch with a producer id, which may be the marker that ends its transaction."""
        aborted = apply(self.producers, header, lambda: bytes(batch), now_ms)
        if aborted is not None:
            assert self._active is not None
            try:
                self._active.transactions().append(aborted)
            except OSError as error:
                self._fail(f"the index of aborted transactions cannot be written: {error}")

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

    def _unreadable(self, error: Exception) -> Rejected:
        """One place of the log cannot be read; the rest may well be, so the log stays up."""
        return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} cannot be read: {error}")

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


def _too_large(size: int, config: LogConfig) -> Rejected:
    if size > config.max_message_bytes:
        return Rejected(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes, where {config.max_message_bytes} are allowed"
        )
    return Rejected(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes does not fit into segments of {config.segment_bytes}"
    )


def _bad_timestamp(header: BatchHeader, now_ms: int) -> Rejected:
    return Rejected(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamps from {header.base_timestamp} to {header.max_timestamp} are too far from the broker's, {now_ms}",
    )


def _out_of_order(header: BatchHeader, expected: int) -> Rejected:
    return Rejected(
        ErrorCode.OFFSET_OUT_OF_RANGE, f"a batch with offset {header.base_offset} where {expected} is the next one"
    )
