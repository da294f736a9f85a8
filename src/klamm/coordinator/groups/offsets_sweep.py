"""What is dropped without being asked for: offsets of deleted topics, offsets that are too old, groups without either.

A sweep goes through the groups of the shard in steps, each an event of its own, so that neither the loop is held up nor
a batch becomes too large. It remembers nothing but the groups that it has yet to look at: if it is cut off, the next
one finds the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from klamm.coordinator.groups.timers import TimerKey
from klamm.coordinator.machine import Now, Outcome, Record
from klamm.core.ids import ZERO_UUID
from klamm.wire.messages.coordinator import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from klamm.coordinator.groups.group import Group
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.groups.offsets_store import OffsetStore, Place
    from klamm.metadata.image import Image

_OFFSETS_PER_STEP: Final = 500
"""What one step looks at (of a single group: at all), and the tombstones that it may write for a group. So a batch has
less than twice as many: some 100 KB."""

_PAUSE_S: Final = 0.001
"""Between two steps: what is due at once would be done at once, and the loop is to have a turn."""

_MINUTE_MS: Final = 60_000

_EXPIRE: Final = TimerKey("offsets", "expire")
_STEP_ON: Final = TimerKey("offsets", "sweep")


class Sweep:
    """Two reasons to go: the clock (`offsets.retention.check.interval.ms`), and topics that were deleted."""

    __slots__ = ("_expiring", "_machine", "_queue", "_store")

    def __init__(self, machine: GroupMachine, store: OffsetStore) -> None:
        self._machine = machine
        self._store = store
        self._queue: deque[str] = deque()  # no more than there are groups
        self._expiring = False

    def wait(self, now: Now) -> None:
        """Until the next look at what is old."""
        interval_ms = self._machine.options().get_int("offsets.retention.check.interval.ms")
        self._machine.timers.set(_EXPIRE, now.monotonic + interval_ms / 1000)

    def look_for_deleted(self, now: Now) -> None:
        """Soon, as an event of its own."""
        self._begin(now)

    def fire(self, timer: TimerKey, now: Now) -> Outcome:
        if timer == _EXPIRE:
            self._expiring = True
            self._begin(now)
            self.wait(now)
            return Outcome()
        outcome = self._step(now)
        if self._queue:
            self._machine.timers.set(_STEP_ON, now.monotonic + _PAUSE_S)
        else:
            self._expiring = False
        return outcome

    def _begin(self, now: Now) -> None:
        """From the first group, even if another sweep is under way."""
        self._queue = deque({**dict.fromkeys(self._store.groups()), **dict.fromkeys(self._machine.groups)})
        if self._queue:
            self._machine.timers.set(_STEP_ON, now.monotonic)

    def _step(self, now: Now) -> Outcome:
        looked, records = 0, []
        while self._queue and looked < _OFFSETS_PER_STEP:
            group_id = self._queue.popleft()
            looked += 1 + len(self._store.of_group(group_id)) + len(self._store.pending_places(group_id))
            records += self._drop(group_id, now)
        return Outcome(records)

    def _drop(self, group_id: str, now: Now) -> list[Record]:
        """What to write for one group. If it is too much, the group comes up again."""
        group = self._machine.groups.get(group_id)
        places = list(self._stale(group_id, group, now))
        records = [tombstone(group_id, place) for place in places[:_OFFSETS_PER_STEP]]
        counters = self._machine.counters
        counters.expired_offsets += len(records)
        if len(places) > _OFFSETS_PER_STEP:
            self._queue.appendleft(group_id)
        elif group is not None and group.is_empty and self._expiring and self._is_all(group_id, places):
            records += group.tombstones()
            counters.expired_groups += 1
        return records

    def _is_all(self, group_id: str, places: list[Place]) -> bool:
        return len(places) == len(self._store.places(group_id))

    def _stale(self, group_id: str, group: Group | None, now: Now) -> Iterator[Place]:
        store, image = self._store, self._machine.image
        pending = store.pending_places(group_id)
        for place, value in store.of_group(group_id).items():
            old = self._expiring and place not in pending and self._is_old(group, place, value, now)
            if old or _is_gone(image, place, value):
                yield place
        for place in pending:
            values = () if store.get(group_id, place) else store.pending_values(group_id, place)
            if any(_is_gone(image, place, value) for value in values):
                yield place

    def _is_old(self, group: Group | None, place: Place, value: OffsetCommitValue, now: Now) -> bool:
        """As Kafka counts: from the moment the group became empty or, while nobody reads the topic any more, from the
        commit. An old client may have said itself how long to keep its offset."""
        start_ms: int | None = value.commit_timestamp
        if group is not None:
            if group.subscribes(place[0]):
                return False
            start_ms = group.retention_start_ms(value.commit_timestamp)
        if start_ms is None:
            return False
        if value.expire_timestamp >= 0:
            return now.time_ms >= value.expire_timestamp
        retention_ms = self._machine.options().get_int("offsets.retention.minutes") * _MINUTE_MS
        return now.time_ms - start_ms >= retention_ms


def tombstone(group_id: str, place: Place) -> Record:
    topic, partition = place
    return Record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def _is_gone(image: Image | None, place: Place, value: OffsetCommitValue) -> bool:
    """The topic that the offset belongs to does not exist, whatever there is under its name now. A machine never sees
    an offset of a topic that is still to come: its image has everything that was there when it became the leader."""
    if image is None:
        return False
    topic = image.topic(place[0])
    return topic is None or value.topic_id not in (ZERO_UUID, topic.id)
