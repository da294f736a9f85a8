"""The assignors that leave partitions where they are as far as an even division allows: sticky (KIP-54) and cooperative
sticky (KIP-429). What members carry to the leader is in the formats of Java's: either side understands the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from klamm import wire
from klamm.client.assignors.assignor import NO_GENERATION, Assignment, Assignor, Member, in_order
from klamm.client.assignors.balance import balanced
from klamm.core.ids import TopicPartition
from klamm.wire.schema import Struct, array, int32, string


class _Topic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class StickyUserData(Struct, versions="0-1"):
    """There is no version on the wire: a reader tries the newer one first, as Java's does."""

    previous_assignment: list[_Topic] = array(_Topic)
    generation: int = int32("1+", default=NO_GENERATION, ignorable=True)


class CooperativeUserData(Struct, versions="0"):
    generation: int = int32(default=NO_GENERATION)


class Claim(NamedTuple):
    """What a member says it had, and in which generation."""

    member: str
    places: Iterable[TopicPartition]
    generation: int


class StickyAssignor(Assignor):
    """Everybody gives up everything in a rebalance, and gets most of it back."""

    name = "sticky"

    def user_data(self, topics: frozenset[str], last: Sequence[TopicPartition], generation: int) -> bytes | None:
        if generation == NO_GENERATION:
            return None
        by_topic: dict[str, list[int]] = {}
        for topic, partition in last:
            by_topic.setdefault(topic, []).append(partition)
        previous = [_Topic(topic=topic, partitions=held) for topic, held in by_topic.items()]
        return wire.encode(StickyUserData(previous_assignment=previous, generation=generation), 1)

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
        return _assign(members, partitions, [_told(member) for member in members])


class CooperativeStickyAssignor(Assignor):
    """Everybody keeps reading what stays. What moves is given up first, and given away in a second round."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, topics: frozenset[str], last: Sequence[TopicPartition], generation: int) -> bytes | None:
        return wire.encode(CooperativeUserData(generation=generation), 0)

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
        claims = [Claim(member.id, member.owned, _generation(member)) for member in members]
        target = _assign(members, partitions, claims)
        # Whoever says that it has a partition may be reading it, in whichever generation it got it.
        holders: dict[TopicPartition, set[str]] = {}
        for claim in claims:
            for place in claim.places:
                holders.setdefault(place, set()).add(claim.member)
        result = {
            member: [place for place in mine if not holders.get(place, set()) - {member}]
            for member, mine in target.items()
        }
        while result != target and (spared := _spared(balanced(_wanted(members), partitions, result), result, holders)):
            for member, place in spared:
                result[member].append(place)
        return {member: sorted(mine) for member, mine in result.items()}


def _spared(
    next_round: Assignment, result: Assignment, holders: Mapping[TopicPartition, set[str]]
) -> list[tuple[str, TopicPartition]]:
    """What members have and would get again in the next round, if they gave it up in this one: they need not."""
    return [
        (member, place)
        for member, mine in next_round.items()
        for place in set(mine).difference(result[member])
        if holders.get(place) == {member}
    ]


def _assign(members: Sequence[Member], partitions: Mapping[str, int], claims: Sequence[Claim]) -> Assignment:
    return balanced(_wanted(members), partitions, owners(claims))


def _wanted(members: Sequence[Member]) -> dict[str, frozenset[str]]:
    return {member.id: member.topics for member in in_order(members)}


def owners(claims: Sequence[Claim]) -> dict[str, list[TopicPartition]]:
    """Who had what. Of several that claim a partition it is the one of the latest generation; two of the same
    generation cannot both be right, so neither is believed."""
    found: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, places, generation in claims:
        for place in dict.fromkeys(places):
            before = found.get(place)
            if before is None or generation > before[0]:
                found[place] = generation, member
            elif generation == before[0]:
                found[place] = generation, None
    result: dict[str, list[TopicPartition]] = {claim.member: [] for claim in claims}
    for place, (_, owner) in found.items():
        if owner is not None:
            result[owner].append(place)
    return result


def _told(member: Member) -> Claim:
    """What a member that has given up everything had before. What cannot be read counts as nothing."""
    for version in (1, 0):
        try:
            told = wire.decode(StickyUserData, member.user_data or b"", version, allow_trailing=True)
        except wire.ProtocolError:
            continue
        places = [TopicPartition(t.topic, partition) for t in told.previous_assignment for partition in t.partitions]
        return Claim(member.id, places, told.generation)
    return Claim(member.id, (), NO_GENERATION)


def _generation(member: Member) -> int:
    """From the subscription, or where a member is too old for that (before KIP-792), from the user data."""
    if member.generation != NO_GENERATION:
        return member.generation
    try:
        told = wire.decode(CooperativeUserData, member.user_data or b"", 0, allow_trailing=True)
    except wire.ProtocolError:
        return NO_GENERATION
    return told.generation
