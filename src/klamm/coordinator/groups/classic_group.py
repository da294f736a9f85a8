"""One classic group: its members, their common protocol, its state. What it tells others is `Group`.

`saved` is the durable part: the group as its last record in the log has it, changed by replay alone. The rest is the
group as it is now, between two records too: who has joined the rebalance, who still has to sync. It is made from
`saved` when a shard has loaded. While the group is stable or empty, the two say the same.

This module knows what a group is, not when it changes: no timers and no answers here.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum

from klamm.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE
from klamm.coordinator.groups.members import Joining, Member
from klamm.coordinator.machine import Record
from klamm.core.errors import ErrorCode
from klamm.wire.messages.coordinator import GroupMetadataKey, GroupMetadataValue
from klamm.wire.messages.k15_describe_groups import DescribedGroup


class State(Enum):
    """Under Kafka's names. What it calls Dead is a group that is not there."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Members are asked to join again."""
    COMPLETING = "CompletingRebalance"
    """All have joined; the leader is to hand out the assignments."""
    STABLE = "Stable"


_BEFORE = {
    State.EMPTY: (State.PREPARING,),
    State.PREPARING: (State.STABLE, State.COMPLETING, State.EMPTY),
    State.COMPLETING: (State.PREPARING,),
    State.STABLE: (State.COMPLETING,),
}


class ClassicGroup:
    """`pending`: members that have been given an id and are to come back with it. `to_sync`: those of this generation
    that have not asked for their assignment."""

    type = "classic"

    def __init__(self, group_id: str, now_ms: int = -1) -> None:
        self.group_id = group_id
        self.saved: GroupMetadataValue | None = None
        self.phase = State.EMPTY
        self.before = State.EMPTY
        self.state_ms = now_ms
        """When it came into this state; -1 if that is not known."""
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        self.pending: set[str] = set()
        self.to_sync: set[str] = set()
        self.grew = False
        """A member came while the first rebalance was being put off."""
        self.delay_over = False
        """It is not put off any more, but for those who are to come back with their id."""
        self.remaining_ms = 0
        """For how much longer the first rebalance may be put off."""
        self._offered: Counter[str] = Counter()
        self._topics: frozenset[str] | None = None

    # What it is to others

    @property
    def state(self) -> str:
        return self.phase.value

    @property
    def is_empty(self) -> bool:
        return self.phase is State.EMPTY

    def may_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool = False, version: int = -1
    ) -> ErrorCode:
        if epoch < 0 and self.is_empty:
            return ErrorCode.NONE  # a tool, or a consumer that is assigned by hand
        if epoch >= 0 or member_id or instance_id is not None:
            error = self.check_member(member_id, instance_id)
            if error:
                return error
            if epoch != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional and not self.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.phase is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def may_fetch_offsets(self, member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def may_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def may_delete_offsets(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty or self._are_consumers else ErrorCode.NON_EMPTY_GROUP

    def subscribes(self, topic: str) -> bool:
        """Consumers whose metadata is not understood may be subscribed to anything."""
        return self._are_consumers if self._topics is None else topic in self._topics

    def retention_start_ms(self, committed_ms: int) -> int | None:
        if not self.protocol_type:
            return committed_ms
        if self.is_empty:
            return committed_ms if self.state_ms < 0 else self.state_ms
        if self.phase is State.STABLE and self._are_consumers and self._topics is not None:
            return committed_ms
        return None

    def tombstones(self) -> list[Record]:
        return [Record(GroupMetadataKey(group=self.group_id), None)]

    def describe(self) -> DescribedGroup:
        protocol = self.protocol if self.phase is State.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state,
            protocol_type=self.protocol_type,
            protocol_data=protocol or "",
            members=[member.describe(protocol) for member in self.members.values()],
        )

    # Records

    def record(self) -> Record:
        """The group as it is, for the log. Members are written only with a protocol in use."""
        return self._record({m.member_id: m.assignment for m in self.members.values()}, self.state_ms)

    def assigned_record(self, assignments: dict[str, bytes], now_ms: int) -> Record:
        """The group as it will be when these count: see `adopt`. Whom the leader forgot is assigned nothing."""
        return self._record({member_id: assignments.get(member_id, b"") for member_id in self.members}, now_ms)

    def _record(self, assignments: dict[str, bytes], state_ms: int) -> Record:
        protocol = self.protocol
        members = (
            [] if protocol is None else [m.saved(protocol, assignments[m.member_id]) for m in self.members.values()]
        )
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=protocol,
            leader=self.leader,
            current_state_timestamp=state_ms,
            members=members,
        )
        return Record(GroupMetadataKey(group=self.group_id), value)

    def adopt(self, saved: GroupMetadataValue) -> None:
        """The record is in the log. If it is the one that this generation has waited for, its assignments count."""
        self.saved = saved
        if self.phase is State.COMPLETING and saved.generation == self.generation:
            for metadata in saved.members:
                self.members[metadata.member_id].assignment = metadata.assignment
            self.enter(State.STABLE, saved.current_state_timestamp)

    def restore(self) -> None:
        """Make the group from its record, after loading."""
        saved = self.saved
        if saved is None:
            return
        assert not self.members and not self.pending, "only a group that was loaded is made from its record"
        self.generation = saved.generation
        self.protocol_type = saved.protocol_type
        self.protocol = saved.protocol
        self.leader = saved.leader
        self.state_ms = saved.current_state_timestamp
        for metadata in saved.members:
            self.add(Member.load(metadata, saved.protocol or ""))
        if self.leader not in self.members:
            self.leader = next(iter(self.members), None)
        self.phase = State.STABLE if self.members else State.EMPTY
        self._topics = self._subscribed_topics()

    # Members

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            holder = self.by_instance.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.by_instance, "a static member is replaced, not added again"
            self.by_instance[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._offered.update(member.protocols.keys())
        self.pending.discard(member.member_id)

    def update(self, member: Member, joining: Joining) -> None:
        self._withdraw(member)
        member.update(joining)
        self._offered.update(member.protocols.keys())

    def remove(self, member_id: str) -> None:
        """A member, or one that was to come back."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert member.join is None and member.sync is None, "who is removed has been answered"
            self._withdraw(member)
            if member.instance_id is not None:
                del self.by_instance[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.to_sync.discard(member_id)

    def replace(self, old: Member, member_id: str) -> Member:
        """A static member under a new id, in the place of the old one."""
        heir = old.heir(member_id)
        self._put_in_place(heir, old)
        self.to_sync.discard(old.member_id)
        return heir

    def put_back(self, heir: Member, old: Member) -> None:
        """Undo `replace`, in a stable group, and what the heir brought."""
        self._withdraw(heir)
        self._offered.update(old.protocols.keys())
        self._put_in_place(old, heir)

    def _put_in_place(self, new: Member, old: Member) -> None:
        assert old.instance_id is not None and old.join is None and old.sync is None
        self.members = {m.member_id: m for m in (new if m is old else m for m in self.members.values())}
        self.by_instance[old.instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined_count(self) -> int:
        return sum(member.join is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(member.join is not None for member in self.members.values())

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is one who has joined; False if nobody has."""
        if self.leader is not None and self.members[self.leader].join is not None:
            return True
        joined = next((member.member_id for member in self.members.values() if member.join is not None), None)
        self.leader = joined or self.leader
        return joined is not None

    # Protocols

    def takes(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Whether a member with these could be one of the group: all must have a protocol in common."""
        if self.is_empty:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self._offered[name] == len(self.members) for name in protocols
        )

    def _withdraw(self, member: Member) -> None:
        self._offered.subtract(member.protocols.keys())
        self._offered = +self._offered  # without those that nobody has any more

    def select_protocol(self) -> str:
        """The one that most members prefer, of those that all of them have."""
        candidates = {name for name, count in self._offered.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    @property
    def _are_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self._are_consumers:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            names = member.subscribed_topics(self.protocol)
            if names is None:
                return None
            topics.update(names)
        return frozenset(topics)

    # States

    def enter(self, phase: State, now_ms: int) -> None:
        assert self.phase in _BEFORE[phase], f"from {self.phase} to {phase}"
        self.before, self.phase, self.state_ms = self.phase, phase, now_ms

    @property
    def is_first_rebalance(self) -> bool:
        """It was empty, and waits a little for more members."""
        return self.phase is State.PREPARING and self.before is State.EMPTY

    @property
    def is_delayed(self) -> bool:
        return self.is_first_rebalance and not self.delay_over

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        if self.members:
            self.protocol = self.select_protocol()
            self.enter(State.COMPLETING, now_ms)
        else:
            self.protocol = None
            self.enter(State.EMPTY, now_ms)
        self._topics = self._subscribed_topics()
        self.to_sync = set(self.members)
