"""The even division that moves least: what both sticky assignors stand on. Pure.

First it is decided how many partitions of each topic each member gets, and only then which, so that nobody swaps one
partition for another of the same topic. The numbers begin with what everybody has. Partitions without an owner go to
whoever has least. Then, as long as one member has at least two more than another that could get one of them, directly
or by way of others who pass one on, one partition goes down that way. At the end no division of the partitions is more
even (it is an optimal semi-matching of partitions and members).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klamm.client.assignors.assignor import Assignment
from klamm.core.ids import TopicPartition

GAP: Final = 2
"""Moving a partition makes things more even only from a difference of this many on."""


class _Hop(NamedTuple):
    """A partition of this topic can go from this member to the next."""

    member: str
    topic: str


def balanced(
    wanted: Mapping[str, frozenset[str]],
    partitions: Mapping[str, int],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> Assignment:
    """`wanted` has the topics of each member, in the order in which ties are decided; `owned` what it had, a partition
    with at most one member."""
    kept = {member: _still_right(owned.get(member, ()), topics, partitions) for member, topics in wanted.items()}
    counts = _Counts(wanted, partitions, kept)
    counts.shed()
    counts.hand_out()
    counts.even_out()
    return _choose(counts.of, partitions, kept)


def _still_right(
    owned: Sequence[TopicPartition], topics: frozenset[str], partitions: Mapping[str, int]
) -> dict[str, list[int]]:
    """By topic, without what is no longer wanted or no longer there."""
    kept: dict[str, list[int]] = {}
    for topic, partition in owned:
        if topic in topics and 0 <= partition < partitions.get(topic, 0):
            kept.setdefault(topic, []).append(partition)
    return kept


class _Counts:
    """`of[member][topic]`: how many partitions of the topic the member gets; entries of 0 are left out."""

    def __init__(
        self,
        wanted: Mapping[str, frozenset[str]],
        partitions: Mapping[str, int],
        kept: Mapping[str, Mapping[str, list[int]]],
    ) -> None:
        self.of = {member: {topic: len(have) for topic, have in kept[member].items()} for member in wanted}
        self.load = {member: sum(counts.values()) for member, counts in self.of.items()}
        self._wanted = wanted
        self._subscribers: dict[str, list[str]] = {topic: [] for topic in partitions}
        for member, topics in wanted.items():
            for topic in topics & partitions.keys():
                self._subscribers[topic].append(member)
        self._free = dict(partitions)
        for counts in self.of.values():
            for topic, count in counts.items():
                self._free[topic] -= count

    def _give(self, member: str, topic: str) -> None:
        self.of[member][topic] = self.of[member].get(topic, 0) + 1
        self.load[member] += 1

    def _take(self, member: str, topic: str) -> None:
        self.of[member][topic] -= 1
        if not self.of[member][topic]:
            del self.of[member][topic]
        self.load[member] -= 1

    def shed(self) -> None:
        """Where all want the same, everybody's share is known at once: what is above it goes back. (`even_out` would
        come to the same, one partition at a time.)"""
        if len(set(self._wanted.values())) != 1:
            return
        total = sum(count for topic, count in self._free.items() if self._subscribers[topic]) + sum(self.load.values())
        share, extra = divmod(total, len(self.of))
        for index, member in enumerate(sorted(self.of, key=self.load.__getitem__, reverse=True)):
            for _ in range(self.load[member] - share - (index < extra)):
                topic = max(self.of[member], key=lambda topic: (self.of[member][topic], topic))
                self._take(member, topic)
                self._free[topic] += 1

    def hand_out(self) -> None:
        """What is free to those who have least; topics that few want come first."""
        order = {member: index for index, member in enumerate(self.of)}
        for topic in sorted(self._free, key=lambda topic: (len(self._subscribers[topic]), topic)):
            heap = [(self.load[member], order[member], member) for member in self._subscribers[topic]]
            heapq.heapify(heap)
            for _ in range(self._free[topic] if heap else 0):
                _, index, member = heap[0]
                self._give(member, topic)
                heapq.heapreplace(heap, (self.load[member], index, member))

    def even_out(self) -> None:
        """From the member with most on. Whom nobody could relieve is settled, and so are all that its partitions could
        have gone to: none of them has two less, and whoever has less than it can be relieved by them no more."""
        settled: set[str] = set()
        while len(settled) < len(self.of):
            source = max((member for member in self.of if member not in settled), key=self.load.__getitem__)
            came_from = self._reach(source, settled)
            if not (self._hand_on(source, came_from) or self._hand_down(source, came_from)):
                settled.update(came_from)

    def _reach(self, source: str, settled: set[str]) -> dict[str, _Hop | None]:
        """All members that a partition of the source's could lead to, nearest first, and by which way."""
        came_from: dict[str, _Hop | None] = {source: None}
        seen: set[str] = set()
        for member in (queue := [source]):
            for topic in self.of[member]:
                if topic in seen:
                    continue
                seen.add(topic)
                for other in self._subscribers[topic]:
                    if other not in came_from and other not in settled:
                        came_from[other] = _Hop(member, topic)
                        queue.append(other)
        return came_from

    def _hand_on(self, source: str, came_from: Mapping[str, _Hop | None]) -> bool:
        """Directly, as many as it takes: a member that had everything may face a thousand that have nothing."""
        near = [member for member, hop in came_from.items() if hop is not None and hop.member == source]
        heap = [(self.load[member], index) for index, member in enumerate(near)]
        heapq.heapify(heap)
        before = self.load[source]
        while heap and heap[0][0] <= self.load[source] - GAP:
            index = heap[0][1]
            hop = came_from[near[index]]
            assert hop is not None
            if hop.topic in self.of[source]:
                self._move(hop, near[index])
                heapq.heapreplace(heap, (self.load[near[index]], index))
            else:
                heapq.heappop(heap)  # perhaps by another topic, the next time
        return self.load[source] < before

    def _hand_down(self, source: str, came_from: Mapping[str, _Hop | None]) -> bool:
        """One, by way of others, to the nearest that has few enough."""
        target = next((member for member in came_from if self.load[member] <= self.load[source] - GAP), None)
        if target is None:
            return False
        while (hop := came_from[target]) is not None:
            self._move(hop, target)
            target = hop.member
        return True

    def _move(self, hop: _Hop, to: str) -> None:
        self._take(hop.member, hop.topic)
        self._give(to, hop.topic)


def _choose(
    counts: Mapping[str, Mapping[str, int]],
    partitions: Mapping[str, int],
    kept: Mapping[str, Mapping[str, list[int]]],
) -> Assignment:
    """Everybody's own as far as the number goes; what is left over fills up the others."""
    taken: dict[str, set[int]] = {topic: set() for topic in partitions}
    for member, topics in counts.items():
        for topic, count in topics.items():
            taken[topic].update(sorted(kept[member].get(topic, ()))[:count])
    left = {topic: iter([p for p in range(count) if p not in taken[topic]]) for topic, count in partitions.items()}
    result: Assignment = {}
    for member, topics in counts.items():
        mine = result[member] = []
        for topic in sorted(topics):
            own = sorted(kept[member].get(topic, ()))[: topics[topic]]
            more = [next(left[topic]) for _ in range(topics[topic] - len(own))]
            mine += [TopicPartition(topic, partition) for partition in sorted(own + more)]
    return result
