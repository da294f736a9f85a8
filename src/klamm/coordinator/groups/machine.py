"""The state machine of one partition of `__consumer_offsets`: its groups, their offsets, their time limits.

It has three parts, each of which decides and replays what is its own: `classic` and `consumer` for the two protocols,
`offsets` for what was committed. A part finds the others, and what all of them share, through the machine. Handlers
call a part: `broker.groups.call(group_id, lambda m, reply, now: m.classic.join(...), refuse)`.

The machine must never look into a group; and no part may keep a group of another's kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Protocol

from klamm.coordinator.counters import GroupCounters
from klamm.coordinator.groups.classic import ClassicGroups
from klamm.coordinator.groups.offsets import Offsets
from klamm.coordinator.groups.timers import Timers
from klamm.coordinator.machine import Answer, Now, Outcome, Producer, Record
from klamm.wire.messages.coordinator import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from klamm.coordinator.groups.consumer.part import ConsumerGroups
    from klamm.coordinator.groups.group import Group
    from klamm.coordinator.groups.timers import TimerKey
    from klamm.core.errors import ErrorCode
    from klamm.core.options import Options
    from klamm.metadata.image import Image
    from klamm.metadata.replay import Delta
    from klamm.wire.schema import Struct

CONSUMER_GROUP_KEYS = (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)


class Part(Protocol):
    """A part of the machine: `Machine`, for some tables of records."""

    name: ClassVar[str]
    """What its timers have as `TimerKey.part`."""
    keys: ClassVar[tuple[type[Struct], ...]]
    """The tables of the keys whose records it replays."""

    def replay(self, record: Record, producer: Producer | None = None) -> None: ...

    def loaded(self, now: Now) -> Outcome: ...

    def fire(self, timer: TimerKey, now: Now) -> Outcome:
        """A timer of this part is due, and not set any more."""

    def image_changed(self, image: Image, delta: Delta, now: Now) -> Outcome: ...

    def resigned(self, error: ErrorCode) -> list[Answer]: ...


class GroupMachine:
    __slots__ = (
        "_by_key",
        "_consumer",
        "_counters",
        "_parts",
        "_uuid",
        "classic",
        "counters",
        "groups",
        "image",
        "offsets",
        "options",
        "timers",
    )

    def __init__(
        self, options: Callable[[], Options], uuid: Callable[[], bytes], counters: GroupCounters | None = None
    ) -> None:
        """`options()` are the broker's as they are now; `uuid()` makes ids of members (16 random bytes)."""
        self.counters = GroupCounters()  # while it loads: nobody looks at them
        self._counters = counters or self.counters
        self.options = options
        self._uuid = uuid
        self.groups: dict[str, Group] = {}
        self.timers = Timers()
        self.image: Image | None = None
        self.classic = ClassicGroups(self)
        self.offsets = Offsets(self)
        parts: tuple[Part, ...] = (self.classic, self.offsets)
        self._parts = {part.name: part for part in parts}
        self._by_key = {key: part for part in parts for key in part.keys}
        self._consumer: ConsumerGroups | None = None

    @property
    def consumer(self) -> ConsumerGroups:
        """Made when it is first needed: a shard of classic groups alone does not wait for its modules (10 ms)."""
        part = self._consumer
        if part is None:
            from klamm.coordinator.groups.consumer.part import ConsumerGroups

            part = self._consumer = ConsumerGroups(self)
            self._parts[part.name] = part
            self._by_key.update(dict.fromkeys(part.keys, part))
        return part

    def new_uuid(self) -> str:
        """A random uuid as text, for the id of a member."""
        text = self._uuid().hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    @property
    def next_due(self) -> float | None:
        return self.timers.next_due

    def replay(self, record: Record, producer: Producer | None = None) -> None:
        part = self._by_key.get(type(record.key))
        if part is None and isinstance(record.key, CONSUMER_GROUP_KEYS):
            part = self.consumer
        if part is not None:  # else a kind of group that is not ours (share, streams): kept in the log, of no effect
            part.replay(record, producer)

    def replay_end(self, producer: Producer, committed: bool) -> None:
        """Only offsets are written in transactions."""
        self.offsets.replay_end(producer, committed)

    def loaded(self, now: Now) -> Outcome:
        self.counters = self._counters
        outcome = Outcome()
        for part in self._parts.values():
            outcome.add(part.loaded(now))
        return outcome

    def tick(self, now: Now) -> Outcome:
        """One timer at a time, so that what follows from it is replayed before the next is looked at: the shard comes
        back at once while `next_due` has passed."""
        timer = self.timers.pop(now.monotonic)
        return Outcome() if timer is None else self._parts[timer.part].fire(timer, now)

    def image_changed(self, image: Image, delta: Delta, now: Now) -> Outcome:
        self.image = image
        outcome = Outcome()
        for part in self._parts.values():
            outcome.add(part.image_changed(image, delta, now))
        return outcome

    def resigned(self, error: ErrorCode) -> list[Answer]:
        return [answer for part in self._parts.values() for answer in part.resigned(error)]
