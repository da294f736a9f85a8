"""ListGroups, DescribeGroups, DeleteGroups and what a group's members may do with its offsets, through the wire."""

from __future__ import annotations

from typing import Any

import pytest

from klamm import wire
from klamm.apis.api import CLUSTER_NAME, Operation, Pending, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.k13_leave_group import LeaveGroupRequest
from klamm.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm.wire.messages.k15_describe_groups import DescribeGroupsRequest
from klamm.wire.messages.k16_list_groups import ListGroupsRequest
from klamm.wire.messages.k42_delete_groups import DeleteGroupsRequest
from klamm.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


@pytest.fixture
def shortcuts() -> bool:
    """These have none."""
    return False


@pytest.fixture
async def node(start: Any) -> Any:
    node = await start(group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="5")
    await node.create("t", 1)
    await node.create("u", 1)
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    return node


async def commit(
    node: Any, group: str, offset: int = 1, topic: str = "t", member_id: str = "", generation: int = -1
) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    response = await node.call(request, 8)
    return int(response.topics[0].partitions[0].error_code)


async def committed(node: Any, group: str) -> dict[str, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    response = await node.call(request, 9)
    return {topic.name: topic.partitions[0].committed_offset for topic in response.groups[0].topics}


async def join(node: Any, group: str, *topics: str, protocol_type: str = "consumer") -> tuple[str, int]:
    """A member with an assignment of its own: its id and its generation."""
    metadata = b"\0\0" + wire.encode(ConsumerProtocolSubscription(topics=list(topics)), 0)
    protocol = JoinGroupRequestProtocol(name="range", metadata=metadata)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type=protocol_type,
        protocols=[protocol],
    )
    joined = await node.call(request, 2)
    assert joined.error_code == 0
    assigned = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    sync = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assigned]
    )
    assert (await node.call(sync, 2)).error_code == 0
    return joined.member_id, joined.generation_id


async def leave(node: Any, group: str, member_id: str) -> None:
    assert (await node.call(LeaveGroupRequest(group_id=group, member_id=member_id), 2)).error_code == 0


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_with_what_the_version_can_say(node: Any, version: int) -> None:
    await commit(node, "simple")
    await join(node, "members", "t")
    response = await node.call(ListGroupsRequest(), version)
    assert response.error_code == 0
    groups = {group.group_id: group for group in response.groups}
    assert {name: group.protocol_type for name, group in groups.items()} == {"simple": "", "members": "consumer"}
    if version >= 4:
        assert {name: group.group_state for name, group in groups.items()} == {"simple": "Empty", "members": "Stable"}
    if version >= 5:
        assert {group.group_type for group in groups.values()} == {"classic"}


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (["stable"], [], {"members"}),
        ([" EMPTY ", "Dead"], [], {"simple"}),
        (["Stable", "Empty"], ["Classic"], {"simple", "members"}),
        ([], ["consumer"], set()),
        ([], ["nonsense"], set()),
    ],
)
async def test_a_list_by_state_and_type(node: Any, states: list[str], types: list[str], found: set[str]) -> None:
    await commit(node, "simple")
    await join(node, "members", "t")
    response = await node.call(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert {group.group_id for group in response.groups} == found


async def test_who_may_not_describe_the_cluster_sees_only_the_groups_it_may_describe(node: Any, tools: Any) -> None:
    for group in ("a", "b"):
        await commit(node, group)
    hidden = (Operation.DESCRIBE, ResourceType.GROUP, "a")
    node.broker.authorizer = tools.deny(hidden)
    assert len((await node.call(ListGroupsRequest(), 4)).groups) == 2
    node.broker.authorizer = tools.deny(hidden, (Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    assert [group.group_id for group in (await node.call(ListGroupsRequest(), 4)).groups] == ["b"]


async def test_a_group_is_not_listed_before_what_makes_it_one_is_committed(start: Any) -> None:
    node = await start(log_flush_interval_messages="1")  # every write goes to a thread, and is synced there
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    await node.create("t")
    topic = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])
    written = node.begin(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    assert isinstance(written, Pending) and not written.done
    response = await node.call(ListGroupsRequest(), 5)
    assert written.done
    assert [group.group_id for group in response.groups] == ["g"]


async def test_without_the_internal_topic_there_are_no_groups(start: Any) -> None:
    node = await start()
    response = await node.call(ListGroupsRequest(), 5)
    assert (response.error_code, response.groups) == (0, [])


@pytest.mark.parametrize("version", range(7))
async def test_a_stable_group_is_described_with_its_members(node: Any, version: int) -> None:
    member_id, _ = await join(node, "g", "t")
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=version >= 3)
    (group,) = (await node.call(request, version)).groups
    assert (group.error_code, group.group_state, group.protocol_type) == (0, "Stable", "consumer")
    assert group.protocol_data == "range"
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "tester", "/127.0.0.1")
    assert member.member_assignment == b"mine"
    if version >= 3:
        allowed = (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
        assert group.authorized_operations == sum(1 << o for o in (*allowed, Operation.ALTER_CONFIGS))


@pytest.mark.parametrize("version", range(7))
async def test_a_group_that_is_not_there_is_dead_and_an_error_for_those_who_know_it(node: Any, version: int) -> None:
    await commit(node, "simple")
    response = await node.call(DescribeGroupsRequest(groups=["nobody", "simple"]), version)
    nobody, simple = response.groups
    assert (nobody.group_id, nobody.group_state) == ("nobody", "Dead")
    assert nobody.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert nobody.error_message == "Group nobody not found."
    assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])


async def test_who_may_not_describe_a_group_is_told_so_for_that_one(node: Any, tools: Any) -> None:
    await commit(node, "a")
    await commit(node, "b")
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.GROUP, "a"))
    response = await node.call(DescribeGroupsRequest(groups=["a", "b"]), 5)
    assert [group.error_code for group in response.groups] == [ErrorCode.GROUP_AUTHORIZATION_FAILED, 0]


@pytest.mark.parametrize("version", range(3))
async def test_a_group_without_members_is_deleted_with_its_offsets(node: Any, version: int) -> None:
    await commit(node, "a")
    member_id, generation = await join(node, "b", "t")
    await commit(node, "b", member_id=member_id, generation=generation)
    response = await node.call(DeleteGroupsRequest(groups_names=["a", "b", "nobody", "a"]), version)
    assert [(result.group_id, result.error_code) for result in response.results] == [
        ("a", 0),
        ("b", ErrorCode.NON_EMPTY_GROUP),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert await committed(node, "a") == {}
    assert await committed(node, "b") == {"t": 1}
    await leave(node, "b", member_id)
    response = await node.call(DeleteGroupsRequest(groups_names=["b"]), version)
    assert response.results[0].error_code == 0
    assert (await node.call(ListGroupsRequest(), 5)).groups == []


async def test_who_may_not_delete_a_group_leaves_it_there(node: Any, tools: Any) -> None:
    await commit(node, "a")
    node.broker.authorizer = tools.deny((Operation.DELETE, ResourceType.GROUP, "a"))
    response = await node.call(DeleteGroupsRequest(groups_names=["a"]), 2)
    assert response.results[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    node.broker.authorizer = None
    assert await committed(node, "a") == {"t": 1}


async def test_only_members_of_the_current_generation_commit_while_there_are_any(node: Any) -> None:
    member_id, generation = await join(node, "g", "t")
    assert await commit(node, "g", member_id=member_id, generation=generation) == 0
    assert await commit(node, "g", member_id=member_id, generation=generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert await commit(node, "g", member_id="other", generation=generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(node, "g") == ErrorCode.UNKNOWN_MEMBER_ID
    await leave(node, "g", member_id)
    assert await commit(node, "g", offset=9) == 0
    assert await committed(node, "g") == {"t": 9}


def deleting(group: str, *topics: str) -> OffsetDeleteRequest:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    asked = [OffsetDeleteRequestTopic(name=topic, partitions=[partition]) for topic in topics]
    return OffsetDeleteRequest(group_id=group, topics=asked)


async def test_offsets_of_topics_that_members_are_subscribed_to_stay(node: Any) -> None:
    await commit(node, "g", topic="u")
    member_id, generation = await join(node, "g", "t")
    await commit(node, "g", member_id=member_id, generation=generation)
    response = await node.call(deleting("g", "t", "u"), 0)
    errors = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert errors == {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "u": 0}
    assert await committed(node, "g") == {"t": 1}


async def test_of_members_that_are_no_consumers_nobody_knows_what_they_read(node: Any) -> None:
    await commit(node, "g")
    await join(node, "g", protocol_type="connect")
    response = await node.call(deleting("g", "t"), 0)
    assert (response.error_code, response.topics) == (ErrorCode.NON_EMPTY_GROUP, [])
