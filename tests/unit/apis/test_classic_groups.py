"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup through the wire, at every version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.apis.api import Operation, Pending, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest
from klamm.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from klamm.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

JOIN_VERSIONS = range(10)
NOBODY = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def shortcuts() -> bool:
    """These have none."""
    return False


@pytest.fixture
async def node(start: Any) -> Any:
    """With the coordinator found, and no wait for more members."""
    node = await start(group_initial_rebalance_delay_ms="0")
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    return node


def join_of(member_id: str = "", group_id: str = "g", session_timeout_ms: int = 10_000, **more: Any) -> Any:
    return JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"meta")],
        **more,
    )


async def joined(node: Any, version: int = 9) -> Any:
    """The answer to a member that is in."""
    answer = await node.call(join_of(), version)
    return await node.call(join_of(answer.member_id), version) if answer.error_code else answer


async def stable(node: Any) -> str:
    member = await joined(node)
    await node.call(sync_of(member, {member.member_id: b"all"}), 3)
    return str(member.member_id)


def sync_of(member: Any, assignments: dict[str, bytes], **more: Any) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=member.generation_id,
        member_id=member.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()],
        **more,
    )


def leave_of(member_id: str, version: int) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest(group_id="g", member_id=member_id)
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id, reason="done")])


@pytest.mark.parametrize("version", JOIN_VERSIONS)
async def test_a_member_joins_syncs_beats_and_leaves(node: Any, version: int) -> None:
    first = await node.call(join_of(), version)
    assert first.error_code == (ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else ErrorCode.NONE)
    assert first.member_id.startswith("tester-")
    member = await node.call(join_of(first.member_id), version) if first.error_code else first
    assert (member.error_code, member.generation_id, member.leader) == (0, 1, member.member_id)
    assert [(m.member_id, m.metadata) for m in member.members] == [(member.member_id, b"meta")]
    assert member.protocol_name == "range"
    assert member.protocol_type == ("consumer" if version >= 7 else None)
    assert not member.skip_assignment
    synced = await node.call(
        sync_of(member, {member.member_id: b"all"}, protocol_type="consumer", protocol_name="range"), min(version, 5)
    )
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert synced.protocol_name == ("range" if version >= 5 else None)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
    assert (await node.call(beat, min(version, 4))).error_code == 0
    left = await node.call(leave_of(member.member_id, version), min(version, 5))
    assert left.error_code == 0
    assert [m.error_code for m in left.members] == ([0] if version >= 3 else [])
    assert (await node.call(beat, min(version, 4))).error_code == NOBODY


@pytest.mark.parametrize("version", JOIN_VERSIONS)
async def test_an_error_names_no_protocol(node: Any, version: int) -> None:
    name = None if version >= 7 else ""
    short = await node.call(join_of(session_timeout_ms=1), version)
    assert (short.error_code, short.protocol_name) == (ErrorCode.INVALID_SESSION_TIMEOUT, name)
    unknown = await node.call(join_of("x"), version)
    assert (unknown.error_code, unknown.protocol_name) == (NOBODY, name)
    await stable(node)
    new = await node.call(join_of(), version) if version >= 4 else None
    waiting = node.begin(request := join_of("" if new is None else new.member_id), version)
    node.broker.groups.close()
    answers: list[Any] = []
    waiting.then(answers.append)
    told = node.decoded(request, version, answers[0])
    assert (told.error_code, told.protocol_name) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, name)


@pytest.mark.parametrize("version", range(6))
async def test_leaving_without_being_a_member_is_the_answers_or_the_members_error(node: Any, version: int) -> None:
    for has_group in (False, True):
        if has_group:
            await joined(node)
        left = await node.call(leave_of("x", version), version)
        assert left.error_code == (0 if version >= 3 else NOBODY)
        assert [(m.member_id, m.error_code) for m in left.members] == ([("x", NOBODY)] if version >= 3 else [])


async def test_a_join_is_answered_when_the_others_have_joined(node: Any) -> None:
    old = await stable(node)
    new = await node.call(join_of(), 9)
    waiting = node.begin(join_of(new.member_id), 9)
    assert isinstance(waiting, Pending) and not waiting.done
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=old)
    assert (await node.call(beat, 4)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = await node.call(join_of(old), 9)
    assert waiting.done and again.generation_id == 2
    follower = node.begin(
        SyncGroupRequest(
            group_id="g", generation_id=2, member_id=new.member_id, protocol_type="consumer", protocol_name="range"
        ),
        5,
    )
    assert isinstance(follower, Pending)
    await node.call(sync_of(again, {new.member_id: b"half"}), 4)
    answers: list[Any] = []
    follower.then(answers.append)
    assert [answer.assignment for answer in answers] == [b"half"]


async def test_a_member_that_waits_is_told_when_the_broker_stops(node: Any) -> None:
    await stable(node)
    new = await node.call(join_of(), 9)
    waiting = node.begin(join_of(new.member_id), 9)
    node.broker.groups.close()
    answers: list[Any] = []
    waiting.then(answers.append)
    assert answers[0].error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_a_silent_member_is_removed_by_the_clock(start: Any) -> None:
    node = await start(group_initial_rebalance_delay_ms="0", group_min_session_timeout_ms="1")
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    first = await node.call(join_of(session_timeout_ms=1000), 9)
    member = await node.call(join_of(first.member_id, session_timeout_ms=1000), 9)
    await node.call(sync_of(member, {member.member_id: b"all"}), 3)
    (machine,) = [m for _, m in node.broker.groups.shards() if "g" in m.groups]
    while machine.groups["g"].state != "Empty":
        await asyncio.sleep(0.01)
    assert machine.groups["g"].generation == 2


async def test_what_is_not_allowed(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.READ, ResourceType.GROUP, "g"))
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (await node.call(join_of(), 9)).error_code == denied
    assert (await node.call(HeartbeatRequest(group_id="g"), 4)).error_code == denied
    assert (await node.call(LeaveGroupRequest(group_id="g"), 5)).error_code == denied
    sync = SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range")
    assert (await node.call(sync, 5)).error_code == denied


async def test_what_makes_no_sense(node: Any) -> None:
    nameless = ErrorCode.INVALID_GROUP_ID
    assert (await node.call(join_of(group_id=""), 9)).error_code == nameless
    assert (await node.call(HeartbeatRequest(), 4)).error_code == nameless
    assert (await node.call(LeaveGroupRequest(), 5)).error_code == nameless
    assert (await node.call(SyncGroupRequest(protocol_type="c", protocol_name="r"), 5)).error_code == nameless
    assert (await node.call(SyncGroupRequest(group_id="g"), 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for session_ms in (5999, 1_800_001):
        refused = await node.call(join_of("m", session_timeout_ms=session_ms), 9)
        assert (refused.error_code, refused.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "m")


async def test_without_the_internal_topic_there_is_no_coordinator(start: Any) -> None:
    node = await start()
    gone = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (await node.call(join_of("m"), 9)).error_code in gone
    assert (await node.call(HeartbeatRequest(group_id="g"), 4)).error_code in gone
    assert (await node.call(LeaveGroupRequest(group_id="g", member_id="m"), 1)).error_code in gone
