"""What a consumer reads: its subscription, the partitions that are its own now, and where in each of them it is.

Pure: no I/O, no clock, no tasks. This is the seam between those who decide what is read (the application by `assign`,
its group by `given`) and those who read it (`intake` fetches, `places` finds out where to begin). Nobody tells the
others what was changed: `version` counts the changes, and all of them look here again.

A partition goes through phases. It comes in without a place (`UNKNOWN`): the group's committed offset is asked for, and
where there is none it is reset to one of the ends (`RESETTING`). Then it is read (`READING`); when its leader changes,
it is first made sure that what was read is still in the log (`VALIDATING`, KIP-320). A `seek` begins anew: `turn` goes
up, and an answer to a question of an earlier turn is not for this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from klamm.client.errors import ClientError, ConsumerMisuse, NotAssigned
from klamm.client.reset import ResetPolicy
from klamm.core.ids import NO_TOPIC_ID, TopicPartition

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1

Callback: TypeAlias = Callable[[list[TopicPartition]], Any]
"""Of a rebalance; what it returns is awaited if it can be."""


class Mode(Enum):
    """Who decides what is read."""

    NOTHING = "nothing"
    TOPICS = "topics"
    PATTERN = "pattern"
    ASSIGNED = "assigned"


class Listener(NamedTuple):
    """What the application wants to hear of rebalances. Without `lost`, `revoked` is told of losses, too."""

    assigned: Callback | None = None
    revoked: Callback | None = None
    lost: Callback | None = None


class Position(NamedTuple):
    """Where the next record comes from. `epoch` is the leader epoch of the one before it; -1 where nobody knows."""

    offset: int
    epoch: int = NO_EPOCH


class Phase(Enum):
    UNKNOWN = "unknown"
    RESETTING = "resetting"
    VALIDATING = "validating"
    READING = "reading"


class PartitionState:
    """One partition of ours. `offset` and `epoch` are what the application has got (see `Position`); `next_offset` and
    `next_epoch` are ahead of it by what was fetched and not yet taken."""

    __slots__ = (
        "epoch",
        "error",
        "failures",
        "held",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "next_epoch",
        "next_offset",
        "not_before",
        "offset",
        "paused",
        "phase",
        "place",
        "preferred",
        "preferred_until",
        "reset",
        "topic_id",
        "turn",
    )

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.phase = Phase.UNKNOWN
        self.turn = 0
        self.offset = self.next_offset = NO_OFFSET
        self.epoch = self.next_epoch = NO_EPOCH
        self.reset: ResetPolicy | None = None  # while RESETTING: to where
        self.paused = False
        self.held = False  # by the group: a callback runs, or it is being given up
        self.leader_epoch = NO_EPOCH  # of the leader for which the position is known to be right
        self.preferred: int | None = None  # the replica to read from, if it is not the leader (KIP-392)
        self.preferred_until = 0.0
        self.error: ClientError | None = None  # until the application has sought another place
        self.not_before = 0.0  # after a failure: do not ask again before this
        self.failures = 0
        self.topic_id: bytes = NO_TOPIC_ID  # of the topic in which the position was found to be right
        self.high_watermark = self.last_stable_offset = self.log_start_offset = NO_OFFSET

    @property
    def position(self) -> Position | None:
        return None if self.offset < 0 else Position(self.offset, self.epoch)

    @property
    def is_wanted(self) -> bool:
        """Whether the application may get records of it."""
        return not (self.paused or self.held)

    @property
    def is_fetched(self) -> bool:
        """Whether brokers should be asked for its records."""
        return self.phase is Phase.READING and not (self.paused or self.held)

    def start_at(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Read from here on. Everything that is known or under way of another place no longer counts."""
        self.turn += 1
        self.offset = self.next_offset = offset
        self.epoch = self.next_epoch = epoch
        self.phase = Phase.READING
        self.reset = None
        self.leader_epoch = NO_EPOCH
        self.topic_id = NO_TOPIC_ID
        self._forget_trouble()

    def _forget_trouble(self) -> None:
        self.error = None
        self.preferred = None
        self.not_before = 0.0
        self.failures = 0

    def go_back(self) -> None:
        """Forget what was fetched ahead: it will be asked for again."""
        self.turn += 1
        self.next_offset, self.next_epoch = self.offset, self.epoch

    def start_reset(self, policy: ResetPolicy) -> None:
        self.turn += 1
        self.phase = Phase.RESETTING
        self.reset = policy
        self.offset = self.next_offset = NO_OFFSET
        self.epoch = self.next_epoch = NO_EPOCH
        self.topic_id = NO_TOPIC_ID
        self._forget_trouble()


class Subscriptions:
    """`topics` and `pattern` are what was subscribed to; `partitions` what is ours now. With a pattern, `topics` stays
    empty: whoever resolves it knows what it came to."""

    def __init__(self, default_reset: ResetPolicy) -> None:
        self.default_reset = default_reset
        self.mode = Mode.NOTHING
        self.topics: frozenset[str] = frozenset()
        self.pattern: str | re.Pattern[str] | None = None
        self.listener = Listener()
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.version = 0
        """Goes up with every change of what is subscribed to, what is ours, and what of it may be read."""
        self.polls = 0
        """Goes up whenever the application asks for records: how a group tells that it is alive."""
        self._has_errors = False

    # What the application wants.

    def subscribe(self, topics: Iterable[str], listener: Listener) -> None:
        wanted = list(topics)
        if any(not isinstance(topic, str) or not topic for topic in wanted):
            raise ConsumerMisuse("A topic to subscribe to needs a name.", "Options go into `config`, or have names.")
        self._set_mode(Mode.TOPICS)
        self.topics, self.pattern, self.listener = frozenset(wanted), None, listener
        self.version += 1

    def subscribe_pattern(self, pattern: str | re.Pattern[str], listener: Listener) -> None:
        """Text is a regular expression for the broker to resolve (KIP-848), where it can; a compiled one is ours."""
        self._set_mode(Mode.PATTERN)
        self.topics, self.pattern, self.listener = frozenset(), pattern, listener
        self.version += 1

    def assign(self, places: Iterable[tuple[str, int]]) -> None:
        """Read these, whatever a group thinks. Those that were ours before keep their positions."""
        self._set_mode(Mode.ASSIGNED)
        self._become(places)

    def unsubscribe(self) -> None:
        self.mode = Mode.NOTHING
        self.topics, self.pattern, self.listener = frozenset(), None, Listener()
        self._become(())

    def _set_mode(self, mode: Mode) -> None:
        by_hand = self.mode is Mode.ASSIGNED
        if self.mode is not Mode.NOTHING and by_hand != (mode is Mode.ASSIGNED):
            raise ConsumerMisuse(
                "A consumer has partitions assigned or subscribes to topics, not both.", "Call unsubscribe() first."
            )
        self.mode = mode

    # What the group gives and takes. (It runs the listener; this only keeps what is so.)

    @property
    def is_subscribed(self) -> bool:
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    def given(self, places: Iterable[tuple[str, int]], *, held: bool = False) -> None:
        """All that is ours from now on. What stays keeps its state; what is new has no position yet, and with `held`
        is not touched before `release`. Asking for committed offsets waits for that, too."""
        before = set(self.partitions)
        self._become(places)
        for place, state in self.partitions.items():
            if held and place not in before:
                state.held = True

    def taken(self, places: Iterable[tuple[str, int]]) -> None:
        """These are no longer ours."""
        gone = {TopicPartition(*place) for place in places}
        self._become([place for place in self.partitions if place not in gone])

    def hold(self, places: Iterable[tuple[str, int]]) -> None:
        """Give nothing of these to the application until `release`."""
        self._set_held(places, True)

    def release(self, places: Iterable[tuple[str, int]]) -> None:
        self._set_held(places, False)

    def _set_held(self, places: Iterable[tuple[str, int]], held: bool) -> None:
        for place in places:
            state = self.partitions.get(TopicPartition(*place))
            if state is not None:
                state.held = held
        self.version += 1

    def _become(self, places: Iterable[tuple[str, int]]) -> None:
        before = self.partitions
        self.partitions = {}
        for given in places:
            place = TopicPartition(*given)
            self.partitions[place] = before.get(place) or PartitionState(place)
        for place, state in before.items():
            if place not in self.partitions:
                state.turn += 1  # whatever is under way for it has no one to come to
        self.version += 1

    # Single partitions.

    def state(self, place: tuple[str, int]) -> PartitionState:
        found = self.partitions.get(TopicPartition(*place))
        if found is None:
            raise NotAssigned(*place)
        return found

    def seek(self, place: tuple[str, int], offset: int, epoch: int = NO_EPOCH) -> None:
        if offset < 0:
            raise ConsumerMisuse(f"There is no offset {offset} to seek to.")
        self.state(place).start_at(offset, epoch)
        self.version += 1

    def reset(self, place: tuple[str, int], policy: ResetPolicy | None = None) -> None:
        """Find its position anew, by default as `auto.offset.reset` says."""
        self.state(place).start_reset(policy or self.default_reset)
        self.version += 1

    def fail(self, state: PartitionState, error: ClientError) -> None:
        """Something that only the application can help: nothing more of this partition until it seeks elsewhere."""
        state.error = error
        self._has_errors = True

    def first_error(self) -> ClientError | None:
        """Of the partitions that are ours. Cheap where there is none, as it nearly always is."""
        if not self._has_errors:
            return None
        for state in self.partitions.values():
            if state.error is not None:
                return state.error
        self._has_errors = False
        return None

    def rewind(self, state: PartitionState) -> None:
        """Forget what was fetched ahead of the application."""
        state.go_back()
        self.version += 1

    def pause(self, places: Iterable[tuple[str, int]]) -> None:
        self._set_paused(places, True)

    def resume(self, places: Iterable[tuple[str, int]]) -> None:
        self._set_paused(places, False)

    def _set_paused(self, places: Iterable[tuple[str, int]], paused: bool) -> None:
        for state in [self.state(place) for place in places]:  # all or none
            state.paused = paused
        self.version += 1

    def paused(self) -> set[TopicPartition]:
        return {place for place, state in self.partitions.items() if state.paused}

    def consumed(self) -> dict[TopicPartition, Position]:
        """What there is to commit: the position of every partition that has one."""
        return {place: at for place, state in self.partitions.items() if (at := state.position) is not None}

    def in_phase(self, phase: Phase) -> Iterator[PartitionState]:
        """Those not held: nothing is looked up for a partition before the group has let it go."""
        return (state for state in self.partitions.values() if state.phase is phase and not state.held)
