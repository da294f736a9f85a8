"""A group as its members share it: its topic, its ledger, and whether they have got to where they should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.testing.sim.broker.model import PartitionModel, TopicModel, Violation
from klamm.testing.sim.membership.ledger import CommittedOffset, Generations, Steps
from klamm.testing.sim.membership.ownership import Ownership

if TYPE_CHECKING:
    from klamm.testing.sim.membership.member import GroupMember


class Group:
    def __init__(self, group_id: str, topic: TopicModel, *, flushed: bool) -> None:
        self.id = group_id
        self.topic = topic
        self.steps = Steps()
        self.offsets: list[CommittedOffset] = []
        self.generations = Generations(group_id)
        self.ownership = Ownership(group_id, self.steps)
        self.members: list[GroupMember] = []
        self.epochs: set[int] = set()  # in which members were told of their partitions
        self.lost: GroupMember | None = None
        self.commits = 0  # acknowledged
        self.asked = False  # somebody has tried to commit
        self._flushed = flushed
        self._durable = 0
        self._processed: list[set[int]] = []
        self.grow()

    def grow(self) -> None:
        """As many partitions as the topic has now."""
        for partition in self.topic.partitions[len(self.offsets) :]:
            self.offsets.append(CommittedOffset(f"{self.id}: {partition}"))
            self._processed.append(set())

    # ---- what is durable

    def everything_is_durable(self) -> None:
        self._durable = self.steps.next()

    def power_lost(self) -> None:
        if self._flushed:
            return  # whatever was answered was on the disk
        for offset in self.offsets:
            offset.power_lost(self._durable)
        self.generations.power_lost(self._durable)
        self.ownership.power_lost()

    # ---- where they are

    def processed(self, partition: PartitionModel, first: int, count: int) -> None:
        self._processed[partition.index].update(range(first, first + count))

    @property
    def is_drained(self) -> bool:
        return all(len(self._processed[partition.index]) >= partition.acked_end for partition in self.topic.partitions)

    @property
    def is_settled(self) -> bool:
        """All members are in, of one mind, and each partition has one of them."""
        if any(member.position is None for member in self.members):
            return False
        owned = [partition for member in self.members for partition in sorted(member.owned)]
        at_one = len({member.position for member in self.members}) == 1
        return at_one and sorted(owned) == [partition.index for partition in self.topic.partitions]

    def lose_one(self) -> None:
        """One that has something to lose dies, if there are others to take over."""
        if len(self.members) > 1:
            self.lost = next(member for member in self.members if member.owned)
            self.lost.doomed = True
            self.members.remove(self.lost)

    def check_delivery(self) -> None:
        """Offsets are committed after their records were processed, so nothing may have been skipped."""
        for partition in self.topic.partitions:
            missing = set(range(partition.acked_end)) - self._processed[partition.index]
            if missing:
                raise Violation(f"{self.id}: nobody has processed {min(missing)} of {partition}")

    def __str__(self) -> str:
        members = ", ".join(f"{one.name} at {one.position} with {sorted(one.owned)}" for one in self.members)
        done = [f"{len(self._processed[one.index])} of {one.acked_end}" for one in self.topic.partitions]
        return f"{self.id}: {members}; processed: {', '.join(done)}"
