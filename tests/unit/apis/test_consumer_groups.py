"""ConsumerGroupHeartbeat and ConsumerGroupDescribe through the wire, at every version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.apis.api import Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k15_describe_groups import DescribeGroupsRequest
from klamm.wire.messages.k16_list_groups import ListGroupsRequest
from klamm.wire.messages.k42_delete_groups import DeleteGroupsRequest
from klamm.wire.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from klamm.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from klamm.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

VERSIONS = range(2)
DOWNGRADE_SAFELY = 2


@pytest.fixture
def shortcuts() -> bool:
    """These have none."""
    return False


@pytest.fixture
async def node(start: Any) -> Any:
    node = await start(group_consumer_assignment_interval_ms="0")
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    await node.create("a", 4)
    return node


def join_of(member_id: str = "m1", *topics: str, **more: Any) -> ConsumerGroupHeartbeatRequest:
    more.setdefault("subscribed_topic_names", list(topics) or ["a"])
    more.setdefault("topic_partitions", [])
    more.setdefault("rebalance_timeout_ms", 60_000)
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=0, **more)


def beat_of(member_id: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **more)


async def described(node: Any, version: int = 1, **more: Any) -> Any:
    (group,) = (await node.call(ConsumerGroupDescribeRequest(group_ids=["g"], **more), version)).groups
    return group


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_joins_goes_on_and_leaves(node: Any, version: int) -> None:
    joined = await node.call(join_of("m1" if version else ""), version)
    assert (joined.error_code, joined.error_message, joined.member_epoch) == (0, None, 2)
    assert joined.heartbeat_interval_ms == 5000
    (topic,) = joined.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (node.broker.image.topic("a").id, [0, 1, 2, 3])
    again = await node.call(beat_of(joined.member_id, 2), version)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 2, None)
    left = await node.call(beat_of(joined.member_id, -1), version)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, joined.member_id, -1)
    assert (await described(node, version)).group_state == "Empty"


@pytest.mark.parametrize(
    ("request_", "version", "error"),
    [
        (join_of(""), 1, ErrorCode.INVALID_REQUEST),
        (beat_of("", 1), 0, ErrorCode.INVALID_REQUEST),
        (beat_of("", -1), 0, ErrorCode.INVALID_REQUEST),
        (ConsumerGroupHeartbeatRequest(group_id="", member_id="m", member_epoch=1), 1, ErrorCode.INVALID_REQUEST),
        (join_of(instance_id=""), 1, ErrorCode.INVALID_REQUEST),
        (join_of(rack_id=""), 1, ErrorCode.INVALID_REQUEST),
        (join_of(rebalance_timeout_ms=-1), 1, ErrorCode.INVALID_REQUEST),
        (join_of(topic_partitions=None), 1, ErrorCode.INVALID_REQUEST),
        (
            join_of(topic_partitions=[TopicPartitions(topic_id=bytes(16), partitions=[0])]),
            1,
            ErrorCode.INVALID_REQUEST,
        ),
        (join_of(subscribed_topic_names=None), 1, ErrorCode.INVALID_REQUEST),
        (beat_of("m", -2), 1, ErrorCode.INVALID_REQUEST),
        (beat_of("m", -3), 1, ErrorCode.INVALID_REQUEST),
        (join_of(server_assignor="mine"), 1, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (join_of(subscribed_topic_regex="("), 1, ErrorCode.INVALID_REGULAR_EXPRESSION),
        (beat_of("m", 1), 1, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_requests_that_cannot_be(
    node: Any, request_: ConsumerGroupHeartbeatRequest, version: int, error: ErrorCode
) -> None:
    answer = await node.call(request_, version)
    assert answer.error_code == error
    assert answer.error_message


async def test_a_subscription_by_regular_expression_is_resolved_beside_the_requests(node: Any) -> None:
    joined = await node.call(join_of(subscribed_topic_names=None, subscribed_topic_regex="a|nothing"), 1)
    assert (joined.error_code, joined.assignment.topic_partitions) == (0, [])
    epoch = joined.member_epoch
    assignment = None
    while assignment is None:
        await asyncio.sleep(0)
        assignment = (await node.call(beat_of("m1", epoch), 1)).assignment
    assert [topic.partitions for topic in assignment.topic_partitions] == [[0, 1, 2, 3]]
    (member,) = (await described(node)).members
    assert (member.subscribed_topic_regex, member.subscribed_topic_names) == ("a|nothing", [])


async def test_new_partitions_reach_the_member(node: Any) -> None:
    await node.call(join_of(), 1)
    await node.create("b", 1)
    answer = await node.call(beat_of("m1", 2, subscribed_topic_names=["a", "b"]), 1)
    assert (answer.member_epoch, len(answer.assignment.topic_partitions)) == (3, 2)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_is_described(node: Any, version: int) -> None:
    await node.call(join_of(instance_id="i", rack_id="r", server_assignor="range"), 1)
    group = await described(node, version)
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "range")
    assert group.authorized_operations == -(2**31)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m1", "i", "r", 2)
    assert (member.client_id, member.client_host) == ("tester", "/127.0.0.1")
    assert member.member_type == (1 if version else -1)
    for assignment in (member.assignment, member.target_assignment):
        assert [(t.topic_name, t.partitions) for t in assignment.topic_partitions] == [("a", [0, 1, 2, 3])]
    operations = await described(node, version, include_authorized_operations=True)
    assert operations.authorized_operations > 0


async def test_groups_that_cannot_be_described(node: Any) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=["nobody", ""])
    groups = (await node.call(request, 1)).groups
    assert [group.error_code for group in groups] == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID]


async def test_other_apis_see_the_group(node: Any) -> None:
    await node.call(join_of(), 1)
    (listed,) = (await node.call(ListGroupsRequest(), 5)).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g",
        "consumer",
        "Stable",
        "consumer",
    )
    (classic,) = (await node.call(DescribeGroupsRequest(groups=["g"]), 6)).groups
    assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    (deleted,) = (await node.call(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP
    await node.call(beat_of("m1", -1), 1)
    (deleted,) = (await node.call(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert deleted.error_code == 0
    assert (await described(node)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("member", "epoch", "version", "error"),
    [
        ("m1", 2, 9, ErrorCode.NONE),
        ("m1", 3, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m2", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", 2, 8, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_commits_are_for_members_with_their_epoch(
    node: Any, member: str, epoch: int, version: int, error: ErrorCode
) -> None:
    await node.call(join_of(), 1)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name="a", partitions=[partition])],
    )
    answer = await node.call(request, version)
    assert answer.topics[0].partitions[0].error_code == error


async def test_who_may_do_what(node: Any, tools: Any) -> None:
    await node.call(join_of(), 1)
    node.broker.authorizer = tools.deny((Operation.READ, ResourceType.GROUP, "g"))
    assert (await node.call(beat_of("m1", 2), 1)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.GROUP, "g"))
    assert (await described(node)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.TOPIC, "a"))
    assert (await node.call(join_of("m2"), 1)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    group = await described(node)
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


async def test_without_the_feature_there_is_no_such_protocol(node: Any) -> None:
    update = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=DOWNGRADE_SAFELY)
    assert (await node.call(UpdateFeaturesRequest(feature_updates=[update]), 1)).error_code == 0
    assert (await node.call(join_of(), 1)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await described(node)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_coordinator_that_is_not_there(start: Any) -> None:
    node = await start()
    assert (await node.call(join_of(), 1)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await described(node)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_handler_that_fails_says_so() -> None:
    from klamm.apis import k68_consumer_group_heartbeat as beat
    from klamm.apis import k69_consumer_group_describe as describe

    code = ErrorCode.UNKNOWN_SERVER_ERROR
    assert beat.on_error(join_of(), 1, code).error_code == code
    request = ConsumerGroupDescribeRequest(group_ids=["g", "h"])
    assert [group.error_code for group in describe.on_error(request, 1, code).groups] == [code, code]
