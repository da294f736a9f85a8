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
from collections.abc import Callable
from typing import Final, NamedTuple

from klamm.client.errors import ClientError
from klamm.core.ids import TopicPartition
from klamm.records import batch as header_of
from klamm.records.compression import Codec, compress
from klamm.records.kernel import Builder
from klamm.records.record import decode_records


class Identity(NamedTuple):
    producer_id: int
    epoch: int


NOBODY: Final = Identity(header_of.NO_PRODUCER_ID, -1)
"""The identity of a producer without idempotence."""


class Encoding(NamedTuple):
    """How batches are written. A level of None is the codec's own."""

    codec: Codec = Codec.NONE
    level: int | None = None
    transactional: bool = False


class BatchResult(NamedTuple):
    """Where records landed that travelled together. The offset is -1 where the broker does not say (acks=0, or written
    before)."""

    topic: str
    partition: int
    base_offset: int
    log_append_time_ms: int
    size: int
    """How many records there are."""
    error: ClientError | None = None
    """Why they are not written, as far as anybody knows."""


class Share(NamedTuple):
    """Records of a batch that somebody wants to hear of: some in a row."""

    tell: Callable[[BatchResult], None]
    first: int
    number: int


class Batch:
    """Records that travel together, encoded as they are added. Once it was sent it only changes as a whole."""

    __slots__ = (
        "_sealed",
        "_waiters",
        "attempts",
        "builder",
        "count",
        "created",
        "halves",
        "identity",
        "is_pressing",
        "outcome",
        "payload_bytes",
        "place",
        "pressed",
        "sequence",
        "shares",
        "trouble",
        "unsure",
    )

    def __init__(self, place: TopicPartition, created: float, builder: Builder) -> None:
        self.place = place
        self.created = created
        self.count = 0  # known when it is sealed, as is `payload_bytes`
        self.payload_bytes = 0
        self.attempts = 0
        self.unsure = False  # an attempt ended without an answer: it may be in the log
        self.trouble: ClientError | None = None  # how the last attempt ended
        self.identity: Identity | None = None
        self.sequence = header_of.NO_SEQUENCE
        self.halves: tuple[Batch, Batch] | None = None
        self.outcome: BatchResult | ClientError | None = None
        self.shares: list[Share] = []
        self.builder = builder  # gone once it is sealed: nothing is added to a batch that was sent
        self.is_pressing = False  # a thread compresses it, or has done so
        self.pressed: bytes | None = None  # that is what has come of it
        self._sealed: bytearray | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def size(self) -> int:
        """Bytes on the wire; before it is sealed, without compression."""
        return header_of.header_bytes + self.builder.size if self._sealed is None else len(self._sealed)

    # Before it is sent.

    def close(self) -> None:
        """Nothing more is added."""
        if not self.count:
            self.count, self.payload_bytes = self.builder.count, self.builder.size

    def assign(self, identity: Identity, sequence: int) -> None:
        self.identity = identity
        self.sequence = sequence
        if self._sealed is not None:
            header_of.assign_producer(self._sealed, identity.producer_id, identity.epoch, sequence)

    def seal(self, how: Encoding) -> None:
        assert self.identity is not None
        if self._sealed is not None:
            return
        builder = self.builder
        del self.builder
        if how.codec is Codec.NONE:
            out = builder.payload_behind(header_of.header_bytes)
        else:
            pressed = self.pressed or compress(how.codec, builder.payload(), how.level)
            out, self.pressed = bytearray(header_of.header_bytes) + pressed, None
        header_of.seal_of_client(
            out,
            how.codec | (header_of.TRANSACTIONAL if how.transactional else 0),
            self.count,
            builder.base_timestamp,
            builder.max_timestamp,
            *self.identity,
            self.sequence,
        )
        self._sealed = out

    @property
    def is_sealed(self) -> bool:
        return self._sealed is not None

    @property
    def encoded(self) -> bytearray:
        assert self._sealed is not None
        return self._sealed

    def split(self, how: Encoding) -> tuple[Batch, Batch]:
        """Make two of it. Nothing of it is in the log, so they can use its sequences."""
        assert self.identity is not None and self.count > 1
        middle = self.count // 2
        builders = Builder(), Builder()
        for number, record in enumerate(decode_records(self.encoded)):
            builder = builders[number >= middle]
            builder.append(record.timestamp, record.key, record.value, record.headers, header_of.MAX_SEQUENCE)
        first, second = (Batch(self.place, self.created, builder) for builder in builders)
        plain = self.sequence == header_of.NO_SEQUENCE
        first.assign(self.identity, self.sequence)
        second.assign(self.identity, self.sequence if plain else self.sequence + middle & header_of.MAX_SEQUENCE)
        for half in (first, second):
            half.close()
            half.seal(how)
        for tell, begin, count in self.shares:
            if begin < middle:
                first.shares.append(Share(tell, begin, min(count, middle - begin)))
            if begin + count > middle:
                behind = max(begin, middle)
                second.shares.append(Share(tell, behind - middle, begin + count - behind))
        self.halves = first, second
        self._sealed = None
        self._tell_waiters()
        return self.halves

    # What became of it.

    def wait(self) -> asyncio.Future[None]:
        """Done when there is an `outcome`, or `halves` to ask. For each caller its own, which may be cancelled."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.outcome is not None or self.halves is not None:
            future.set_result(None)
        else:
            self._waiters.append(future)
        return future

    def _tell_waiters(self) -> None:
        for future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters.clear()

    def succeed(self, base_offset: int, log_append_time_ms: int = -1) -> BatchResult:
        topic, partition = self.place
        result = self.outcome = BatchResult(topic, partition, base_offset, log_append_time_ms, self.count)
        self._finish(base_offset, log_append_time_ms, None)
        return result

    def fail(self, error: ClientError) -> None:
        self.close()
        self.outcome = error
        self._finish(-1, -1, error)

    def _finish(self, base_offset: int, log_append_time_ms: int, error: ClientError | None) -> None:
        self._sealed = self.pressed = None  # whoever keeps a delivery does not keep the bytes
        if hasattr(self, "builder"):
            del self.builder
        for tell, first, count in self.shares:
            offset = base_offset + first if base_offset >= 0 else base_offset
            result = BatchResult(*self.place, offset, log_append_time_ms, count, error)
            # Not from here: whatever they do, and whatever they raise, must not get in the way of sending.
            asyncio.get_running_loop().call_soon(tell, result)
        self._tell_waiters()


class Queue:
    """The batches of one partition, oldest first. The last of `waiting` may still be filling."""

    __slots__ = (
        "established",
        "identity",
        "in_flight",
        "lost_place",
        "next_sequence",
        "not_before",
        "open",
        "place",
        "recovering",
        "route",
        "waiting",
    )

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.waiting: deque[Batch] = deque()
        self.open: Batch | None = None  # the last of `waiting`, while it takes more records
        self.in_flight: list[Batch] = []
        self.route: object = None  # the connection that all of `in_flight` is on
        self.recovering = False
        self.lost_place = False  # a sequence is missing: the identity cannot be used any longer
        self.not_before = 0.0
        self.identity: Identity | None = None
        self.established = False  # the broker has acknowledged something under this identity
        self.next_sequence = 0

    def begin(self, batch: Batch) -> None:
        """Another batch behind all others; the one before it takes no more."""
        if self.open is not None:
            self.open.close()
        self.open = batch
        self.waiting.append(batch)

    def close(self, batch: Batch) -> None:
        """It takes no more records, though it waits on."""
        batch.close()
        if batch is self.open:
            self.open = None

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
        if batch is self.open:
            self.close(batch)
        if self.identity is None:
            self.identity = identity
        if batch.identity is None:
            sequence = header_of.NO_SEQUENCE if self.identity is NOBODY else self.next_sequence
            batch.assign(self.identity, sequence)
            self.next_sequence = self.next_sequence + batch.count & header_of.MAX_SEQUENCE
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
        if batch is self.open:
            self.close(batch)
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

    def renew(self, identity: Identity) -> None:
        """Go on under this identity, from sequence 0. Nothing is on its way, and nothing waits that ever was."""
        assert not self.in_flight and not any(batch.attempts for batch in self.waiting)
        self.identity = identity
        self.established = False
        self.lost_place = self.recovering = False
        self.next_sequence = 0


def _is_before(one: Batch, other: Batch) -> bool:
    """Whether `one` has the earlier sequence; sequences wrap, but never by half their range at a time."""
    distance = other.sequence - one.sequence & header_of.MAX_SEQUENCE
    return 0 < distance <= header_of.MAX_SEQUENCE >> 1
