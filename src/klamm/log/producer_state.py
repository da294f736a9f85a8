"""What a partition remembers of its producers: sequences, epochs and open transactions.

This is the state behind idempotent producers (KIP-98) and behind the last stable offset. Pure: batch headers in,
verdicts out. It must never do I/O, read a clock, or look inside a batch: whoever reads a control batch says what its
marker says. The log asks `check` before it writes a client's batch and tells `update` of every batch that it holds, be
it written, replicated or read again in recovery; the same updates always give the same state.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.core.errors import ErrorCode
from klamm.log.results import Rejected
from klamm.log.txn_index import AbortedTxn
from klamm.records.batch import TRANSACTIONAL, BatchHeader
from klamm.records.checksum import crc32c

REMEMBERED_BATCHES: Final = 5  # as many as a producer may have in flight (max.in.flight.requests.per.connection)
MAX_UNREPLICATED: Final = 1024  # ended transactions that still wait for the high watermark; older ones are merged
MAX_AWAITED: Final = 1000  # unknown producers whose first batch could not be written; the oldest are forgotten
EXPIRE_SLICE: Final = 1000  # producers looked at in one call of `expire`: well under a millisecond

MAX_EPOCH: Final = 0x7FFF
_SEQUENCE_MASK: Final = 0x7FFF_FFFF  # sequences count to 2^31 - 1 and go on at 0

_BATCH = struct.Struct(">iiqqq")  # first sequence, last sequence, base offset, last offset, timestamp
_KEEP_BYTES: Final = (REMEMBERED_BATCHES - 1) * _BATCH.size

_MAGIC: Final = b"KLPS"
_VERSION: Final = 1
_PREFIX = struct.Struct(">4sHI")  # magic, version, CRC-32C of all that follows
_SUMMARY = struct.Struct(">qI")  # the offset it was taken at, number of producers
_PRODUCER = struct.Struct(">qhiqqiB")  # id, epoch, coordinator epoch, last seen, open since, next sequence, batches


class SnapshotError(ValueError):
    """A snapshot that is damaged or from a later version: the state has to be rebuilt from the log."""


class Duplicate(NamedTuple):
    """The batch is in the log already, here; that is the answer its producer missed."""

    base_offset: int
    last_offset: int
    timestamp: int


class Batch(NamedTuple):
    """One of the last batches of a producer."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer:
    """One producer id in one partition: about 400 bytes with five batches, which are kept packed for that reason."""

    __slots__ = ("coordinator_epoch", "epoch", "next_sequence", "recent", "seen_ms", "txn_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.recent = b""
        self.seen_ms = -1
        self.coordinator_epoch = -1
        self.txn_first_offset = -1

    def last_data_offset(self) -> int:
        """-1 if it has written nothing in this epoch, or only markers."""
        return _BATCH.unpack_from(self.recent, len(self.recent) - _BATCH.size)[3] if self.recent else -1

    def batches(self) -> Iterator[Batch]:
        return map(Batch._make, _BATCH.iter_unpack(self.recent))


class ProducerStates:
    __slots__ = ("_awaited", "_expiring", "_open", "_producers", "_unreplicated")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # first offset -> producer id, in the order of offsets
        self._unreplicated: deque[tuple[int, int]] | None = None  # (first, last) offsets, both growing
        self._awaited: dict[int, tuple[int, int]] | None = None  # id -> (epoch, sequence) that has to come first
        self._expiring: list[int] | None = None  # producer ids that the current round of `expire` has yet to see

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def items(self) -> Iterator[tuple[int, Producer]]:
        return iter(self._producers.items())

    # ---- before a batch is written

    def check(
        self, header: BatchHeader, *, sequenced: bool = True, transaction_version: int = 0
    ) -> Duplicate | Rejected | None:
        """Whether a data batch with a producer id may be written: None if so.

        `sequenced` is false for what our own coordinators write in a producer's name: no sequence, only an epoch.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return self._check_first(header, transaction_version) if sequenced else None
        if header.producer_epoch == producer.epoch:
            if header.base_sequence != producer.next_sequence and sequenced:
                return _not_next(header, producer)
        elif header.producer_epoch < producer.epoch:
            return _old_epoch(header, producer)
        elif header.base_sequence != 0 and sequenced:
            return Rejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} has to start its new epoch {header.producer_epoch} at sequence 0, "
                f"not at {header.base_sequence}.",
            )
        if producer.txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            return Rejected(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has an open transaction and sent a batch outside of it.",
            )
        return None

    def _check_first(self, header: BatchHeader, transaction_version: int) -> Rejected | None:
        """The first batch of a producer that is not known (any more).

        Kafka takes any sequence then: the state may be gone because its records were deleted or because it expired,
        and refusing would stop an honest producer for good. A producer of transaction version 2 (KIP-890) has a new
        epoch for each transaction and so always starts at 0: for it anything else means that earlier batches were
        lost. And we remember a first batch that we could not write (`not_written`).
        """
        first = header.base_sequence
        if first < 0:
            return _no_sequence(header)
        expected = 0 if transaction_version >= 2 else first
        if self._awaited is not None:
            epoch, sequence = self._awaited.get(header.producer_id, (-1, -1))
            if epoch == header.producer_epoch:
                expected = sequence
        if first == expected:
            return None
        return Rejected(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} is not known here and has to start at sequence {expected}, not at {first}.",
        )

    def not_written(self, header: BatchHeader) -> None:
        """A batch that passed `check` was not written after all (the disk was full), and its producer sends it again.

        A producer that is known has a next sequence. One that is not could go on with the batch behind this one, if
        that is on its way already, and this one would be lost: so it has to come first.
        """
        if header.producer_id >= 0 and header.base_sequence >= 0 and header.producer_id not in self._producers:
            self._await(header.producer_id, header.producer_epoch, header.base_sequence)

    def _await(self, producer_id: int, epoch: int, sequence: int) -> None:
        if self._awaited is None:
            self._awaited = {}
        known_epoch, known_sequence = self._awaited.get(producer_id, (-1, -1))
        if epoch > known_epoch or (epoch == known_epoch and sequence < known_sequence):
            self._awaited[producer_id] = (epoch, sequence)
        if len(self._awaited) > MAX_AWAITED:
            del self._awaited[next(iter(self._awaited))]

    def await_again(self, before: ProducerStates, end_offset: int) -> None:
        """The log was cut back to `end_offset` because batches behind it could not be written; `before` is the state
        that has them. Producers that are not known any more have to send what was lost first."""
        for producer_id, producer in before.items():
            if producer_id not in self._producers:
                lost = [batch.first_sequence for batch in producer.batches() if batch.base_offset >= end_offset]
                if lost:
                    self._await(producer_id, producer.epoch, lost[0])
        for producer_id, (epoch, sequence) in (before._awaited or {}).items():
            if producer_id not in self._producers:
                self._await(producer_id, epoch, sequence)

    def check_marker(
        self, header: BatchHeader, coordinator_epoch: int, *, transaction_version: int = 0
    ) -> Rejected | None:
        """Whether a commit or abort marker may be written. Markers come from a transaction coordinator and are fenced
        by the producer's and by the coordinator's epoch.

        Since transaction version 2 the coordinator raises the epoch before it writes the marker, so one with the
        current epoch is late, unless the transaction has ended: then it is the same marker again, and does no harm.
        The largest epoch cannot be raised: a transaction that got to be in it ends by a marker of the same.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        late = (
            transaction_version >= 2
            and header.producer_epoch == producer.epoch
            and producer.txn_first_offset >= 0
            and producer.epoch < MAX_EPOCH
        )
        if late or header.producer_epoch < producer.epoch:
            return _old_epoch(header, producer)
        if coordinator_epoch < producer.coordinator_epoch:
            return Rejected(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The marker for producer {header.producer_id} comes from coordinator epoch {coordinator_epoch}; "
                f"epoch {producer.coordinator_epoch} has taken over.",
            )
        return None

    # ---- a batch is in the log: nothing is refused any more, the log is the truth

    def update(
        self, header: BatchHeader, base_offset: int, last_offset: int, now_ms: int, timestamp: int | None = None
    ) -> None:
        """Take in a data batch with a producer id.

        `timestamp` is the append time where the topic has one; otherwise the batch's own counts. `now_ms` is when the
        producer was last heard of. It is the clock, in recovery too, and not the timestamps of records: those are the
        client's, and old ones would let an active producer expire.
        """
        producer = self._seen(header, now_ms)
        first = header.base_sequence
        if first >= 0:
            last = first + header.last_offset_delta & _SEQUENCE_MASK
            producer.next_sequence = last + 1 & _SEQUENCE_MASK
            producer.recent = producer.recent[-_KEEP_BYTES:] + _BATCH.pack(
                first, last, base_offset, last_offset, header.max_timestamp if timestamp is None else timestamp
            )
        if producer.txn_first_offset < 0 and header.attributes & TRANSACTIONAL:
            producer.txn_first_offset = base_offset
            self._open[base_offset] = header.producer_id

    def end_transaction(
        self, header: BatchHeader, offset: int, *, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> AbortedTxn | None:
        """Take in a commit or abort marker. What it returns belongs into the transaction index."""
        producer = self._seen(header, now_ms)
        producer.coordinator_epoch = coordinator_epoch
        first = producer.txn_first_offset
        if first < 0:
            return None  # nothing of that transaction was written to this partition
        aborted = None if commit else self.aborted_at(header.producer_id, offset)
        producer.txn_first_offset = -1
        del self._open[first]
        self._wait_for_high_watermark(first, offset)
        return aborted

    def aborted_at(self, producer_id: int, offset: int) -> AbortedTxn | None:
        """What an abort marker at this offset would put into the transaction index, if the producer has anything to
        abort."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.txn_first_offset < 0:
            return None
        first = producer.txn_first_offset
        undecided = next((start for start in self._open if start != first), offset + 1)
        return AbortedTxn(producer_id, first, offset, undecided)

    def _seen(self, header: BatchHeader, now_ms: int) -> Producer:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch)
            if self._awaited is not None:
                self._awaited.pop(header.producer_id, None)
                self._awaited = self._awaited or None
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.next_sequence = 0
            producer.recent = b""
        producer.seen_ms = now_ms
        return producer

    # ---- transactions

    def first_undecided_offset(self) -> int | None:
        """Where the oldest transaction without a marker starts."""
        return next(iter(self._open), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction starts that has no marker, or none below the high watermark."""
        undecided = self.first_undecided_offset()
        waiting = self._unreplicated
        if waiting is None:
            return undecided
        while waiting and waiting[0][1] < high_watermark:
            waiting.popleft()
        if not waiting:
            self._unreplicated = None
            return undecided
        return waiting[0][0] if undecided is None else min(undecided, waiting[0][0])

    def open_transactions(self) -> list[tuple[int, int]]:
        """(first offset, producer id) of the transactions without a marker, oldest first."""
        return list(self._open.items())

    def _wait_for_high_watermark(self, first: int, last: int) -> None:
        """Remember an ended transaction until its marker is replicated: before that it is still unstable.

        Only the lowest start matters among those whose markers are not replicated, so a later transaction that
        started earlier replaces the ones before it, and the list stays sorted both ways. Where nobody asks for the
        last stable offset it would grow; past the bound the two oldest become one, which only errs to the safe side.
        """
        waiting = self._unreplicated
        if waiting is None:
            waiting = self._unreplicated = deque()
        while waiting and waiting[-1][0] >= first:
            waiting.pop()
        waiting.append((first, last))
        if len(waiting) > MAX_UNREPLICATED:
            oldest, _ = waiting.popleft()
            _, end = waiting.popleft()
            waiting.appendleft((oldest, end))

    # ---- expiry

    def expire(self, now_ms: int, expiration_ms: int, limit: int = EXPIRE_SLICE) -> bool:
        """Forget producers that were not heard of for so long and have no open transaction; looks at `limit` of them.
        True while the round has more to look at."""
        if self._expiring is None:
            self._expiring = list(self._producers)
        producers = self._producers
        for _ in range(min(limit, len(self._expiring))):
            producer_id = self._expiring.pop()
            producer = producers.get(producer_id)
            if producer and producer.txn_first_offset < 0 and now_ms - producer.seen_ms >= expiration_ms:
                del producers[producer_id]
        if self._expiring:
            return True
        self._expiring = None
        return False

    # ---- snapshots

    def clear(self) -> None:
        self._producers.clear()
        self._open.clear()
        self._unreplicated = None
        self._awaited = None
        self._expiring = None

    def snapshot(self, offset: int) -> bytes:
        """The state as bytes, for a log that ends at `offset`. What waits for the high watermark is not in it: a
        snapshot is loaded again only where the log is cut or reopened, at or below the high watermark."""
        parts = [b"", _SUMMARY.pack(offset, len(self._producers))]
        for producer_id, p in self._producers.items():
            count = len(p.recent) // _BATCH.size
            parts.append(
                _PRODUCER.pack(
                    producer_id, p.epoch, p.coordinator_epoch, p.seen_ms, p.txn_first_offset, p.next_sequence, count
                )
            )
            parts.append(p.recent)
        body = b"".join(parts)
        return _PREFIX.pack(_MAGIC, _VERSION, crc32c(body)) + body

    def load(self, data: bytes) -> int:
        """Replace the state by a snapshot's; returns the offset it was taken at, from where the log is replayed."""
        offset, producers = _parse(data)
        self.clear()
        self._producers = producers
        opened = [(p.txn_first_offset, producer_id) for producer_id, p in producers.items() if p.txn_first_offset >= 0]
        self._open = dict(sorted(opened))
        return offset


def _not_next(header: BatchHeader, producer: Producer) -> Duplicate | Rejected:
    """A batch of the current epoch that does not follow the last one: seen before, or out of order."""
    first = header.base_sequence
    if first < 0:
        return _no_sequence(header)
    last = first + header.last_offset_delta & _SEQUENCE_MASK
    for batch in _BATCH.iter_unpack(producer.recent):
        if batch[0] == first and batch[1] == last:
            return Duplicate(*batch[2:])
    return Rejected(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {header.producer_id} sent sequence {first} where {producer.next_sequence} was next.",
    )


def _old_epoch(header: BatchHeader, producer: Producer) -> Rejected:
    return Rejected(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Producer {header.producer_id} has epoch {producer.epoch} here; epoch {header.producer_epoch} came too late.",
    )


def _no_sequence(header: BatchHeader) -> Rejected:
    return Rejected(ErrorCode.INVALID_RECORD, f"Producer {header.producer_id} sent a batch without a sequence.")


def _parse(data: bytes) -> tuple[int, dict[int, Producer]]:
    if len(data) < _PREFIX.size + _SUMMARY.size:
        raise SnapshotError("the producer snapshot is too short")
    magic, version, crc = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise SnapshotError("this is not a producer snapshot of Klamm")
    if version != _VERSION:
        raise SnapshotError(f"the producer snapshot has version {version}; this broker reads {_VERSION}")
    if crc32c(memoryview(data)[_PREFIX.size :]) != crc:
        raise SnapshotError("the producer snapshot's checksum is wrong")
    offset, count = _SUMMARY.unpack_from(data, _PREFIX.size)
    at = _PREFIX.size + _SUMMARY.size
    producers: dict[int, Producer] = {}
    try:
        for _ in range(count):
            producer_id, epoch, coordinator_epoch, seen_ms, first_offset, next_sequence, batches = (
                _PRODUCER.unpack_from(data, at)
            )
            at += _PRODUCER.size
            producer = producers[producer_id] = Producer(epoch)
            producer.coordinator_epoch = coordinator_epoch
            producer.seen_ms = seen_ms
            producer.txn_first_offset = first_offset
            producer.next_sequence = next_sequence
            producer.recent = data[at : at + batches * _BATCH.size]
            at += batches * _BATCH.size
    except struct.error as error:
        raise SnapshotError("the producer snapshot ends too early") from error
    if at != len(data):
        raise SnapshotError("the producer snapshot has a wrong length")
    return offset, producers
