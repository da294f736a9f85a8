"""Records on their way out: one queue for each partition, which keeps their order and their sequence numbers.

Pure: no I/O, no clock, no tasks; `sender` moves batches from here to brokers. The rules that keep an idempotent
producer's records in order and single:

- a batch gets its sequence when it is first sent, and keeps it however often it is sent again;
- when anything goes wrong with a batch, nothing more of its partition is sent until all that is on the way has come
  back; then everything that was not acknowledged goes again, in order;
- while a batch is on its way again nothing new goes with it: it may be in the log already, and the broker tells it
  from a new one only as long as no more than five others have come after it;
- what is on the way is on one connection, also while the leader moves: on two, the later could arrive first;
- under a new producer id, only one batch goes until the first is acknowledged: a log that does not know an id takes
  its first batch with any sequence (so does Kafka's), even if that is the second one;
- when a batch is given up, its sequence is missing for good: the partition goes on with a new producer id. Batches
  behind it of which nobody knows whether they were written are given up as well: sent again under a new id, they
  could be in the log twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from klamm.client.errors import ClientError
from klamm.core.ids import TopicPartition
from klamm.records import batch as header_of
from klamm.records.compression import Codec
from klamm.records.record import Headers, Record, encode_batch

RECORD_OVERHEAD_BYTES: Final = 15
"""About what a record takes besides key, value and headers: its length, deltas and counts, in varints."""
HEADER_OVERHEAD_BYTES: Final = 4


class Identity(NamedTuple):
    producer_id: int
    epoch: int


NOBODY: Final = Identity(header_of.NO_PRODUCER_ID, -1)
"""The identity of a producer without idempotence."""


class BatchResult(NamedTuple):
    """Where a batch landed. The offset is -1 where the broker does not say (acks=0, or written before)."""

    topic: str
    partition: int
    base_offset: int
    log_append_time_ms: int
    size: int
    """How many records it has."""


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + len(name) + len(content or b"")
    return size


class Batch:
    """Records that travel together. `done` gets the result, or the error; None if it was `split`."""

    __slots__ = (
        "_sealed",
        "attempts",
        "created",
        "done",
        "halves",
        "identity",
        "place",
        "records",
        "sequence",
        "size",
        "unsure",
    )

    def __init__(self, place: TopicPartition, created: float, done: asyncio.Future[BatchResult | None]) -> None:
        self.place = place
        self.created = created
        self.done = done
        self.halves: tuple[Batch, Batch] | None = None
        self.records: list[Record] = []
        self.size = header_of.header_bytes
        self.attempts = 0
        self.unsure = False  # an attempt ended without an answer: it may be in the log
        self.identity: Identity | None = None
        self.sequence = header_of.NO_SEQUENCE
        self._sealed: bytes | None = None

    def add(self, record: Record, size: int) -> int:
        """Its number in the batch."""
        self.records.append(record)
        self.size += size
        return len(self.records) - 1

    def assign(self, identity: Identity, sequence: int) -> None:
        self.identity = identity
        self.sequence = sequence
        self._sealed = None

    def encoded(self, codec: Codec) -> bytes:
        if self._sealed is None:
            assert self.identity is not None
            self._sealed = encode_batch(
                self.records,
                codec=codec,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.sequence,
            )
        return self._sealed

    def split(self, futures: tuple[asyncio.Future[BatchResult | None], asyncio.Future[BatchResult | None]]) -> None:
        """Make two of it. Nothing of it is in the log, so they can use its sequences."""
        assert self.identity is not None and len(self.records) > 1
        middle = len(self.records) // 2
        first, second = Batch(self.place, self.created, futures[0]), Batch(self.place, self.created, futures[1])
        for number, record in enumerate(self.records):
            half = first if number < middle else second
            half.add(record, record_bytes(record.key, record.value, record.headers))
        first.assign(self.identity, self.sequence)
        plain = self.sequence == header_of.NO_SEQUENCE
        second.assign(self.identity, self.sequence if plain else self.sequence + middle & header_of.MAX_SEQUENCE)
        self.halves = first, second
        if not self.done.done():
            self.done.set_result(None)

    def succeed(self, base_offset: int, log_append_time_ms: int = -1) -> None:
        if not self.done.done():
            result = BatchResult(*self.place, base_offset, log_append_time_ms, len(self.records))
            self.done.set_result(result)

    def fail(self, error: ClientError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # looked at: not everybody waits for every batch


class Queue:
    """The batches of one partition, oldest first. The last of `waiting` may still be filling."""

    __slots__ = (
        "established",
        "identity",
        "in_flight",
        "lost_place",
        "next_sequence",
        "not_before",
        "place",
        "recovering",
        "route",
        "waiting",
    )

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.route: object = None  # the connection that all of `in_flight` is on
        self.recovering = False
        self.lost_place = False  # a sequence is missing: the identity cannot be used any longer
        self.not_before = 0.0
        self.identity: Identity | None = None
        self.established = False  # the broker has acknowledged something under this identity
        self.next_sequence = 0

    def open_batch(self, size: int, batch_size: int) -> Batch | None:
        """The batch that takes another record of this size, if there is one."""
        last = self.waiting[-1] if self.waiting else None
        if last is None or last.identity is not None or last.size + size > batch_size:
            return None
        return last

    def is_ready(self, now: float, linger_s: float, batch_size: int, window: int) -> bool:
        """Whether the first batch should go now."""
        if not self.may_send(now, window):
            return False
        first = self.waiting[0]
        return (
            len(self.waiting) > 1
            or first.identity is not None
            or first.size >= batch_size
            or now - first.created >= linger_s
        )

    def may_send(self, now: float, window: int) -> bool:
        if not self.waiting or now < self.not_before:
            return False
        if self.recovering or self.lost_place:
            return not self.in_flight and not self.lost_place
        if not self.waiting[0].attempts and any(batch.attempts > 1 for batch in self.in_flight):
            return False
        return len(self.in_flight) < (window if self.established else 1)

    def may_use(self, route: object) -> bool:
        return not self.in_flight or self.route is route

    def take(self, identity: Identity, route: object = None) -> Batch:
        """The first batch, on its way from now on, with its sequence."""
        assert self.may_use(route)
        self.route = route
        self.recovering = False
        batch = self.waiting.popleft()
        if self.identity is None:
            self.identity = identity
        if batch.identity is None:
            sequence = header_of.NO_SEQUENCE if self.identity is NOBODY else self.next_sequence
            batch.assign(self.identity, sequence)
            self.next_sequence = self.next_sequence + len(batch.records) & header_of.MAX_SEQUENCE
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def acknowledged(self, batch: Batch) -> None:
        self.established = True
        self.in_flight.remove(batch)

    def again(self, batch: Batch, not_before: float) -> None:
        """Put it back: it goes again when the others have come back."""
        self.in_flight.remove(batch)
        self.recovering = True
        self.not_before = max(self.not_before, not_before)
        self.waiting.insert(self._place_of(batch), batch)

    def _place_of(self, batch: Batch) -> int:
        """How many of those that wait to go again come before it."""
        return sum(1 for other in self.waiting if other.identity is not None and _is_before(other, batch))

    def given_up(self, batch: Batch) -> None:
        """The batch failed for good."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.waiting.remove(batch)
        if batch.identity is not None and batch.identity is not NOBODY:
            self.lost_place = True

    def replace(self, batch: Batch) -> None:
        """Put the halves of a batch that was too large for the broker in its place; they share its sequences."""
        assert batch.halves is not None
        self.in_flight.remove(batch)
        self.recovering = True
        for half in reversed(batch.halves):
            self.waiting.insert(self._place_of(batch), half)

    def start_anew(self) -> list[Batch]:
        """After a batch was given up, and with nothing on the way: forget the identity. What has to be given up too."""
        assert self.lost_place and not self.in_flight
        self.lost_place = False
        self.identity = None
        self.established = False
        self.next_sequence = 0
        unsure = [batch for batch in self.waiting if batch.unsure]
        self.waiting = deque(batch for batch in self.waiting if not batch.unsure)
        for batch in self.waiting:
            batch.identity = None
        return unsure


def _is_before(one: Batch, other: Batch) -> bool:
    """Whether `one` has the earlier sequence; sequences wrap, but never by half their range at a time."""
    distance = other.sequence - one.sequence & header_of.MAX_SEQUENCE
    return 0 < distance <= header_of.MAX_SEQUENCE >> 1
