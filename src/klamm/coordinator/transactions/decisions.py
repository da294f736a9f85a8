"""What a request does to a transaction: the next `Transaction`, or why not. Kafka 4.3's rules, one function each.

Pure: a transaction and the request go in, a `Step` or an ErrorCode comes out. `new_id` hands out a producer id that was
never used, or None if there is none just now. Nothing here writes, waits, or knows who is to be answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from klamm.coordinator.machine import Producer
from klamm.coordinator.transactions.state import EPOCH_BUMP, NO_PARTITIONS, State, Transaction, joined
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

MAX_EPOCH = 32767
LAST_EPOCH = MAX_EPOCH - 1
"""The last epoch that a client may have: one more must be left to fence it with."""

NO_EPOCH = -1

NewId: TypeAlias = Callable[[], int | None]


class Step(NamedTuple):
    txn: Transaction
    last_epoch: int | None = None
    """The epoch before, of a client that may repeat its request; None: it stays what it was. Kept in memory only, as
    Kafka does."""


class Init(NamedTuple):
    """InitProducerId for a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None
    """Who the client believes that it is (KIP-360): it goes on only if nobody came in between."""
    keep_prepared: bool = False


def create(ask: Init, new_id: NewId, now_ms: int) -> Step | ErrorCode:
    producer_id = new_id()
    if producer_id is None:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    producer = Producer(producer_id, 0)
    txn = Transaction(ask.transactional_id, producer, ask.timeout_ms, now_ms, previous_id=producer_id)
    return Step(txn, NO_EPOCH)


def initialize(
    txn: Transaction, ask: Init, last_epoch: int, new_id: NewId, now_ms: int, *, version: int
) -> Step | ErrorCode:
    """If the transaction of the step is a prepared one, then an open transaction is aborted first, and the client has
    to come again: the epoch of that step is given to nobody."""
    if txn.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if ask.expected is not None and not _may_claim(txn, ask.expected):
        return ErrorCode.PRODUCER_FENCED
    if txn.state == State.ONGOING:
        if ask.keep_prepared:
            return _keep(txn, ask, new_id, now_ms)
        return fence(txn, new_id, now_ms, version=version)
    advanced = _advance(txn.producer, ask.expected, last_epoch, new_id)
    if isinstance(advanced, ErrorCode):
        return advanced
    producer, last_epoch = advanced
    following = Transaction(
        txn.transactional_id,
        producer,
        ask.timeout_ms,
        now_ms,
        version=txn.version,
        previous_id=txn.producer.id,
    )
    return Step(following, last_epoch)


def _may_claim(txn: Transaction, expected: Producer) -> bool:
    """The epoch is looked at later. An id whose epochs are used up may be that of a client that missed its new one."""
    return expected.id == txn.client.id or (expected.id == txn.previous_id and expected.epoch >= LAST_EPOCH)


def _advance(
    current: Producer, expected: Producer | None, last_epoch: int, new_id: NewId
) -> tuple[Producer, int] | ErrorCode:
    """The next identity, and the epoch that a repeated request would name."""
    if expected is not None and expected.epoch != current.epoch:
        # A repeated request: it is told again what it was told the first time. Had anybody else come in between, there
        # would be no last epoch.
        repeated = last_epoch != NO_EPOCH and expected.epoch == last_epoch
        return (current, last_epoch) if repeated else ErrorCode.PRODUCER_FENCED
    following = bumped(current, new_id)
    if following is None:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return following, NO_EPOCH if expected is None else current.epoch


def bumped(current: Producer, new_id: NewId) -> Producer | None:
    """The next epoch, or the first of another id. None: there is no id just now."""
    if current.epoch < LAST_EPOCH:
        return Producer(current.id, current.epoch + 1)
    producer_id = new_id()
    return None if producer_id is None else Producer(producer_id, 0)


def _keep(txn: Transaction, ask: Init, new_id: NewId, now_ms: int) -> Step | ErrorCode:
    """The client gets a new identity, which fences who it was before; the transaction stays as it is."""
    advanced = _advance(txn.client, ask.expected, NO_EPOCH, new_id)
    if isinstance(advanced, ErrorCode):
        return advanced
    client, last_epoch = advanced
    following = txn._replace(
        next=client,
        previous_id=txn.client.id,
        # A transaction that was promised not to time out must not do so because its producer came back without asking
        # for that again.
        timeout_ms=max(txn.timeout_ms, ask.timeout_ms),
        updated_ms=now_ms,
    )
    return Step(following, last_epoch)


def add_partitions(
    txn: Transaction, claimed: Producer, partitions: Collection[TopicPartition], now_ms: int, *, version: int
) -> Step | ErrorCode:
    """NONE: they are in it already."""
    if txn.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = _stranger(txn, claimed)
    if error:
        return error
    if txn.kept:
        return ErrorCode.INVALID_TXN_STATE
    going_on = txn.state == State.ONGOING
    if going_on and txn.has(partitions):
        return ErrorCode.NONE
    return Step(
        txn._replace(
            state=State.ONGOING,
            partitions=joined(txn.partitions if going_on else NO_PARTITIONS, partitions),
            start_ms=txn.start_ms if going_on else now_ms,
            updated_ms=now_ms,
            version=version,
            previous_id=txn.producer.id,
        )
    )


def verify(txn: Transaction, claimed: Producer) -> ErrorCode:
    """May this producer write now? Which partitions are in the transaction is another question."""
    error = _stranger(txn, claimed)
    if error:
        return error
    if txn.kept:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if txn.prepared else ErrorCode.NONE


def _stranger(txn: Transaction, claimed: Producer) -> ErrorCode:
    client = txn.client
    if claimed.id != client.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if claimed.epoch == client.epoch else ErrorCode.PRODUCER_FENCED


def end(
    txn: Transaction, claimed: Producer, new_id: NewId, now_ms: int, *, committed: bool, version: int
) -> Step | ErrorCode:
    """EndTxn. NONE: it ended like that already, and the client did not hear of it."""
    if version < EPOCH_BUMP:
        return _end_as_before(txn, claimed, new_id, now_ms, committed=committed)
    if txn.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    repeated = _repeats(txn, claimed)
    if claimed.id != txn.client.id and not repeated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if claimed != txn.client and not (repeated and _ended(txn)):
        return ErrorCode.PRODUCER_FENCED
    if repeated:
        as_asked = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
        return ErrorCode.NONE if txn.state == as_asked else ErrorCode.INVALID_TXN_STATE
    if committed and txn.state != State.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    # A client that adds no partitions itself cannot know whether there is anything to abort, so it may always abort.
    return _prepare(txn, new_id, now_ms, committed=committed, version=version)


def _repeats(txn: Transaction, claimed: Producer) -> bool:
    """The identity is the one before the end of a transaction has changed it."""
    client = txn.client
    if claimed.id == client.id:
        return claimed.epoch + 1 == client.epoch
    return claimed == (txn.previous_id, LAST_EPOCH) and client.epoch == 0


def _ended(txn: Transaction) -> bool:
    return txn.state == State.COMPLETE_COMMIT or txn.state == State.COMPLETE_ABORT


def _end_as_before(
    txn: Transaction, claimed: Producer, new_id: NewId, now_ms: int, *, committed: bool
) -> Step | ErrorCode:
    """Without an epoch for each transaction a repeated request looks like the first one."""
    error = _stranger(txn, claimed)
    if error:
        return error
    if txn.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if txn.state == State.ONGOING:
        return _prepare(txn, new_id, now_ms, committed=committed, version=0)
    as_asked = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
    return ErrorCode.NONE if txn.state == as_asked else ErrorCode.INVALID_TXN_STATE


def _prepare(txn: Transaction, new_id: NewId, now_ms: int, *, committed: bool, version: int) -> Step | ErrorCode:
    if version < EPOCH_BUMP:
        return Step(_decided(txn, txn.producer, txn.next, now_ms, committed=committed, version=0))
    client = txn.client
    following = txn.next
    if txn.kept or client.epoch >= LAST_EPOCH:
        following = bumped(client, new_id)
        if following is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return Step(
        _decided(txn, _fenced(txn.producer), following, now_ms, committed=committed, version=version), client.epoch
    )


def fence(txn: Transaction, new_id: NewId, now_ms: int, *, version: int) -> Step | ErrorCode:
    """Abort an open transaction from the coordinator's side: its producer is not to write any more."""
    assert txn.state == State.ONGOING, txn
    if version >= EPOCH_BUMP:
        return _prepare(txn, new_id, now_ms, committed=False, version=version)
    following = None if txn.next is None else _fenced(txn.next)
    return Step(_decided(txn, _fenced(txn.producer), following, now_ms, committed=False, version=0), NO_EPOCH)


def _fenced(producer: Producer) -> Producer:
    return Producer(producer.id, min(producer.epoch + 1, MAX_EPOCH))


def _decided(
    txn: Transaction, producer: Producer, following: Producer | None, now_ms: int, *, committed: bool, version: int
) -> Transaction:
    return txn._replace(
        state=State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
        producer=producer,
        partitions=txn.partitions if txn.state == State.ONGOING else NO_PARTITIONS,
        start_ms=txn.start_ms if txn.state == State.ONGOING else now_ms,
        updated_ms=now_ms,
        version=version,
        previous_id=txn.client.id,
        next=following,
    )


def complete(txn: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    assert txn.prepared, txn
    return txn._replace(
        state=State.COMPLETE_COMMIT if txn.state == State.PREPARE_COMMIT else State.COMPLETE_ABORT,
        producer=txn.client,
        partitions=NO_PARTITIONS,
        updated_ms=now_ms,
        next=None,
    )
