"""A member of a consumer group: what it said of itself, and how far it has come with its assignment.

A value: a change makes a new member, which becomes the group's when its record is replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

Assigned: TypeAlias = "Mapping[bytes, Mapping[int, int]]"
"""By topic id and partition: the epoch in which the member got it. Never changed in place."""

NOTHING: Mapping[bytes, Mapping[int, int]] = MappingProxyType({})

JOINING = 0
"""The epoch of a member that joins, or begins anew after it was fenced."""
LEAVING = -1
STATIC_LEAVING = -2
"""The epoch of a static member that is away for a moment: its place is kept until its session ends."""


class State(IntEnum):
    """Where a member stands between its current and its target assignment; the numbers are those in the records."""

    STABLE = 0
    UNREVOKED = 1
    """It has been told to give partitions up, and has not said yet that it did."""
    UNRELEASED = 2
    """It waits for partitions that others have not given up."""


class Member(NamedTuple):
    member_id: str
    epoch: int = JOINING
    previous_epoch: int = -1
    """The one before: a member that missed an answer may still come with it."""
    state: int = State.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    assignor: str | None = None
    assigned: Assigned = NOTHING
    revoking: Assigned = NOTHING
    """Still the member's until it says that it has given them up."""

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state == State.STABLE and self.epoch == target_epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """When it got a partition that it owns; None: it does not own it."""
        for assigned in (self.assigned, self.revoking):
            epoch = assigned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def to_epoch(self, epoch: int) -> Member:
        return self._replace(epoch=epoch, previous_epoch=self.epoch)
