"""One step of a member from its current towards its target assignment: revoke first, then assign (KIP-848).

A member is told to give up what is not its any more and stays in its epoch until it says that it did. Then it moves to
the target's epoch and gets what is free; what others still own it gets at a later heartbeat. So no partition ever has
two owners, and nobody waits for a whole group. Pure: member in, member out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import NamedTuple, TypeAlias

from klamm.coordinator.groups.consumer.assignors import Partitions
from klamm.coordinator.groups.consumer.member import NOTHING, Assigned, Member, State

Owned: TypeAlias = "Iterable[tuple[bytes, Iterable[int]]] | None"
"""What a member says that it owns; None: it did not say, because nothing has changed."""

_NO_PARTITIONS: frozenset[int] = frozenset()


class Goal(NamedTuple):
    """Where a member shall get to."""

    epoch: int
    target: Partitions
    subscribed: Set[bytes]
    """Topics that it subscribes to. The target may be older than its subscription."""
    is_owned: Callable[[bytes, int], bool]
    """Whether any member owns a partition."""
    subscription_changed: bool = False


def reconcile(member: Member, goal: Goal, owned: Owned) -> Member:
    """The member after its heartbeat; the same if it cannot move."""
    if member.state == State.STABLE and member.epoch == goal.epoch:
        return _drop_unsubscribed(member, goal, owned) if goal.subscription_changed else member
    if member.state == State.UNREVOKED and _owns_any(owned, member.revoking):
        return _drop_unsubscribed(member, goal, owned) if goal.subscription_changed else member
    return _next(member, goal, owned)


def is_subset(owned: Owned, assigned: Assigned) -> bool:
    """Whether a member owns nothing but this. One that does not say may own anything."""
    if owned is None:
        return False
    return all(partition in assigned.get(topic, NOTHING) for topic, partitions in owned for partition in partitions)


def _owns_any(owned: Owned, revoking: Assigned) -> bool:
    """Whether a member still has any of these. One that does not say is taken to."""
    if owned is None:
        return True
    return any(partition in revoking.get(topic, NOTHING) for topic, partitions in owned for partition in partitions)


def _drop_unsubscribed(member: Member, goal: Goal, owned: Owned) -> Member:
    """The target is not a new one (yet), but the member does not want some of its topics any more."""
    dropped = [topic for topic in member.assigned if topic not in goal.subscribed]
    if not dropped:
        return member
    assigned = {topic: epochs for topic, epochs in member.assigned.items() if topic in goal.subscribed}
    revoking = dict(member.revoking)
    for topic in dropped:
        revoking[topic] = {**revoking.get(topic, {}), **member.assigned[topic]}
    member = member.to_epoch(member.epoch)._replace(assigned=assigned)
    if not _owns_any(owned, revoking):
        return member
    return member._replace(state=State.UNREVOKED, revoking=revoking)


def _next(member: Member, goal: Goal, owned: Owned) -> Member:
    assigned: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    free: list[tuple[bytes, int]] = []
    must_wait = False
    for topic in {**dict.fromkeys(sorted(goal.target)), **dict.fromkeys(member.assigned)}:
        target = goal.target.get(topic, _NO_PARTITIONS) if topic in goal.subscribed else _NO_PARTITIONS
        current = member.assigned.get(topic, {})
        if keep := {partition: epoch for partition, epoch in current.items() if partition in target}:
            assigned[topic] = keep
        if revoke := {partition: epoch for partition, epoch in current.items() if partition not in target}:
            revoking[topic] = revoke
        for partition in sorted(target):
            if partition in keep:
                continue
            # What the member itself was revoking, and now shall have again, is not somebody else's.
            if goal.is_owned(topic, partition) and partition not in member.revoking.get(topic, {}):
                must_wait = True
            else:
                free.append((topic, partition))
    if revoking and _owns_any(owned, revoking):
        member = member.to_epoch(member.epoch)
        return member._replace(state=State.UNREVOKED, assigned=assigned, revoking=revoking)
    for topic, partition in free:
        assigned.setdefault(topic, {})[partition] = goal.epoch
    state = State.UNRELEASED if must_wait else State.STABLE
    return member.to_epoch(goal.epoch)._replace(state=state, assigned=assigned, revoking=NOTHING)
