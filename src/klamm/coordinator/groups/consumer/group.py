"""A consumer group: its durable state, changed by replay alone, and what follows from it.

Counts of subscriptions and the owners of partitions are kept beside the members, so that a heartbeat does not have to
look at all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from klamm.coordinator.groups.consumer import records
from klamm.coordinator.groups.consumer.assignors import Partitions
from klamm.coordinator.groups.consumer.member import Member
from klamm.coordinator.groups.consumer.records import Resolved
from klamm.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE, PartitionCheck
from klamm.core.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.coordinator.machine import Record
    from klamm.wire.messages.k69_consumer_group_describe import DescribedGroup

FIRST_EPOCH = 1
NO_TARGET = 0

_EPOCHS_IN_COMMITS = 9
"""From this version of OffsetCommit on, members of consumer groups may commit."""


class ConsumerGroup:
    __slots__ = (
        "_describe",
        "_owners",
        "assignors",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "refresh_wanted",
        "regexes",
        "resolved",
        "static_members",
        "target",
        "target_epoch",
        "target_time_ms",
        "topics",
    )

    def __init__(self, group_id: str, describe: Callable[[ConsumerGroup], DescribedGroup]) -> None:
        """`describe` is where topic ids have names."""
        self.group_id = group_id
        self._describe = describe
        self.epoch = FIRST_EPOCH
        """One more for each change of what there is to assign, and to whom."""
        self.metadata_hash = 0
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.target: dict[str, Partitions] = {}
        """What each member shall have."""
        self.target_epoch = NO_TARGET
        """The group's epoch that the target was made for."""
        self.target_time_ms = 0
        self.resolved: dict[str, Resolved] = {}
        self.has_partition_metadata = False
        """A record of Kafka before 4.1 is in the log, and shall go."""

        self.topics: Counter[str] = Counter()
        """By how many members each topic is subscribed to by name."""
        self.regexes: Counter[str] = Counter()
        self.assignors: Counter[str] = Counter()
        self._owners: dict[tuple[bytes, int], str] = {}

        self.refresh_wanted = True
        """Topics have changed; the next heartbeat looks whether there is something else to assign."""

    # What others ask (see `Group`).

    @property
    def type(self) -> str:
        return "consumer"

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    def may_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool = False, version: int = -1
    ) -> ErrorCode | PartitionCheck:
        if epoch < 0 and not self.members:
            return ErrorCode.NONE  # an administrator, or a consumer that assigns itself
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and version < _EPOCHS_IN_COMMITS:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.epoch:
            return ErrorCode.NONE
        if epoch > member.epoch:
            return ErrorCode.STALE_MEMBER_EPOCH

        def check(topic: str, topic_id: bytes, partition: int) -> ErrorCode:
            """An older epoch is still right for partitions that have been the member's since then: a commit may cross
            the answer that carries the next epoch."""
            since = member.assignment_epoch(topic_id, partition)
            return ErrorCode.STALE_MEMBER_EPOCH if since is None or epoch < since else ErrorCode.NONE

        return check

    def may_fetch_offsets(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def may_delete(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def may_delete_offsets(self) -> ErrorCode:
        return ErrorCode.NONE

    def subscribes(self, topic: str) -> bool:
        return topic in self.topics or any(topic in resolved.topics for resolved in self.resolved.values())

    def retention_start_ms(self, committed_ms: int) -> int | None:
        return committed_ms

    def tombstones(self) -> list[Record]:
        return records.group_gone(self.group_id, self.members, self.resolved)

    def describe(self) -> DescribedGroup:
        return self._describe(self)

    # What the protocol asks.

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) in self._owners

    def owners(self) -> dict[tuple[bytes, int], str]:
        """Who owns which partition, by topic id."""
        return dict(self._owners)

    def subscribed_topics(self) -> set[str]:
        """By name or by regular expression."""
        return set(self.topics).union(*(resolved.topics for resolved in self.resolved.values()))

    def preferred_assignor(self, without: Member | None = None, with_: Member | None = None) -> str | None:
        """The one that most members want; None if nobody cares."""
        counts = self.assignors.copy()
        if without is not None and without.assignor is not None:
            counts[without.assignor] -= 1
        if with_ is not None and with_.assignor is not None:
            counts[with_.assignor] += 1
        wanted = [(-count, name) for name, count in counts.items() if count > 0]
        return min(wanted)[1] if wanted else None

    # Replay.

    def put_member(self, member: Member) -> None:
        self._uncount(self.members.get(member.member_id))
        self.members[member.member_id] = member
        self.topics.update(member.topics)
        if member.regex:
            self.regexes[member.regex] += 1
        if member.assignor is not None:
            self.assignors[member.assignor] += 1
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for place in _places(member):
            self._owners[place] = member.member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._uncount(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _uncount(self, member: Member | None) -> None:
        if member is None:
            return
        _subtract(self.topics, member.topics)
        if member.regex:
            _subtract(self.regexes, (member.regex,))
        if member.assignor is not None:
            _subtract(self.assignors, (member.assignor,))
        for place in _places(member):
            if self._owners.get(place) == member.member_id:
                del self._owners[place]

    def durable(self) -> object:
        """What a replay of the log must give again."""
        return (
            (self.group_id, self.epoch, self.metadata_hash, self.has_partition_metadata),
            (self.members, self.static_members, self._owners),
            (self.target, self.target_epoch, self.target_time_ms),
            (self.resolved, self.topics, self.regexes, self.assignors),
        )


def _places(member: Member) -> Iterable[tuple[bytes, int]]:
    return (
        (topic, partition)
        for assigned in (member.assigned, member.revoking)
        for topic, partitions in assigned.items()
        for partition in partitions
    )


def _subtract(counts: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
