"""The state machine of one partition of `__transaction_state`: transactional ids, their producers and transactions.

Requests come in through the methods below, each with the `Reply` to answer and a `respond` of the caller's that makes
the answer: the machine knows no versions of messages. What is decided stands in `decisions`; here it becomes records,
answers and the effect `WriteMarkers`, after which whoever carried it out calls `completed`.

Durable state changes by `replay` alone. No request waits here: who comes while a transaction is ending is told to come
again (CONCURRENT_TRANSACTIONS).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.coordinator.counters import TransactionCounters
from klamm.coordinator.machine import Answer, Now, Outcome, Producer, Record, Reply
from klamm.coordinator.transactions import decisions
from klamm.coordinator.transactions.decisions import NO_EPOCH, Init, Step
from klamm.coordinator.transactions.state import (
    EPOCH_BUMP,
    NO_TIMEOUT_MS,
    Partitions,
    State,
    Transaction,
    from_value,
    to_record,
    tombstone,
)
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.metadata.features import TRANSACTION_VERSION
from klamm.wire.messages.coordinator import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from klamm.core.options import Options
    from klamm.metadata.image import Image
    from klamm.metadata.replay import Delta

MAX_TICK_BYTES = 256 * 1024
"""Records written by one tick, about; the rest follows with the next one, which is due at once."""


class Settings(NamedTuple):
    """Options of the broker, in milliseconds."""

    max_timeout_ms: int = 900_000
    two_phase_commit: bool = False
    abort_interval_ms: int = 10_000
    expiration_ms: int = 604_800_000
    expiration_interval_ms: int = 3_600_000

    @classmethod
    def of(cls, options: Options) -> Settings:
        return cls(
            options.get_int("transaction.max.timeout.ms"),
            options.get_bool("transaction.two.phase.commit.enable"),
            options.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            options.get_int("transactional.id.expiration.ms"),
            options.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )


class WriteMarkers(NamedTuple):
    """Effect: end this transaction in all of its partitions, then call `completed` with it."""

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: Partitions
    version: int


class Initialized(NamedTuple):
    error: ErrorCode
    producer: Producer = Producer(-1, -1)
    ongoing: Producer = Producer(-1, -1)
    """Under whom the prepared transaction runs that the client asked to keep."""


class Ended(NamedTuple):
    error: ErrorCode
    producer: Producer = Producer(-1, -1)
    """Who the client is from here on; nobody if its protocol does not change epochs."""


class TxnMachine:
    def __init__(
        self, settings: Settings, new_id: Callable[[], int | None], counters: TransactionCounters | None = None
    ) -> None:
        """`new_id` hands out a producer id, or None if there is none just now."""
        self.counters = TransactionCounters()  # while it loads: nobody looks at them
        self._counters = counters or self.counters
        self.transactions: dict[str, Transaction] = {}  # the one that was changed last comes last
        self._settings = settings
        self._new_id = new_id
        self._version = 0
        self._last_epochs: dict[str, int] = {}
        self._open: dict[str, None] = {}  # Ongoing; those with a time limit have it at or after _limit_ms
        self._limit_ms: int | None = None
        self._seen = Now(0.0, 0)
        self._checked = 0.0
        self._expired = 0.0

    # ---- requests

    def init_producer_id(
        self,
        reply: Reply,
        now: Now,
        respond: Callable[[Initialized], Any],
        ask: Init,
        *,
        two_phase_commit: bool = False,
    ) -> Outcome:
        """The time limit in `ask` does not count for a transaction of a two-phase commit: it has none."""
        settings = self._settings
        if not ask.transactional_id:
            return _answer(reply, respond(Initialized(ErrorCode.INVALID_REQUEST)))
        if two_phase_commit:
            if not settings.two_phase_commit:
                return _answer(reply, respond(Initialized(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)))
            ask = ask._replace(timeout_ms=NO_TIMEOUT_MS)
        elif not 0 < ask.timeout_ms <= settings.max_timeout_ms:
            return _answer(reply, respond(Initialized(ErrorCode.INVALID_TRANSACTION_TIMEOUT)))
        txn = self.transactions.get(ask.transactional_id)
        if txn is None:
            step = decisions.create(ask, self._new_id, now.time_ms)
        else:
            last_epoch = self._last_epochs.get(ask.transactional_id, NO_EPOCH)
            step = decisions.initialize(txn, ask, last_epoch, self._new_id, now.time_ms, version=self._version)
        if isinstance(step, ErrorCode):
            return _answer(reply, respond(Initialized(step)))
        following = step.txn
        if following.prepared:
            return self._take(step, now, reply, respond(Initialized(ErrorCode.CONCURRENT_TRANSACTIONS)))
        ongoing = following.producer if following.kept else Producer(-1, -1)
        return self._take(step, now, reply, respond(Initialized(ErrorCode.NONE, following.client, ongoing)))

    def add_partitions(
        self,
        reply: Reply,
        now: Now,
        respond: Callable[[ErrorCode], Any],
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        version: int = 0,
    ) -> Outcome:
        """They belong to the producer's transaction from here on, which begins with its first ones. All or none.
        `version`: 2 for a producer of transaction protocol 2, whose partitions brokers add, else 0."""
        txn = self.transactions.get(transactional_id)
        if txn is None:
            return _answer(reply, respond(_unknown(transactional_id)))
        step = decisions.add_partitions(txn, producer, partitions, now.time_ms, version=version)
        if isinstance(step, ErrorCode):
            return _answer(reply, respond(step))
        outcome = self._take(step, now, reply, respond(ErrorCode.NONE))
        outcome.only_records = True  # with very many partitions the record may be larger than the log takes
        return outcome

    def verify_partitions(
        self,
        reply: Reply,
        now: Now,
        respond: Callable[[Mapping[TopicPartition, ErrorCode]], Any],
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
    ) -> Outcome:
        """Are they in the producer's open transaction? Changes nothing."""
        txn = self.transactions.get(transactional_id)
        error = _unknown(transactional_id) if txn is None else decisions.verify(txn, producer)
        if error or txn is None:
            return _answer(reply, respond(dict.fromkeys(partitions, error)))
        missing = ErrorCode.TRANSACTION_ABORTABLE
        verdicts = {one: ErrorCode.NONE if txn.has((one,)) else missing for one in partitions}
        return _answer(reply, respond(verdicts))

    def end(
        self,
        reply: Reply,
        now: Now,
        respond: Callable[[Ended], Any],
        transactional_id: str,
        producer: Producer,
        *,
        committed: bool,
        version: int = 0,
    ) -> Outcome:
        """It is decided when this is written; markers follow. `version` as for partitions."""
        txn = self.transactions.get(transactional_id)
        if txn is None:
            return _answer(reply, respond(Ended(_unknown(transactional_id))))
        step = decisions.end(txn, producer, self._new_id, now.time_ms, committed=committed, version=version)
        bumps = version >= EPOCH_BUMP
        if isinstance(step, ErrorCode):
            ended = Ended(step, txn.client) if bumps and step == ErrorCode.NONE else Ended(step)
            return _answer(reply, respond(ended))
        ended = Ended(ErrorCode.NONE, step.txn.client) if bumps else Ended(ErrorCode.NONE)
        return self._take(step, now, reply, respond(ended))

    # ---- events

    def completed(self, markers: WriteMarkers, now: Now) -> Outcome:
        """The markers are in all partitions, or not needed there any more."""
        txn = self.transactions.get(markers.transactional_id)
        if txn is None or not txn.prepared or txn.producer != markers.producer:
            return Outcome()  # completed before, by markers that were written twice
        return self._take(Step(decisions.complete(txn, now.time_ms)), now)

    @property
    def next_due(self) -> float | None:
        seen = self._seen
        expiry = self._expired + self._settings.expiration_interval_ms / 1000 if self.transactions else None
        if self._limit_ms is None:
            return expiry
        # Time limits are kept by the wall clock, because they outlive this process. Should somebody set it, they are
        # looked at all the same after the interval.
        limit = seen.monotonic + max(0, self._limit_ms + 1 - seen.time_ms) / 1000
        limit = min(limit, self._checked + self._settings.abort_interval_ms / 1000)
        return limit if expiry is None else min(limit, expiry)

    def tick(self, now: Now) -> Outcome:
        outcome = Outcome()
        self._checked = now.monotonic
        self._abort_late(now, outcome)
        if now.monotonic >= self._expired + self._settings.expiration_interval_ms / 1000:
            self._forget_idle(now, outcome)
        self._seen = now
        return outcome

    def _abort_late(self, now: Now, outcome: Outcome) -> None:
        limit_ms: int | None = None
        room = MAX_TICK_BYTES
        for transactional_id in self._open:
            txn = self.transactions[transactional_id]
            if txn.timeout_ms == NO_TIMEOUT_MS:
                continue
            due_ms = txn.start_ms + txn.timeout_ms
            if due_ms < now.time_ms and room > 0:
                step = decisions.fence(txn, self._new_id, now.time_ms, version=self._version)
                if not isinstance(step, ErrorCode):
                    room -= txn.size_bytes
                    self.counters.timed_out += 1
                    outcome.add(self._take(step, now))
                    continue
                due_ms = now.time_ms + self._settings.abort_interval_ms  # no producer id just now: later
            limit_ms = due_ms if limit_ms is None else min(limit_ms, due_ms)
        self._limit_ms = limit_ms

    def _forget_idle(self, now: Now, outcome: Outcome) -> None:
        oldest_ms = now.time_ms - self._settings.expiration_ms
        room = MAX_TICK_BYTES
        for transactional_id, txn in self.transactions.items():
            if txn.updated_ms > oldest_ms:
                break  # those that follow were changed later
            if txn.state == State.ONGOING or txn.prepared:
                continue
            if room <= 0:
                return  # due again at once
            room -= txn.size_bytes
            outcome.records.append(tombstone(transactional_id))
            self.counters.expired_ids += 1
        self._expired = now.monotonic

    def _take(self, step: Step, now: Now, reply: Reply | None = None, value: Any = None) -> Outcome:
        txn, last_epoch = step
        self._seen = now
        if last_epoch is not None:
            self._remember(txn.transactional_id, last_epoch)
        answers = () if reply is None else (Answer(reply, value),)
        return Outcome((to_record(txn),), answers, effects=(_markers(txn),) if txn.prepared else ())

    def _remember(self, transactional_id: str, epoch: int) -> None:
        if epoch == NO_EPOCH:
            self._last_epochs.pop(transactional_id, None)
        else:
            self._last_epochs[transactional_id] = epoch

    # ---- the log

    def replay(self, record: Record, producer: Producer | None = None) -> None:
        key, value = record
        if not isinstance(key, TransactionLogKey):
            return
        transactional_id = key.transactional_id
        self.transactions.pop(transactional_id, None)
        self._open.pop(transactional_id, None)
        if value is None:
            self._last_epochs.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        txn = self.transactions[transactional_id] = from_value(transactional_id, value)
        if txn.state == State.ONGOING:
            self._open[transactional_id] = None
            if txn.timeout_ms != NO_TIMEOUT_MS:
                due_ms = txn.start_ms + txn.timeout_ms
                self._limit_ms = due_ms if self._limit_ms is None else min(self._limit_ms, due_ms)
        elif txn.state == State.PREPARE_COMMIT:
            self.counters.committed += 1
        elif txn.state == State.PREPARE_ABORT:
            self.counters.aborted += 1

    def replay_end(self, producer: Producer, committed: bool) -> None:
        """No transaction ever writes to the topic of transactions."""

    def loaded(self, now: Now) -> Outcome:
        """What was decided goes on to its end."""
        self.counters = self._counters
        self._seen = now
        self._checked = self._expired = now.monotonic
        return Outcome(effects=[_markers(txn) for txn in self.transactions.values() if txn.prepared])

    def image_changed(self, image: Image, delta: Delta, now: Now) -> Outcome:
        self._version = image.features.get(TRANSACTION_VERSION, 0)
        return Outcome()

    def resigned(self, error: ErrorCode) -> list[Answer]:
        return []  # nobody waits here


def _markers(txn: Transaction) -> WriteMarkers:
    committed = txn.state == State.PREPARE_COMMIT
    return WriteMarkers(txn.transactional_id, txn.producer, committed, txn.partitions, txn.version)


def _unknown(transactional_id: str) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else ErrorCode.INVALID_REQUEST


def _answer(reply: Reply, value: Any) -> Outcome:
    return Outcome(answers=(Answer(reply, value),))
