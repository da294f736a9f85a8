"""Appends whose batch cannot just be stored: its topic asks for another codec, or, as it is compacted, for keys.

A small batch is dealt with where it is. A large one goes to a thread, and whatever comes for its partition meanwhile
lines up behind it, so that batches are appended in the order in which they came: a producer's sequence numbers depend
on it. Threads, and the bytes that wait in one line, are bounded. This module must never reorder, and never append for a
broker that has stopped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from klamm.core.env import Executor
from klamm.core.errors import ErrorCode
from klamm.log.appending import WritableBuffer
from klamm.log.config import LogConfig
from klamm.log.log import Log
from klamm.log.results import Appended, Rejected
from klamm.records.batch import CODEC_MASK, BatchError, read_header
from klamm.records.compression import MAX_DECOMPRESSED_BYTES, Codec, Compression
from klamm.records.keyed import records_without_key
from klamm.records.recompress import recompress

if TYPE_CHECKING:
    from klamm.replica.partition import Partition

INLINE_BYTES = 16 * 1024
"""Batches of up to this, sent and decompressed, are worth no thread: 0.1 ms mostly, 2 ms with the slowest level."""
KEYS_INLINE_BYTES = 64 * 1024
"""The same for uncompressed batches that only have to be looked at: 0.1 ms, and 1 ms without the native kernel."""
MAX_RECORD_ERRORS = 1000
"""Records that a refusal names. The others of the batch are refused with them anyway."""
MAX_JOBS = 2
"""Threads that do this at a time. The others are for the disk; and each may hold two times the cap on a batch."""
MAX_WAITING_BYTES = 32 << 20
"""As sent, for each partition. Beyond that, a producer has to come again."""

_ATTRIBUTES_LOW_BYTE = 22  # of a batch: where the codec is
_STOPPED = Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker stops")

Deferred: TypeAlias = "asyncio.Future[Appended | Rejected]"


class Wanted(NamedTuple):
    """What has to be done to a batch before it is stored."""

    compression: Compression | None  # None: it is compressed as it should be
    keyed: bool  # refuse it if a record has no key

    def inline_bytes(self, records: WritableBuffer, inline_bytes: int) -> int:
        """How large a batch may be to be dealt with at once."""
        if self.compression is None and records[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK == Codec.NONE:
            return inline_bytes * KEYS_INLINE_BYTES // INLINE_BYTES
        return inline_bytes


def wanted_of(records: WritableBuffer, config: LogConfig) -> Wanted | None:
    """None if a batch can be stored as it is, or if it is for the log to refuse: it is too short to be seen what it
    is, or too large."""
    if len(records) <= _ATTRIBUTES_LOW_BYTE or len(records) > config.max_message_bytes:
        return None
    compression = config.compression
    if compression is not None and records[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK == compression.codec:
        compression = None
    return Wanted(compression, config.compact) if compression is not None or config.compact else None


def _without_key(records: WritableBuffer, max_bytes: int) -> Rejected | None:
    missing = records_without_key(records, max_bytes)
    if not missing:
        return None
    why = "a record without a key, in a topic that is compacted"
    named = [(index, why) for index in missing[:MAX_RECORD_ERRORS]]
    return Rejected(ErrorCode.INVALID_RECORD, f"{len(missing)} records have no key: the topic is compacted", named)


def _prepared(records: bytearray, wanted: Wanted, most_bytes: int) -> bytearray | Rejected:
    """In a thread. What is larger than the log takes is refused here already: while it waits in its line it would take
    a hundred thousand times the memory of what was sent."""
    try:
        if wanted.keyed and (refused := _without_key(records, MAX_DECOMPRESSED_BYTES)) is not None:
            return refused
        if wanted.compression is None:
            return records
        if wanted.compression.codec == Codec.NONE:
            return recompress(records, wanted.compression, min(most_bytes, MAX_DECOMPRESSED_BYTES))
        recoded = recompress(records, wanted.compression)
    except BatchError as error:
        return Rejected(error.code, str(error))
    if len(recoded) > most_bytes:
        message = f"a batch of {len(recoded)} bytes once compressed anew, where {most_bytes} are allowed"
        return Rejected(ErrorCode.MESSAGE_TOO_LARGE, message)
    return recoded


class _Entry:
    """One append in its partition's line."""

    __slots__ = ("acks", "future", "line", "most_bytes", "outcome", "records", "wanted")

    def __init__(self, line: Line, records: bytearray, acks: int, wanted: Wanted | None, most_bytes: int) -> None:
        self.line = line
        self.records = records
        self.acks = acks
        self.wanted = wanted
        self.most_bytes = most_bytes
        self.outcome: bytearray | Rejected | BaseException | None = None  # None: still to come
        self.future: Deferred = asyncio.get_running_loop().create_future()


class Recoder:
    """What does this for all partitions, at once or in threads."""

    __slots__ = ("_executor", "_inline_bytes", "_jobs", "_running", "closed")

    def __init__(self, executor: Executor, inline_bytes: int = INLINE_BYTES) -> None:
        self._executor = executor
        self._inline_bytes = inline_bytes
        self._jobs: deque[_Entry] = deque()
        self._running = 0
        self.closed = False

    def at_once(self, records: WritableBuffer, wanted: Wanted) -> WritableBuffer | Rejected | None:
        """The batch as wanted; None if that would take too long here."""
        inline_bytes = wanted.inline_bytes(records, self._inline_bytes)
        if len(records) > inline_bytes:
            return None
        try:
            if wanted.keyed and (refused := _without_key(records, inline_bytes)) is not None:
                return refused
            return records if wanted.compression is None else recompress(records, wanted.compression, inline_bytes)
        except BatchError as error:
            return None if error.code == ErrorCode.MESSAGE_TOO_LARGE else Rejected(error.code, str(error))

    def submit(self, entry: _Entry) -> None:
        self._jobs.append(entry)
        self._start()

    def _start(self) -> None:
        while self._jobs and self._running < MAX_JOBS:
            entry = self._jobs.popleft()
            self._running += 1
            assert entry.wanted is not None
            job = self._executor.submit(_prepared, entry.records, entry.wanted, entry.most_bytes)
            job.add_done_callback(partial(self._finished, entry))

    def _finished(self, entry: _Entry, job: asyncio.Future[bytearray | Rejected]) -> None:
        self._running -= 1
        if job.cancelled():
            return  # the loop is going down
        entry.outcome = job.exception() or job.result()
        entry.line.advance()
        self._start()

    def close(self) -> None:
        """The logs are about to close: whoever is still in a line is refused."""
        self.closed = True
        while self._jobs:
            entry = self._jobs.popleft()
            entry.outcome = _STOPPED
            entry.line.advance()


class Line:
    """The appends of one partition, from the first that waits for a thread to the last behind it."""

    __slots__ = ("_bytes", "_entries", "_partition", "_recoder")

    def __init__(self, partition: Partition, recoder: Recoder) -> None:
        self._partition = partition
        self._recoder = recoder
        self._entries: deque[_Entry] = deque()
        self._bytes = 0

    def put(self, records: WritableBuffer, acks: int, wanted: Wanted | None, log: Log) -> Deferred | Rejected:
        """Append when it is its turn. The records are copied: their memory is the connection's."""
        if self._bytes + len(records) > MAX_WAITING_BYTES and self._entries:
            self._note_refused(records, log)
            return Rejected(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self._partition.topic}-{self._partition.index}: the broker is behind with what producers send",
            )
        entry = _Entry(self, bytearray(records), acks, wanted, log.config.max_message_bytes)
        self._entries.append(entry)
        self._bytes += len(entry.records)
        if self._recoder.closed:
            entry.outcome = _STOPPED
            self.advance()
        elif wanted is None:
            entry.outcome = entry.records  # somebody is before it
        else:
            self._recoder.submit(entry)
        return entry.future

    def _note_refused(self, records: WritableBuffer, log: Log) -> None:
        """What a new producer has sent behind this batch must not be taken for its first; unless that is in the line:
        then the log will know the producer."""
        try:
            header = read_header(records)
            if any(read_header(entry.records).producer_id == header.producer_id for entry in self._entries):
                return
            log.producers.not_written(header)
        except (BatchError, OSError):
            pass  # no batch, or a log whose producers cannot be read now: it says so to whoever appends next

    def advance(self) -> None:
        """Append those at the head that are ready; the line is gone with its last."""
        entries = self._entries
        while entries and entries[0].outcome is not None:
            entry = entries.popleft()
            self._bytes -= len(entry.records)
            if not entries:
                self._partition.line = None  # before the append: it may be the last thing that happens
            self._settle(entry)

    def _settle(self, entry: _Entry) -> None:
        """Must not raise: those behind it in the line have to be served, and whoever waits for it to be told."""
        outcome, future, partition = entry.outcome, entry.future, self._partition
        result: Appended | Rejected | Deferred | BaseException
        if self._recoder.closed:
            result = _STOPPED
        elif isinstance(outcome, bytearray):
            try:
                result = partition.append(outcome, entry.acks, as_is=True)
                partition.wake()
            except Exception as error:  # noqa: BLE001 - it goes to who waits, as from any other handler
                result = error
        else:
            assert outcome is not None, "not ready"
            result = outcome
        if future.done():
            return  # cancelled: nobody waits for it any more
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            assert not isinstance(result, asyncio.Future), "deferred twice"
            future.set_result(result)
