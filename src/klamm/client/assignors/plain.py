"""The two assignors that know nothing of the past: range and round robin. Both give what Java's give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from klamm.client.assignors.assignor import Assignment, Assignor, Member, in_order, subscribers
from klamm.core.ids import TopicPartition


class RangeAssignor(Assignor):
    """Each topic by itself, in as many runs of partitions as it has subscribers. Topics with as many partitions and the
    same subscribers are divided alike, so that one member has the same partitions of all of them."""

    name = "range"

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
        result: Assignment = {member.id: [] for member in members}
        for topic, wanting in subscribers(members, partitions).items():
            if not wanting:
                continue
            share, extra = divmod(partitions[topic], len(wanting))
            first = 0
            for index, member in enumerate(wanting):
                after = first + share + (index < extra)
                result[member.id] += [TopicPartition(topic, partition) for partition in range(first, after)]
                first = after
        return result


class RoundRobinAssignor(Assignor):
    """All partitions of all topics, dealt out in turn to those who want them."""

    name = "roundrobin"

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
        result: Assignment = {member.id: [] for member in members}
        turns = cycle(in_order(members))
        for topic, wanting in subscribers(members, partitions).items():
            if not wanting:
                continue
            for partition in range(partitions[topic]):
                member = next(member for member in turns if topic in member.topics)
                result[member.id].append(TopicPartition(topic, partition))
        return result
