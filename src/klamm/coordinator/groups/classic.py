"""The classic protocol's part of a group machine: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and replay.

A record is written when a generation is assigned, when a group is made or becomes empty, and when a static member is
replaced; what lies between two records is forgotten by a restart, and the members start it again. A new group enters
`groups` when its first record is replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from klamm.coordinator.groups.classic_group import ClassicGroup, State
from klamm.coordinator.groups.joining import Joins
from klamm.coordinator.groups.members import reason_text
from klamm.coordinator.groups.rebalance import PART, Rebalances, answer_join, answer_sync, join_error, synced
from klamm.coordinator.machine import Answer, Now, Outcome, Producer, Record, Reply
from klamm.core.errors import ErrorCode
from klamm.wire.messages.coordinator import GroupMetadataKey, GroupMetadataValue
from klamm.wire.messages.k12_heartbeat import HeartbeatResponse
from klamm.wire.messages.k13_leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from klamm.wire.messages.k14_sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.groups.members import Joining
    from klamm.coordinator.groups.timers import TimerKey
    from klamm.metadata.image import Image
    from klamm.metadata.replay import Delta
    from klamm.wire.schema import Struct

_log = logging.getLogger(__name__)


class ClassicGroups:
    name: ClassVar[str] = PART
    keys: ClassVar[tuple[type[Struct], ...]] = (GroupMetadataKey,)

    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine
        self._rebalances = Rebalances(machine.timers, machine.options, lambda: machine.counters)
        self._joins = Joins(self._rebalances, self._max_size, machine.new_uuid)
        self._made: ClassicGroup | None = None
        """A group whose first record is on its way."""

    def _max_size(self) -> int:
        return self._machine.options().get_int("group.max.size")

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._machine.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # Requests

    def join(self, joining: Joining, reply: Reply, now: Now) -> Outcome:
        out = Outcome()
        held = self._machine.groups.get(joining.group_id)
        if isinstance(held, ClassicGroup):
            self._joins.join(held, joining, reply, now, out)
        elif held is not None and not held.is_empty:
            # Moving between the protocols while there are members is not offered.
            out.answers.append(Answer(reply, join_error("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
        elif joining.member_id:
            out.answers.append(Answer(reply, join_error(joining.member_id, ErrorCode.UNKNOWN_MEMBER_ID)))
        else:
            group = ClassicGroup(joining.group_id, now.time_ms)
            made = [group.record()]
            self._joins.join(group, joining, reply, now, out)
            if group.members or group.pending:
                self._made = group
                out.records[:0] = made if held is None else [*held.tombstones(), *made]
        return out

    def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
        reply: Reply,
        now: Now,
    ) -> Outcome:
        """`protocol`: type and name, if the member says them."""
        out = Outcome()
        group = self._find(group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else group.check_member(member_id, instance_id)
        if group is not None and not error:
            error = _generation_error(group, generation, protocol)
        if group is None or error:
            out.answers.append(Answer(reply, SyncGroupResponse(error_code=error)))
            return out
        member = group.members[member_id]
        self._rebalances.asks_to_sync(group, member_id)
        if group.phase is State.STABLE:
            out.answers.append(Answer(reply, synced(group, member.assignment)))
            return out
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), out)  # it has asked before
        member.sync = reply
        if member_id == group.leader:
            self._rebalances.assigned(group, assignments, now, out)
        return out

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, reply: Reply, now: Now
    ) -> Outcome:
        error = self._beat(group_id, member_id, instance_id, generation, now)
        return Outcome(answers=[Answer(reply, HeartbeatResponse(error_code=error))])

    def _beat(self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        group = self._find(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalances.expect(group, member_id, group.members[member_id].session_timeout_ms, now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.phase is State.PREPARING else ErrorCode.NONE

    def heard_of(self, group_id: str, member_id: str, now: Now) -> None:
        """A member has committed offsets: that is a sign of life as good as a heartbeat."""
        group = self._find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None and group.phase in (State.STABLE, State.PREPARING):
            self._rebalances.expect(group, member_id, member.session_timeout_ms, now)

    def leave(self, group_id: str, leaving: Sequence[MemberIdentity], reply: Reply, now: Now) -> Outcome:
        """Each by its member id; or by its instance id alone, as tools do."""
        out = Outcome()
        group = self._find(group_id)
        results: list[MemberResponse] = []
        gone: list[str] = []
        for one in leaving:
            member_id = one.member_id
            if group is None:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif not member_id:
                member_id = group.by_instance.get(one.group_instance_id or "", "")
                error = ErrorCode.NONE if member_id else ErrorCode.UNKNOWN_MEMBER_ID
            elif member_id in group.pending:
                error = ErrorCode.NONE
            else:
                error = group.check_member(member_id, one.group_instance_id)
            if group is not None and not error:
                _log.info("group %s: member %s leaves, %s", group_id, member_id, reason_text(one.reason))
                self._rebalances.remove(group, member_id, out)
                gone.append(member_id)
            results.append(
                MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error)
            )
        if group is not None and gone and group.phase is not State.EMPTY:
            self._rebalances.changed(group, f"left: {', '.join(gone)}", now, out)
        out.answers.append(Answer(reply, LeaveGroupResponse(members=results)))
        return out

    # Replay

    def replay(self, record: Record, producer: Producer | None = None) -> None:
        assert isinstance(record.key, GroupMetadataKey)
        group_id = record.key.group
        group = self._find(group_id)
        if record.value is None:
            if group is not None:
                self._rebalances.forget(group)
                del self._machine.groups[group_id]
            return
        assert isinstance(record.value, GroupMetadataValue)
        if group is None:
            group, self._made = self._made, None
            if group is None or group.group_id != group_id:
                group = ClassicGroup(group_id)
            self._machine.groups[group_id] = group
        group.adopt(record.value)

    def without_members(self, group_id: str) -> None:
        """Make the group if it is not there: one that is known for its offsets alone. For their replay."""
        if group_id not in self._machine.groups:
            self._machine.groups[group_id] = ClassicGroup(group_id)

    def loaded(self, now: Now) -> Outcome:
        out = Outcome()
        for group in list(self._machine.groups.values()):
            if not isinstance(group, ClassicGroup):
                continue
            group.restore()
            for member in group.members.values():
                self._rebalances.expect(group, member.member_id, member.session_timeout_ms, now)
            if len(group.members) > self._max_size():
                self._rebalances.prepare(group, "it has more members than group.max.size allows", now, out)
        return out

    # Events

    def fire(self, timer: TimerKey, now: Now) -> Outcome:
        out = Outcome()
        group = self._find(timer.group_id)
        if group is not None:
            self._rebalances.fire(group, timer, now, out)
        return out

    def image_changed(self, image: Image, delta: Delta, now: Now) -> Outcome:
        """Members of classic groups watch the metadata themselves."""
        return Outcome()

    def resigned(self, error: ErrorCode) -> list[Answer]:
        out = Outcome()
        groups = [group for group in self._machine.groups.values() if isinstance(group, ClassicGroup)]
        for group in groups if self._made is None else [*groups, self._made]:
            for member in group.members.values():
                answer_join(member, join_error(member.member_id, error), out)
                answer_sync(member, SyncGroupResponse(error_code=error), out)
        return out.answers


def _generation_error(group: ClassicGroup, generation: int, protocol: tuple[str | None, str | None]) -> ErrorCode:
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    said_type, said_name = protocol
    if said_type not in (None, group.protocol_type) or said_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.phase is State.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
