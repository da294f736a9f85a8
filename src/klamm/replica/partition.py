"""One partition as this broker serves it: its log, who leads it under which epoch, and how much of it may be seen.

Reads and appends here are what the leader does; a partition that another broker leads answers with that error and
the leader's name. The high watermark is kept apart from the log's end: with one replica they move together, with more
`_advance` is the place where the followers' progress comes in.

Calls return values, never raise for what is expected, and never block the loop. Waiters are told of progress by
`wake`, which the caller of `append` calls once it is through with all its partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from klamm.core.errors import ErrorCode
from klamm.log.appending import WritableBuffer
from klamm.log.base import LogBase
from klamm.log.log import Log
from klamm.log.producer_state import Producer
from klamm.log.results import Appended, Rejected
from klamm.records.batch import CONTROL, TRANSACTIONAL, BatchError, BatchHeader, read_header
from klamm.replica.fetch import CONSUMER, Fetched, Limits, Wanted
from klamm.replica.produce import ALL
from klamm.replica.recoding import Deferred, Line, Recoder, wanted_of
from klamm.replica.verification import Verification, Verifications

UNREADABLE = (OSError, BatchError)
"""What a log's files can do to whoever looks into them for the first time since a clean start."""

_ATTRIBUTES_LOW_BYTE = 22  # of a batch: where the transactional bit is

_NO_TRANSACTIONAL_ID = Rejected(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch in a request that names no transaction"
)
_NOT_VERIFIED = Rejected(ErrorCode.INVALID_TXN_STATE, "the partition is not part of the producer's transaction")
_INTERNAL = Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is internal: only the broker writes to it")


class Waiter(Protocol):
    """Who is told of what happens to a partition, as long as it is among its waiters. `slot` is what it was put there
    with. It must not append from within."""

    def moved(self, partition: Partition, slot: int) -> None:
        """Offsets have moved."""

    def interrupted(self, partition: Partition, slot: int) -> None:
        """The leadership has changed, the log has failed, or the partition is gone."""


class Partition:
    """`error` is NONE while this broker leads the partition; every call looks at it first. That the log is offline is
    the log's to say, each time: a full disk can have room again."""

    __slots__ = (
        "error",
        "followers",
        "high_watermark",
        "index",
        "internal",
        "isr_size",
        "leader_epoch",
        "leader_id",
        "line",
        "log",
        "min_isr",
        "received_bytes",
        "recoder",
        "sent_bytes",
        "topic",
        "topic_id",
        "verifications",
        "waiters",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, recoder: Recoder | None = None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log: Log | None = None
        self.error = ErrorCode.LEADER_NOT_AVAILABLE
        self.leader_id = -1
        self.leader_epoch = -1
        self.high_watermark = 0
        self.isr_size = 0
        self.min_isr = 1
        self.followers: Sequence[int] = ()
        self.internal = False
        self.received_bytes = 0  # of batches, since the start; for metrics
        self.sent_bytes = 0
        self.waiters: dict[Waiter, int] = {}
        self.recoder = recoder
        self.verifications: Verifications | None = None  # from the first transactional batch on
        self.line: Line | None = None  # appends that wait for a thread to compress them, and what is behind them

    def lead(
        self, log: Log, leader_id: int, leader_epoch: int, *, isr_size: int, min_isr: int, followers: Sequence[int] = ()
    ) -> None:
        """This broker leads from now on, or leads on under another epoch or with other replicas."""
        changed = leader_epoch != self.leader_epoch or bool(self.error)
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.isr_size = isr_size
        self.min_isr = min_isr
        self.followers = followers
        self.error = ErrorCode.NONE
        log.listener = self._log_moved
        self._advance(log)
        if changed:
            self._interrupt()

    def stop_leading(self, error: ErrorCode, leader_id: int = -1, leader_epoch: int = -1) -> None:
        """Another broker leads it, nobody does, or the topic is gone: whoever waits is told so."""
        self.error = error
        self.leader_id = leader_id
        self.leader_epoch = max(leader_epoch, self.leader_epoch)
        self.verifications = None
        if self.log is not None:
            self.log.listener = None
            self.log = None
        self._interrupt()

    # Appending

    def append(
        self, records: WritableBuffer, acks: int, as_is: bool = False, in_transaction: bool = False
    ) -> Appended | Rejected | Deferred:
        """Append one batch of a client; offsets are set in place in `records`. Call `wake` afterwards.

        `in_transaction`: the request names its transaction; a first batch needs a `verification` as well.
        Deferred: the batch, or one before it, has to be looked at or compressed anew; `as_is` comes from there."""
        log = self.log
        if log is None or self.error:
            return Rejected(self.error, "")
        if self.internal:
            return _INTERNAL
        # As with Kafka, never more than the partition has: one replica is enough where there is no other.
        if acks == ALL and self.isr_size < self.min_isr and self.isr_size <= len(self.followers):
            return self._too_few_replicas()
        if len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL:
            return self._append_transactional(log, records, acks, as_is, in_transaction)
        if not as_is and (log.config.compression is not None or log.config.compact or self.line is not None):
            return self._append_recoded(log, records, acks)
        result = log.append(records, leader_epoch=self.leader_epoch)
        self.high_watermark = log.end_offset
        if type(result) is Appended:
            self.received_bytes += len(records)
        if log.failure is not None:
            self._interrupt()
        return result

    def _append_transactional(
        self, log: Log, records: WritableBuffer, acks: int, as_is: bool, in_transaction: bool
    ) -> Appended | Rejected | Deferred:
        if not in_transaction and not as_is:
            return _NO_TRANSACTIONAL_ID
        if not as_is and (log.config.compression is not None or log.config.compact or self.line is not None):
            return self._append_recoded(log, records, acks)
        try:
            header = read_header(records)
            if (refused := self._outside(log, header)) is not None:
                return refused
        except UNREADABLE as error:
            return Rejected(ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, OSError) else error.code, str(error))
        known = self._verification_of(header)
        version = 2 if known is not None and known.adds else 0
        return self._write(log, records, header, from_client=True, transaction_version=version)

    def _outside(self, log: Log, header: BatchHeader) -> Rejected | None:
        """Why a batch of a client cannot be part of a transaction now. What is wrong with its epoch is the log's to
        say."""
        producer = log.producers.get(header.producer_id)
        if producer is not None and (header.producer_epoch < producer.epoch or _is_under_way(producer, header)):
            return None
        if not log.config.verify_transactions:
            return None
        known = self._verification_of(header)
        if known is None or not known.verified:
            return _NOT_VERIFIED
        if header.base_sequence > known.lowest_sequence:
            return Rejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} has to send sequence {known.lowest_sequence} first, "
                f"not {header.base_sequence}.",
            )
        return None

    def _verification_of(self, header: BatchHeader) -> Verification | None:
        known = self.verifications
        return None if known is None else known.get(header.producer_id, header.producer_epoch)

    def verification(self, header: BatchHeader, *, adds: bool) -> Verification | Rejected | None:
        """A client's transactional batch has come. None: its transaction is under way here, append it. Otherwise the
        transaction's coordinator has to be asked; if it agrees, call `confirm`, then `append`. Only while this broker
        leads; one of UNREADABLE if the log's files turn out to be so."""
        assert self.log is not None
        producer = self.log.producers.get(header.producer_id)
        if producer is not None:
            if header.producer_epoch < producer.epoch:
                return Rejected(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"Producer {header.producer_id} has epoch {producer.epoch} here, not {header.producer_epoch}.",
                )
            if _is_under_way(producer, header):
                return None
        if self.verifications is None:
            self.verifications = Verifications()
        return self.verifications.begin(header.producer_id, header.producer_epoch, header.base_sequence, adds)

    def confirm(self, verification: Verification) -> None:
        """The coordinator knows that this partition is part of the transaction. That is void if it has ended since."""
        known = self.verifications
        if known is not None and known.get(verification.producer_id, verification.epoch) is verification:
            verification.verified = True

    def append_internal(self, batch: WritableBuffer, *, transaction_version: int = 0) -> Appended | Rejected:
        """Append what the broker itself writes, to any topic: the records of a coordinator, or a transaction's marker.
        It is safe once the high watermark has passed it. Call `wake` afterwards."""
        log = self.log
        if log is None or self.error:
            return Rejected(self.error, "")
        if self.isr_size < self.min_isr and self.isr_size <= len(self.followers):
            return self._too_few_replicas()
        header = None if self.verifications is None else read_header(batch)
        return self._write(log, batch, header, from_client=False, transaction_version=transaction_version)

    def _write(
        self,
        log: Log,
        batch: WritableBuffer,
        header: BatchHeader | None,
        *,
        from_client: bool,
        transaction_version: int,
    ) -> Appended | Rejected:
        """The header is needed only where there are verifications."""
        result = log.append(
            batch, leader_epoch=self.leader_epoch, from_client=from_client, transaction_version=transaction_version
        )
        self.high_watermark = log.end_offset
        if type(result) is Appended:
            self.received_bytes += len(batch)
            if self.verifications is not None and header is not None and header.attributes & TRANSACTIONAL:
                if header.attributes & CONTROL:
                    self.verifications.ended(header.producer_id, header.producer_epoch)
                else:
                    self.verifications.appended(header.producer_id, header.producer_epoch)
        if log.failure is not None:
            self._interrupt()
        return result

    def _too_few_replicas(self) -> Rejected:
        return Rejected(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.isr_size} in-sync replicas, min.insync.replicas is {self.min_isr}"
        )

    def _append_recoded(self, log: Log, records: WritableBuffer, acks: int) -> Appended | Rejected | Deferred:
        wanted = wanted_of(records, log.config)
        if self.line is None:
            if wanted is None:
                return self.append(records, acks, as_is=True)
            assert self.recoder is not None, "a partition of a broker has one"
            recoded = self.recoder.at_once(records, wanted)
            if isinstance(recoded, Rejected):
                return recoded
            if recoded is not None:
                return self.append(recoded, acks, as_is=True)
            self.line = Line(self, self.recoder)
        return self.line.put(records, acks, wanted, log)

    def acknowledgement(self, last_offset: int, epoch: int, acks: int) -> ErrorCode | None:
        """How an append of ours fared: NONE once it is safe enough, an error, or None while that is open."""
        log = self.log
        if log is None or self.error:
            return self.error
        if log.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.leader_epoch != epoch and log.end_offset <= last_offset:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the log was cut in between
        if (self.high_watermark if acks == ALL else log.end_offset) > last_offset:
            return ErrorCode.NONE
        return None

    # Reading

    def available(self) -> ErrorCode:
        """Whether this broker can say anything of the partition: NONE, or why not."""
        if self.log is None or self.error:
            return self.error
        return ErrorCode.NONE if self.log.failure is None else ErrorCode.KAFKA_STORAGE_ERROR

    def limit(self, limits: Limits) -> int:
        """The offset below which this fetcher may read."""
        log = self.log
        if log is None:
            return 0
        if limits.replica_id != CONSUMER:
            return log.end_offset
        return log.last_stable_offset(self.high_watermark) if limits.committed else self.high_watermark

    def check_epoch(self, epoch: int) -> ErrorCode:
        """Whether a client that knows this leader epoch (-1: it does not say) may be served (KIP-320)."""
        if epoch == -1 or epoch == self.leader_epoch:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def fetch(self, want: Wanted, max_bytes: int, min_one: bool, limits: Limits) -> Fetched:
        log = self.log
        if log is None or self.error:
            return Fetched(want, self, self.error)
        if log.failure is not None:
            return Fetched(want, self, ErrorCode.KAFKA_STORAGE_ERROR)
        epoch = want.leader_epoch
        if epoch != -1 and epoch != self.leader_epoch:
            return Fetched(want, self, self.check_epoch(epoch))
        if limits.replica_id != CONSUMER and limits.replica_id not in self.followers:
            return Fetched(want, self, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            if want.last_fetched_epoch >= 0 and (diverging := self._diverging(want)) is not None:
                result = Fetched(want, self, ErrorCode.NONE, self.high_watermark, -1, log.start_offset)
                result.diverging = diverging
                return result
            return self._read(log, want, max_bytes, min_one, limits)
        except UNREADABLE:
            return Fetched(want, self, ErrorCode.KAFKA_STORAGE_ERROR)

    def _read(self, log: Log, want: Wanted, max_bytes: int, min_one: bool, limits: Limits) -> Fetched:
        high_watermark = self.high_watermark
        stable = log.last_stable_offset(high_watermark)
        if limits.replica_id != CONSUMER:
            limit = log.end_offset
        else:
            limit = stable if limits.committed else high_watermark
        found = log.read(want.offset, max_bytes, limit=limit, min_one=min_one)
        if isinstance(found, Rejected):
            return Fetched(want, self, found.code)
        result = Fetched(want, self, ErrorCode.NONE, high_watermark, stable, log.start_offset)
        if found is not None and found.size:
            result.records = found
        if limits.committed:
            result.aborted = log.aborted_transactions(want.offset, limit, found) if result.records is not None else ()
        return result

    def _diverging(self, want: Wanted) -> tuple[int, int] | None:
        """Where the fetcher's log leaves ours (KIP-595), by the epoch of the last record that it has."""
        epoch, end = self.end_of_epoch(want.last_fetched_epoch)
        if epoch < want.last_fetched_epoch or end < want.offset:
            return epoch, end
        return None

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch of the log up to the given one, and where it ended; (-1, -1) where that is not known.
        Only while the partition is `available`; one of UNREADABLE if its files turn out not to be.

        The leader's own epoch counts from the moment it leads, also before its first record.
        """
        log = self.log
        assert log is not None
        if epoch == self.leader_epoch:
            return epoch, log.end_offset
        latest = log.epochs.latest
        if latest < epoch < self.leader_epoch and latest >= 0:
            return latest, log.end_offset
        return log.epochs.end_offset_for(epoch, log.end_offset)

    # Progress

    def wake(self) -> None:
        """Tell the waiters that offsets moved."""
        if self.waiters:
            for waiter, slot in tuple(self.waiters.items()):
                waiter.moved(self, slot)

    def _interrupt(self) -> None:
        for waiter, slot in tuple(self.waiters.items()):
            waiter.interrupted(self, slot)

    def _advance(self, log: LogBase) -> None:
        """With one replica, what is written is committed."""
        self.high_watermark = log.end_offset

    def _log_moved(self, log: LogBase) -> None:
        """A queued write is through, or the log has failed."""
        self._advance(log)
        if log.failure is None:
            self.wake()
        else:
            self._interrupt()


def _is_under_way(producer: Producer, header: BatchHeader) -> bool:
    return producer.txn_first_offset >= 0 and producer.epoch == header.producer_epoch
