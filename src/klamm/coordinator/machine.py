"""What a coordinator's state machine is: events go in, an `Outcome` comes out, and records are replayed.

A machine holds the state of one partition of an internal topic. Its methods *decide*: they return the records to write
and the answers to give, and must not touch durable state themselves. The shard appends the records and then calls
`replay` with each; the same `replay` builds the state anew after a restart, so both are equal. What is not durable (who
waits for a rebalance, which member was heard of when) a machine may change while it decides.

A machine never waits, reads no clock and does no I/O: the time comes in with each event, and it says in `next_due` when
it wants to be ticked. An answer may be given by a later event: the machine keeps the `Reply` until then. Nothing here
may import a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from klamm.core.errors import ErrorCode
from klamm.wire.schema import Struct

if TYPE_CHECKING:
    from klamm.metadata.image import Image
    from klamm.metadata.replay import Delta


class Now(NamedTuple):
    """The moment of an event."""

    monotonic: float
    """Seconds; for time limits."""
    time_ms: int
    """Wall clock; for what is kept in records."""


class Record(NamedTuple):
    """A record of an internal topic, by its tables in `wire/messages/coordinator`. Without a value: a tombstone."""

    key: Struct
    value: Struct | None


class Producer(NamedTuple):
    """Under whose transaction records are written."""

    id: int
    epoch: int


class Reply(Protocol):
    """Where an answer goes. A machine only keeps it and names it in an outcome."""

    @property
    def done(self) -> bool:
        """Nobody waits any more: it was answered, or the client has gone."""


class Answer(NamedTuple):
    reply: Reply
    value: Any


class Outcome:
    """What came of an event. The shard writes `records` as one batch, all or nothing, replays them, and gives the
    answers and starts the effects once the batch is committed; answers without records wait for everything that was
    written before them. If the batch cannot be written, nothing of it happened: the shard starts anew from the log.

    `producer`: the records belong to its open transaction, and count when its marker comes.
    `effects`: what is to be done outside of the machine, such as writing markers; for the shard's `on_effect`.
    `only_records`: nothing but these records and answers came of it, so if they cannot be written, the machine need not
    start anew: the answers are refused, and that is all. For what often fails, or is often too large (offsets).
    `undo`: the same, where the machine has changed besides: this takes it back. Without either, records that a client
    can make too large would let it bring down all others that the machine serves.
    """

    __slots__ = ("answers", "effects", "only_records", "producer", "records", "undo")

    def __init__(
        self,
        records: Sequence[Record] = (),
        answers: Sequence[Answer] = (),
        *,
        effects: Sequence[object] = (),
        producer: Producer | None = None,
        only_records: bool = False,
        undo: Callable[[], None] | None = None,
    ) -> None:
        self.records = list(records)
        self.answers = list(answers)
        self.effects = list(effects)
        self.producer = producer
        self.only_records = only_records
        self.undo = undo

    def add(self, other: Outcome) -> None:
        """The other follows this one, in the same batch."""
        assert self.producer == other.producer or not (self.records and other.records), "one batch, one producer"
        assert self.undo is None and other.undo is None, "what can be taken back stands alone"
        self.records += other.records
        self.answers += other.answers
        self.effects += other.effects
        self.producer = self.producer or other.producer
        self.only_records = self.only_records and other.only_records


class Machine(Protocol):
    @property
    def next_due(self) -> float | None:
        """When to call `tick`, on the monotonic clock; looked at after each event."""

    def replay(self, record: Record, producer: Producer | None = None) -> None:
        """A record that is in the log: the only way in which durable state changes. With a producer it is part of a
        transaction that has not ended yet."""

    def replay_end(self, producer: Producer, committed: bool) -> None:
        """A marker that is in the log: this producer's transaction ended."""

    def loaded(self, now: Now) -> Outcome:
        """Everything in the log was replayed; requests come next. Time limits begin to run anew."""

    def tick(self, now: Now) -> Outcome:
        """`next_due` has passed."""

    def image_changed(self, image: Image, delta: Delta, now: Now) -> Outcome:
        """The metadata is another one. Called with the current image before `loaded`, too (with an empty delta)."""

    def resigned(self, error: ErrorCode) -> list[Answer]:
        """The shard is given up: what to tell all who wait. The machine is not used any more."""
