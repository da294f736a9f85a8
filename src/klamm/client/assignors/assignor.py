"""What an assignor is: it says which member of a classic group reads which partition. Pure: no I/O, no state.

The group's leader runs it, over what all members said of themselves when they joined. Any member may become the leader
and the next one may be a program in another language, so an assignor keeps nothing: what it wants to know at the next
rebalance, each member carries (`owned` and `generation`, or `user_data` in a format of the assignor's own).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, TypeAlias

from klamm.core.ids import TopicPartition

NO_GENERATION: Final = -1


class Member(NamedTuple):
    """One member, as it described itself. `owned` is what it holds on to over the rebalance (nothing, unless all do so
    cooperatively), `generation` the one in which it got that."""

    id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack: str | None = None


Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""The partitions of each member, by its id. Every member is in it."""


class Assignor:
    """The base for one of your own: give it a name that all members of the group know, and an `assign`."""

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False
    """Whether members keep their partitions during a rebalance (KIP-429). Such an assignor must not give a partition to
    a member as long as another one owns it: it is left out, its owner gives it up, and the next round gives it away."""

    def user_data(self, topics: frozenset[str], last: Sequence[TopicPartition], generation: int) -> bytes | None:
        """What this member tells the leader beside its topics. `last` is what it was assigned last, in `generation`."""
        return None

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
        """Divide all partitions of these topics (with how many each has). A topic that does not exist is not there."""
        raise NotImplementedError


def in_order(members: Sequence[Member]) -> list[Member]:
    """As Java sorts them: those with an instance id first, by it. Static members so keep what they had, whichever
    member ids they were given."""
    return sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or "", member.id))


def subscribers(members: Sequence[Member], partitions: Mapping[str, int]) -> dict[str, list[Member]]:
    """Who wants each topic that exists, in order; topics by name."""
    found: dict[str, list[Member]] = {topic: [] for topic in sorted(partitions)}
    for member in in_order(members):
        for topic in member.topics:
            if topic in found:
                found[topic].append(member)
    return found
