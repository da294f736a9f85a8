"""JoinGroup: who may enter a classic group, and what its coming means for the others.

A new dynamic member is first given an id and asked to come back with it (KIP-394), so that a client that gives up in
between leaves no member behind. A static member (KIP-345) takes the place of the one that had its instance id: without
a rebalance if the group is stable and its protocol stays the same.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm.coordinator.groups.classic_group import ClassicGroup, State
from klamm.coordinator.groups.members import Joining, Member
from klamm.coordinator.groups.rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Rebalances,
    answer_join,
    answer_sync,
    join_error,
    joined,
)
from klamm.coordinator.machine import Answer, Now, Outcome, Reply
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k14_sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PENDING_MEMBERS = 10_000
"""Ids given out in one group to members that have not come back."""

_KNOWN_MEMBER_ID = 4
_SKIPS_ASSIGNMENT = 9

_log = logging.getLogger(__name__)


class Joins:
    """The JoinGroups of a shard."""

    __slots__ = ("_max_size", "_new_uuid", "_rebalances")

    def __init__(self, rebalances: Rebalances, max_size: Callable[[], int], new_uuid: Callable[[], str]) -> None:
        self._rebalances = rebalances
        self._max_size = max_size
        self._new_uuid = new_uuid

    def join(self, group: ClassicGroup, joining: Joining, reply: Reply, now: Now, out: Outcome) -> None:
        if not self._has_room(group, joining.member_id):
            self._rebalances.remove(group, joining.member_id, out)
            self._rebalances.complete_if_ready(group, now, out)
            out.answers.append(Answer(reply, join_error("", ErrorCode.GROUP_MAX_SIZE_REACHED)))
        elif not group.takes(joining.protocol_type, joining.protocols):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            out.answers.append(Answer(reply, join_error(joining.member_id, code)))
        elif joining.member_id:
            self._again(group, joining, reply, now, out)
        elif joining.instance_id is not None:
            self._new_static(group, joining, joining.instance_id, reply, now, out)
        else:
            self._new_dynamic(group, joining, reply, now, out)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """In a rebalance those count who have joined: if the limit was lowered, the last to come are left out."""
        member = group.members.get(member_id)
        if group.phase is State.EMPTY:
            return True
        if len(group.members) < self._max_size():
            return True  # the usual case; to count who has joined, with each that joins, is for when it matters
        if group.phase is State.PREPARING:
            return (member is not None and member.join is not None) or group.joined_count < self._max_size()
        return member is not None

    # New ones

    def _new_dynamic(self, group: ClassicGroup, joining: Joining, reply: Reply, now: Now, out: Outcome) -> None:
        member_id = f"{joining.client_id}-{self._new_uuid()}"
        if joining.version < _KNOWN_MEMBER_ID:
            self._add(group, member_id, joining, reply, now, out)
        elif len(group.pending) >= MAX_PENDING_MEMBERS:
            out.answers.append(Answer(reply, join_error("", ErrorCode.GROUP_MAX_SIZE_REACHED)))
        else:
            group.pending.add(member_id)
            self._rebalances.expect(group, member_id, joining.session_timeout_ms, now)
            out.answers.append(Answer(reply, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED)))

    def _new_static(
        self, group: ClassicGroup, joining: Joining, instance_id: str, reply: Reply, now: Now, out: Outcome
    ) -> None:
        member_id = f"{instance_id}-{self._new_uuid()}"
        holder = group.by_instance.get(instance_id)
        if holder is None:
            self._add(group, member_id, joining, reply, now, out)
        else:
            self._replace(group, group.members[holder], member_id, joining, reply, now, out)

    def _add(self, group: ClassicGroup, member_id: str, joining: Joining, reply: Reply, now: Now, out: Outcome) -> None:
        if not group.members:
            group.protocol_type = joining.protocol_type
        group.grew = group.is_first_rebalance
        member = Member.joins(member_id, joining)
        member.join = reply
        group.add(member)
        self._rebalances.expect(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS, now)
        self._rebalances.changed(group, f"new member {member_id}, {joining.why}", now, out)

    def _replace(
        self,
        group: ClassicGroup,
        old: Member,
        member_id: str,
        joining: Joining,
        reply: Reply,
        now: Now,
        out: Outcome,
    ) -> None:
        """The old holder of the instance id is fenced, be it a zombie or only slow."""
        leader = group.leader
        answer_join(old, join_error(old.member_id, ErrorCode.FENCED_INSTANCE_ID), out)
        answer_sync(old, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID), out)
        heir = group.replace(old, member_id)
        self._rebalances.forget_member(group, old.member_id)
        self._rebalances.expect(group, member_id, heir.session_timeout_ms, now)
        group.update(heir, joining)
        what = f"static member {heir.instance_id} is back as {member_id}, {joining.why}"
        if group.phase is State.STABLE and group.select_protocol() == group.protocol:
            _log.info("group %s: %s, without a rebalance", group.group_id, what)
            out.records.append(group.record())
            out.undo = lambda: self._put_back(group, heir, old, now)
            skips = joining.version >= _SKIPS_ASSIGNMENT
            response = joined(group, member_id, skip_assignment=skips and member_id == group.leader)
            if not skips:
                # It would take itself for the leader and assign anew, for which nobody waits: told of the old leader,
                # it asks for its assignment.
                response.leader, response.members = leader or "", []
            out.answers.append(Answer(reply, response))
            return
        heir.join = reply
        self._rebalances.changed(group, what, now, out)

    def _put_back(self, group: ClassicGroup, heir: Member, old: Member, now: Now) -> None:
        """The heir could not be written, as when its subscription is too long: it was never here."""
        group.put_back(heir, old)
        self._rebalances.forget_member(group, heir.member_id)
        self._rebalances.expect(group, old.member_id, old.session_timeout_ms, now)

    # Those who come again

    def _again(self, group: ClassicGroup, joining: Joining, reply: Reply, now: Now, out: Outcome) -> None:
        if joining.member_id in group.pending and joining.instance_id is None:
            self._add(group, joining.member_id, joining, reply, now, out)
            return
        error = group.check_member(joining.member_id, joining.instance_id)
        if error:
            out.answers.append(Answer(reply, join_error(joining.member_id, error)))
            return
        member = group.members[joining.member_id]
        if self._changes_nothing(group, member, joining):
            out.answers.append(Answer(reply, joined(group, member.member_id)))
            return
        # A client that asks twice has lost the first answer, or does not wait for it any more.
        answer_join(member, join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS), out)
        group.update(member, joining)
        member.join = reply
        self._rebalances.changed(group, f"member {member.member_id} joins again, {joining.why}", now, out)

    def _changes_nothing(self, group: ClassicGroup, member: Member, joining: Joining) -> bool:
        """It has only missed our answer. But a leader that joins a stable group wants a rebalance: it knows of changes
        that its metadata does not show, such as new partitions."""
        if not member.offers(joining.protocols):
            return False
        if group.phase is State.STABLE:
            return member.member_id != group.leader
        return group.phase is State.COMPLETING
