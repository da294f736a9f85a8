"""How partitions are shared out among the members of a group: `range` and `uniform`, pure and deterministic.

An assignor gets all members with what they have so far (their target assignment, not what they own by now) and answers
with all of the next one. Every partition of a topic that somebody subscribes to goes to exactly one of its subscribers.
Neither looks at racks, as Kafka's do not. The same input gives the same answer in every process: nothing here may
depend on the order of a set.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

Partitions: TypeAlias = "Mapping[bytes, frozenset[int]]"
"""Partitions by the id of their topic; no topic is there without any."""

MAX_ROUNDS = 16
"""Passes over the topics of members that subscribe differently. One settles most groups; where subscriptions overlap,
each about halves what is still out of balance."""


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    topics: frozenset[bytes]
    """Topics that it subscribes to and that exist."""
    assigned: Partitions
    """Its part of the assignment so far."""
    instance_id: str | None = None


Members: TypeAlias = "Mapping[str, Subscriber]"
Counts: TypeAlias = "Mapping[bytes, int]"
"""How many partitions each topic has."""
Assignor: TypeAlias = "Callable[[Members, Counts], dict[str, Partitions]]"


def assign_range(members: Members, counts: Counts) -> dict[str, Partitions]:
    """Neighbouring partitions stay together, and topics of the same size are cut at the same places: members then have
    the same numbers of each. Static members come first, so that others coming and going move them less."""
    found: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic, subscribers in _subscribers(members).items():
        share, extra = divmod(counts[topic], len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + share + (place < extra)
            if start < end:
                found[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(found)


def assign_uniform(members: Members, counts: Counts) -> dict[str, Partitions]:
    """As even as can be, and members keep what they have as far as that allows."""
    if len({subscriber.topics for subscriber in members.values()}) <= 1:
        return _share_evenly(members, counts)
    return _Balance(members, counts).result()


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _order(members: Members) -> list[str]:
    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=place)


def _subscribers(members: Members) -> dict[bytes, list[str]]:
    """Who subscribes to each topic."""
    found: dict[bytes, list[str]] = {}
    for member_id in _order(members):
        for topic in sorted(members[member_id].topics):
            found.setdefault(topic, []).append(member_id)
    return found


def _kept(subscriber: Subscriber, counts: Counts) -> list[tuple[bytes, int]]:
    """What a member has that it may keep."""
    return [
        (topic, partition)
        for topic in sorted(subscriber.assigned)
        if topic in subscriber.topics
        for partition in sorted(subscriber.assigned[topic])
        if partition < counts[topic]
    ]


def _kept_size(subscriber: Subscriber, counts: Counts) -> int:
    """How many these are."""
    size = 0
    for topic, partitions in subscriber.assigned.items():
        if topic in subscriber.topics:
            is_whole = max(partitions, default=-1) < counts[topic]  # most are, and then it is quick
            size += len(partitions) if is_whole else sum(number < counts[topic] for number in partitions)
    return size


def _by_topic(partitions: Iterable[tuple[bytes, int]]) -> Partitions:
    found: dict[bytes, set[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, set()).add(partition)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}


def _share_evenly(members: Members, counts: Counts) -> dict[str, Partitions]:
    """All members subscribe to the same topics. The larger shares go to those who have most, so nobody gives up a
    partition that somebody else would not be short of otherwise."""
    if not members:
        return {}
    sizes = {member_id: _kept_size(members[member_id], counts) for member_id in _order(members)}
    topics = next(iter(members.values())).topics
    share, extra = divmod(sum(counts[topic] for topic in topics), len(members))
    found: dict[str, Partitions] = {member_id: {} for member_id in sizes}
    changed: dict[str, list[tuple[bytes, int]]] = {}
    short: deque[tuple[str, int]] = deque()
    free = {topic: set(range(counts[topic])) for topic in sorted(topics)}
    for place, member_id in enumerate(sorted(sizes, key=lambda member_id: -sizes[member_id])):
        quota = share + (place < extra)
        assigned = members[member_id].assigned
        if sizes[member_id] == quota == sum(map(len, assigned.values())):
            found[member_id] = assigned  # most of them, when one comes or goes
            for topic, partitions in assigned.items():
                free[topic] -= partitions
            continue
        places = changed[member_id] = _kept(members[member_id], counts)[:quota]
        for topic, partition in places:
            free[topic].discard(partition)
        if len(places) < quota:
            short.append((member_id, quota - len(places)))
    for topic, left in free.items():
        for partition in sorted(left):
            member_id, missing = short.popleft()
            changed[member_id].append((topic, partition))
            if missing > 1:
                short.append((member_id, missing - 1))
    assert not short, "the quotas add up to the partitions"
    for member_id, places in changed.items():
        found[member_id] = _by_topic(places)
    return found


class _Balance:
    """Members subscribe differently. What nobody has goes to the least loaded subscriber of its topic; then, topic by
    topic, partitions move from the most to the least loaded subscriber while that makes the two more equal."""

    def __init__(self, members: Members, counts: Counts) -> None:
        self._counts = counts
        self._ids = _order(members)
        number = {member_id: index for index, member_id in enumerate(self._ids)}
        self._subscribers = {
            topic: [number[member_id] for member_id in ids] for topic, ids in _subscribers(members).items()
        }
        self._load = [0] * len(self._ids)
        self._held: dict[bytes, dict[int, list[int]]] = {topic: {} for topic in self._subscribers}
        """Partitions by topic and member."""
        for index, member_id in enumerate(self._ids):
            for topic, partition in _kept(members[member_id], counts):
                self._give(topic, partition, index)

    def result(self) -> dict[str, Partitions]:
        # Topics that weigh most on each of their subscribers come first: what follows can still make up for it.
        topics = sorted(
            self._subscribers, key=lambda topic: (-self._weight(topic), len(self._subscribers[topic]), topic)
        )
        for topic in topics:
            self._fill(topic)
        for _ in range(MAX_ROUNDS):
            if not sum([self._level(topic) for topic in topics]):
                break
        found: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in self._ids}
        for topic in sorted(self._held):
            for index, partitions in self._held[topic].items():
                if partitions:
                    found[self._ids[index]][topic] = frozenset(partitions)
        return dict(found)

    def _weight(self, topic: bytes) -> float:
        return self._counts[topic] / len(self._subscribers[topic])

    def _give(self, topic: bytes, partition: int, index: int) -> None:
        self._held[topic].setdefault(index, []).append(partition)
        self._load[index] += 1

    def _fill(self, topic: bytes) -> None:
        taken = {partition for partitions in self._held[topic].values() for partition in partitions}
        least = [(self._load[index], index) for index in self._subscribers[topic]]
        heapq.heapify(least)
        for partition in range(self._counts[topic]):
            if partition not in taken:
                _, index = least[0]
                self._give(topic, partition, index)
                heapq.heapreplace(least, (self._load[index], index))

    def _level(self, topic: bytes) -> int:
        """How many partitions of the topic have moved. An entry of a heap is out of date if its load is; whoever
        changes a load pushes a new one."""
        load, held = self._load, self._held[topic]
        least = [(load[index], index) for index in self._subscribers[topic]]
        most = [(-load[index], index) for index, partitions in held.items() if partitions]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = 0
        while most:
            giver = most[0][1]
            if -most[0][0] != load[giver] or not held[giver]:
                heapq.heappop(most)
                continue
            taker = least[0][1]
            if least[0][0] != load[taker]:
                heapq.heappop(least)
                continue
            if load[giver] - load[taker] <= 1:
                break
            load[giver] -= 1
            self._give(topic, held[giver].pop(), taker)
            for index in (giver, taker):
                heapq.heappush(least, (load[index], index))
                heapq.heappush(most, (-load[index], index))
            moved += 1
        return moved
