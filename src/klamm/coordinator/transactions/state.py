"""A transactional id and its transaction, as `__transaction_state` keeps it: Kafka's TransactionLogKey and -Value.

A `Transaction` is never changed: a decision makes the next one, its record is written, and replaying the record gives
that next one again. What the record does not hold is not here. This module must never decide anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from klamm.coordinator.machine import Producer, Record
from klamm.core.ids import TopicPartition
from klamm.core.options.option import INT_MAX
from klamm.wire.messages.coordinator import PartitionsSchema, TransactionLogKey, TransactionLogValue

NO_TIMEOUT_MS = INT_MAX
"""The time limit of a transaction that takes part in a two-phase commit (KIP-939): none."""

EPOCH_BUMP = 2
"""From this level of `transaction.version` on every end of a transaction gives the producer a new epoch (KIP-890)."""

Partitions: TypeAlias = Mapping[str, tuple[int, ...]]
"""By topic, in the order in which they came: the order of a set would differ from process to process."""

NO_PARTITIONS: Partitions = MappingProxyType({})


class State(IntEnum):
    """Kafka's codes. Nothing is ever DEAD or PREPARE_EPOCH_FENCE here, because a decision is written and replayed in
    one step; clients may still ask for them by name."""

    label: str

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    def __new__(cls, code: int, label: str) -> State:
        member = int.__new__(cls, code)
        member._value_ = code
        member.label = label
        return member


class Transaction(NamedTuple):
    transactional_id: str
    producer: Producer
    """Under whom the records of the transaction are written, and its markers."""
    timeout_ms: int
    updated_ms: int
    """When anything of it last changed: an id that nobody uses is forgotten."""
    state: State = State.EMPTY
    partitions: Partitions = NO_PARTITIONS
    start_ms: int = -1
    version: int = 0
    """The level of `transaction.version` that the client used."""
    previous_id: int = -1
    """The producer id that the client had before this step; tells a repeated request from a stranger's."""
    next: Producer | None = None
    """Who the producer is after this transaction, if not who it is now: the epochs of its id are used up, or it came
    back and kept a prepared transaction, which must end under the identity that it was begun with (KIP-939)."""

    @property
    def client(self) -> Producer:
        """Who the client has been told that it is."""
        return self.next or self.producer

    @property
    def prepared(self) -> bool:
        """It was decided how it ends; markers are being written."""
        return self.state == State.PREPARE_COMMIT or self.state == State.PREPARE_ABORT

    @property
    def kept(self) -> bool:
        """Its producer came back to an open transaction, and may do nothing but end it."""
        return self.state == State.ONGOING and self.next is not None

    def has(self, partitions: Iterable[TopicPartition]) -> bool:
        return all(index in self.partitions.get(topic, ()) for topic, index in partitions)

    @property
    def size_bytes(self) -> int:
        """About what its record takes."""
        return 64 + len(self.transactional_id) + sum(len(t) + 8 + 4 * len(p) for t, p in self.partitions.items())


def joined(partitions: Partitions, added: Iterable[TopicPartition]) -> Partitions:
    merged = dict(partitions)
    for topic, index in added:
        known = merged.get(topic, ())
        if index not in known:
            merged[topic] = (*known, index)
    return merged


def to_record(txn: Transaction) -> Record:
    producer, following = txn.producer, txn.next
    value = TransactionLogValue(
        producer_id=producer.id,
        previous_producer_id=txn.previous_id,
        next_producer_id=-1 if following is None else following.id,
        # As Kafka: an id that is new begins with epoch 0, which need not be said.
        next_producer_epoch=-1 if following is None else following.epoch or -1,
        producer_epoch=producer.epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state.value,
        transaction_partitions=None
        if txn.state == State.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=list(ids)) for topic, ids in txn.partitions.items()],
        transaction_last_update_timestamp_ms=txn.updated_ms,
        transaction_start_timestamp_ms=txn.start_ms,
        client_transaction_version=txn.version,
    )
    return Record(TransactionLogKey(transactional_id=txn.transactional_id), value)


def tombstone(transactional_id: str) -> Record:
    return Record(TransactionLogKey(transactional_id=transactional_id), None)


def from_value(transactional_id: str, value: TransactionLogValue) -> Transaction:
    following = None
    if value.next_producer_id >= 0:
        following = Producer(value.next_producer_id, max(value.next_producer_epoch, 0))
    return Transaction(
        transactional_id,
        Producer(value.producer_id, value.producer_epoch),
        value.transaction_timeout_ms,
        value.transaction_last_update_timestamp_ms,
        _STATES[value.transaction_status],
        {schema.topic: tuple(schema.partition_ids) for schema in value.transaction_partitions or ()},
        value.transaction_start_timestamp_ms,
        value.client_transaction_version,
        value.previous_producer_id,
        following,
    )


_STATES = {state.value: state for state in State}
