"""The course of a rebalance in a classic group, and the time limits of its members.

    Empty -> PreparingRebalance: members are asked to join (the first ones are waited for a little)
          -> CompletingRebalance: all have joined or their time is up; the leader assigns
          -> Stable (see `classic.ClassicGroups.sync`), until somebody joins, leaves or falls silent

Every step adds its records and answers to the outcome that it is given. Answers that a member waits for are given
before it is removed or replaced: nobody is forgotten.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klamm.coordinator.groups.classic_group import ClassicGroup, State
from klamm.coordinator.groups.timers import TimerKey, Timers
from klamm.coordinator.machine import Answer, Now, Outcome
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k11_join_group import JoinGroupResponse
from klamm.wire.messages.k14_sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from klamm.coordinator.counters import GroupCounters
    from klamm.coordinator.groups.members import Member
    from klamm.core.options import Options

PART = "classic"

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member waits for a rebalance at most. It sends no heartbeats, and may be long gone."""

RETURN_MS = 500
"""How long the first rebalance waits, beyond its delay, for members that were told to come back with their id. Kafka
does not wait for them: without a delay, a group whose members start together begins with a few of them, and the rest
has to wait for the heartbeats of those."""

_LEAST_PAUSE_MS = 1000
"""Between two looks at a rebalance that nobody joins, however little time its members gave it."""

_log = logging.getLogger(__name__)


def join_error(member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def joined(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """The current generation, as a member is told of it: the leader with all members, so that it can assign."""
    protocol = group.protocol
    assert protocol is not None and group.leader is not None, "a generation with members has a protocol and a leader"
    everybody = [member.for_leader(protocol) for member in group.members.values()] if member_id == group.leader else []
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol,
        leader=group.leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=everybody,
    )


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment)


def answer_join(member: Member, response: JoinGroupResponse, out: Outcome) -> None:
    """If it waits for one."""
    if member.join is not None:
        out.answers.append(Answer(member.join, response))
        member.join = None


def answer_sync(member: Member, response: SyncGroupResponse, out: Outcome) -> None:
    """If it waits for one."""
    if member.sync is not None:
        out.answers.append(Answer(member.sync, response))
        member.sync = None


class Rebalances:
    """Of all classic groups of a shard."""

    __slots__ = ("_counters", "_options", "_timers")

    def __init__(self, timers: Timers, options: Callable[[], Options], counters: Callable[[], GroupCounters]) -> None:
        self._timers = timers
        self._options = options
        self._counters = counters

    # Members come and go

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int, now: Now) -> None:
        """The member has so much time to be heard of."""
        self._set(group, "session", timeout_ms, now, member_id)

    def remove(self, group: ClassicGroup, member_id: str, out: Outcome) -> None:
        """A member, or one that was to come back with its id. What follows is up to the caller."""
        member = group.members.get(member_id)
        if member is not None:
            # A client that is still there takes this as a reason to begin anew.
            answer_join(member, join_error("", ErrorCode.UNKNOWN_MEMBER_ID), out)
            answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), out)
        group.remove(member_id)
        self.forget_member(group, member_id)

    def changed(self, group: ClassicGroup, reason: str, now: Now, out: Outcome) -> None:
        """Somebody has come, gone or changed: begin a rebalance, or end the one that is under way if that was all it
        waited for."""
        if group.phase is not State.PREPARING:
            self.prepare(group, reason, now, out)
        else:
            self.complete_if_ready(group, now, out)

    # The rebalance

    def prepare(self, group: ClassicGroup, reason: str, now: Now, out: Outcome) -> None:
        """Ask everybody to join again."""
        if group.phase is State.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
                self._release_sync(
                    group, member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), now, out
                )
        group.to_sync.clear()
        self._cancel(group, "sync")
        group.enter(State.PREPARING, now.time_ms)
        _log.info("group %s: rebalance after generation %d: %s", group.group_id, group.generation, reason)
        if group.is_first_rebalance:
            delay_ms = max(self._options().get_int("group.initial.rebalance.delay.ms"), 0)
            group.grew = group.delay_over = False
            group.remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._set(group, "initial", delay_ms, now)
        elif group.all_joined:
            self._complete(group, now, out)
        else:
            self._set(group, "join", group.rebalance_timeout_ms, now)

    def complete_if_ready(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        if group.phase is State.PREPARING and not group.is_delayed and group.all_joined:
            self._complete(group, now, out)

    def _complete(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        """A new generation of those who have joined. Static members may be late: they keep their place."""
        self._cancel(group, "join")
        self._cancel(group, "initial")
        late = [m.member_id for m in group.members.values() if m.join is None and m.instance_id is None]
        for member_id in late:
            self.remove(group, member_id, out)
        self._counters().expired_members += len(late)
        if late:
            _log.info("group %s: %d members did not join in time: %s", group.group_id, len(late), ", ".join(late))
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has joined: until their sessions end, or one comes.
            self._set(group, "join", max(group.rebalance_timeout_ms, _LEAST_PAUSE_MS), now)
            return
        self._counters().classic_rebalances += 1
        group.next_generation(now.time_ms)
        if not group.members:
            _log.info("group %s: generation %d is empty", group.group_id, group.generation)
            out.records.append(group.record())
            return
        _log.info("group %s: generation %d has %d members", group.group_id, group.generation, len(group.members))
        for member in group.members.values():
            answer_join(member, joined(group, member.member_id), out)
            member.is_new = False
            self.expect(group, member.member_id, member.session_timeout_ms, now)
        self._set(group, "sync", group.rebalance_timeout_ms, now)

    def assigned(self, group: ClassicGroup, assignments: dict[str, bytes], now: Now, out: Outcome) -> None:
        """The leader has spoken: whoever waits is told, once it is written. A generation that is too large to be
        written stays without assignments, and is the trouble of its own members alone."""
        out.records.append(group.assigned_record(assignments, now.time_ms))
        out.only_records = True
        for member in group.members.values():
            self._release_sync(group, member, synced(group, assignments.get(member.member_id, b"")), now, out)

    def asks_to_sync(self, group: ClassicGroup, member_id: str) -> None:
        """One less to wait for."""
        group.to_sync.discard(member_id)
        if not group.to_sync:
            self._cancel(group, "sync")

    def _release_sync(
        self, group: ClassicGroup, member: Member, response: SyncGroupResponse, now: Now, out: Outcome
    ) -> None:
        if member.sync is not None:
            answer_sync(member, response, out)
            # Its session may have ended unnoticed while it waited.
            self.expect(group, member.member_id, member.session_timeout_ms, now)

    # Time is up

    def fire(self, group: ClassicGroup, timer: TimerKey, now: Now, out: Outcome) -> None:
        match timer.what:
            case "session":
                self._silent(group, timer.member_id, now, out)
            case "initial" if group.is_first_rebalance:
                self._initial_over(group, now, out)
            case "join" if group.phase is State.PREPARING:
                self._complete(group, now, out)
            case "sync" if group.phase in (State.COMPLETING, State.STABLE):
                self._sync_over(group, now, out)

    def _silent(self, group: ClassicGroup, member_id: str, now: Now, out: Outcome) -> None:
        member = group.members.get(member_id)
        if member is None and member_id in group.pending:
            _log.info("group %s: pending member %s did not come back", group.group_id, member_id)
            self.remove(group, member_id, out)
        elif member is not None and not member.proves_alive:
            _log.info("group %s: nothing was heard of member %s for its session", group.group_id, member_id)
            self._counters().expired_members += 1
            self.remove(group, member_id, out)
            if group.phase in (State.STABLE, State.COMPLETING):
                self.prepare(group, f"member {member_id} fell silent", now, out)
        else:
            return  # gone already, or it waits for us
        if group.phase is State.PREPARING and group.all_joined:
            self._complete(group, now, out)

    def _initial_over(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        """Put it off once more while members keep coming, within the rebalance time-out."""
        if group.grew and group.remaining_ms and not group.delay_over:
            group.grew = False
            delay_ms = min(max(self._options().get_int("group.initial.rebalance.delay.ms"), 0), group.remaining_ms)
            group.remaining_ms -= delay_ms
            self._set(group, "initial", delay_ms, now)
        elif group.pending and not group.delay_over:
            group.delay_over = True
            self._set(group, "initial", RETURN_MS, now)
        else:
            self._complete(group, now, out)

    def _sync_over(self, group: ClassicGroup, now: Now, out: Outcome) -> None:
        gone = sorted(group.to_sync)
        self._counters().expired_members += len(gone)
        for member_id in gone:
            self.remove(group, member_id, out)
        if gone:
            self.prepare(group, f"no sync from {', '.join(gone)}", now, out)

    # Timers

    def forget(self, group: ClassicGroup) -> None:
        """The group is deleted: nothing of it is due any more."""
        for what in ("initial", "join", "sync"):
            self._cancel(group, what)
        for member_id in (*group.members, *group.pending):
            self.forget_member(group, member_id)

    def forget_member(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(TimerKey(PART, "session", group.group_id, member_id))

    def _set(self, group: ClassicGroup, what: str, timeout_ms: int, now: Now, member_id: str = "") -> None:
        self._timers.set(TimerKey(PART, what, group.group_id, member_id), now.monotonic + timeout_ms / 1000)

    def _cancel(self, group: ClassicGroup, what: str) -> None:
        self._timers.cancel(TimerKey(PART, what, group.group_id))
