"""The way into a log: a batch is checked, gets its offsets, and is written.

A write goes inline into the page cache as long as that is quick; otherwise it queues up for the ordered writer. Nothing
of a batch that is refused may be left, in the files or in what is known of its producer. What a leader takes from
clients and what a follower takes from its leader are here; what happens to a log besides, `base.py` says where.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.core.env import Buffer
from klamm.core.errors import ErrorCode
from klamm.log.config import LogConfig
from klamm.log.durable import DurableLog
from klamm.log.producer_state import Duplicate
from klamm.log.replay import apply, end_marker
from klamm.log.results import Appended, Rejected
from klamm.log.segment import MAX_RELATIVE_OFFSET, PASSING, Segment
from klamm.log.writer import MAX_QUEUED_BYTES, SLOW_WRITE_S, Placed, Write
from klamm.records.batch import (
    CONTROL,
    BatchError,
    BatchHeader,
    assign,
    check,
    iter_batches,
    prefix_bytes,
    read_header,
    stamp_append_time,
    validate,
)
from klamm.records.record import ControlType

_new = tuple.__new__  # half the time of calling a NamedTuple

WritableBuffer = bytearray | memoryview


class AppendingLog(DurableLog):
    __slots__ = ()

    # ---- as the leader

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
            if attributes & CONTROL and producer_id >= 0:
                validate(batches, 0, header, from_client=from_client)
                return self._append_marker(batches, header, leader_epoch, transaction_version, now_ms)
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
                verdict = self._check_producer(header, from_client, transaction_version)
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
            self.producers.update(header, base_offset, last_offset, now_ms, timestamp)
        if leader_epoch != self._epoch:
            self._new_epoch(leader_epoch, base_offset)
        return _new(Appended, (base_offset, last_offset, now_ms if config.log_append_time else -1, False))

    def _append_marker(
        self, batch: WritableBuffer, header: BatchHeader, leader_epoch: int, transaction_version: int, now_ms: int
    ) -> Appended | Rejected:
        """The end of a transaction; no limit of sizes is to stand in its way. If it aborts, the index of the segment
        says so first: with the marker alone, what was aborted would count as committed. BatchError or OSError."""
        marker = end_marker(batch)
        producers = self.producers
        if self.failure is not None:
            return self._offline()  # their state cannot be read
        if marker is None:
            return Rejected(ErrorCode.INVALID_RECORD, "a control batch of a producer that ends no transaction")
        commit = marker.type == ControlType.COMMIT
        refused = producers.check_marker(header, marker.coordinator_epoch, transaction_version=transaction_version)
        if refused is not None:
            return refused
        stamped = self.config.log_append_time
        offset, timestamp = self._next_offset, now_ms if stamped else header.max_timestamp
        segment = self._make_room(header.size, offset, timestamp, now_ms)
        aborted = None if commit else producers.aborted_at(header.producer_id, offset)
        if aborted is not None:
            segment.transactions().append(aborted)
        if stamped:
            stamp_append_time(batch, 0, now_ms)
        assign(batch, 0, offset, leader_epoch)
        refused = self._store(segment, batch, ((self._position, offset, timestamp, header.size),), now_ms)
        if refused is not None:
            if aborted is not None:
                self._take_back(segment, offset)
            return refused
        producers.end_transaction(
            header, offset, commit=commit, coordinator_epoch=marker.coordinator_epoch, now_ms=now_ms
        )
        if leader_epoch != self._epoch:
            self._new_epoch(leader_epoch, offset)
        return Appended(offset, offset, now_ms if stamped else -1)

    def _take_back(self, segment: Segment, offset: int) -> None:
        try:
            segment.transactions().truncate_to(offset)
        except OSError as error:
            self._fail(f"the index of aborted transactions cannot be mended: {error}")

    def _load_now(self) -> Rejected | None:
        """Why the log cannot be loaded at the moment, if it cannot."""
        try:
            self.load()
        except OSError as error:
            return self._unreadable(error)
        return None

    def _unreadable(self, error: Exception) -> Rejected:
        """One place of the log cannot be read; the rest may well be, so the log stays up."""
        return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} cannot be read: {error}")

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

    # ---- as a follower

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

    # ---- writing

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
        self, header: BatchHeader, from_client: bool, transaction_version: int
    ) -> Appended | Rejected | None:
        producers = self.producers
        if self.failure is not None:
            return self._offline()  # their state cannot be read
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
