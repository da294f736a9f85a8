"""What a group has to write may be larger than the log takes. That is the trouble of whoever asked for it: other groups
of the same partition must not notice, and the group itself stays what it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.core.errors import ErrorCode
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest
from klamm.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from klamm.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

LARGEST = 2000
MANY_NAMES = [f"{number}-{'x' * 200}" for number in range(20)]
TOO_LARGE = ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.fixture
def shortcuts() -> bool:
    """These have none."""
    return False


@pytest.fixture
async def node(start: Any) -> Any:
    """All groups in one partition, whose batches are small."""
    node = await start(
        group_initial_rebalance_delay_ms="0",
        group_consumer_assignment_interval_ms="0",
        offsets_topic_num_partitions="1",
        message_max_bytes=str(LARGEST),
    )
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    await node.create("a", 2)
    return node


@pytest.fixture
async def bystander(node: Any) -> Any:
    """A member of another group that waits for a rebalance; it does so to the end of the test."""
    first = await node.call(join_of("other"), 3)
    await node.call(sync_of("other", first.member_id), 3)
    waiting = node.begin(join_of("other"), 3)
    yield waiting
    assert not waiting.done
    answers: list[Any] = []
    waiting.then(answers.append)
    await node.call(join_of("other", first.member_id), 3)
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE]


def join_of(group_id: str, member_id: str = "", instance_id: str | None = None, metadata: bytes = b"meta") -> Any:
    return JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        group_instance_id=instance_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def sync_of(group_id: str, member_id: str) -> SyncGroupRequest:
    assignment = SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
    return SyncGroupRequest(group_id=group_id, generation_id=1, member_id=member_id, assignments=[assignment])


def beat_of(member_id: str, epoch: int, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **more)


def enter_as(member_id: str, **more: Any) -> ConsumerGroupHeartbeatRequest:
    more.setdefault("subscribed_topic_names", ["a"])
    return beat_of(member_id, 0, topic_partitions=[], rebalance_timeout_ms=60_000, **more)


async def described(node: Any) -> Any:
    (group,) = (await node.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups
    return group


def timers(node: Any) -> set[object]:
    ((_, machine),) = node.broker.groups.shards()
    return {timer for timer in machine.timers if timer.group_id == "g"}


@pytest.mark.usefixtures("bystander")
async def test_a_member_with_too_long_a_subscription_does_not_join(node: Any) -> None:
    assert (await node.call(enter_as("m", subscribed_topic_names=MANY_NAMES), 1)).error_code == TOO_LARGE
    assert (await described(node)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert not timers(node)
    assert (await node.call(enter_as("m"), 1)).error_code == ErrorCode.NONE


@pytest.mark.usefixtures("bystander")
async def test_a_member_whose_new_subscription_is_too_long_keeps_the_old_one(node: Any) -> None:
    joined = await node.call(enter_as("m"), 1)
    before, limits = await described(node), timers(node)
    answer = await node.call(beat_of("m", joined.member_epoch, subscribed_topic_names=MANY_NAMES), 1)
    assert answer.error_code == TOO_LARGE
    assert (await described(node), timers(node)) == (before, limits)
    assert (await node.call(beat_of("m", joined.member_epoch), 1)).error_code == ErrorCode.NONE


@pytest.mark.usefixtures("bystander")
async def test_who_fails_to_take_the_place_of_a_static_member_leaves_it_free_until_its_session_ends(node: Any) -> None:
    await node.call(enter_as("m1", instance_id="i"), 1)
    await node.call(beat_of("m1", -2, instance_id="i"), 1)
    limits = timers(node)
    answer = await node.call(enter_as("m2", instance_id="i", subscribed_topic_names=MANY_NAMES), 1)
    assert answer.error_code == TOO_LARGE
    assert timers(node) == limits
    assert (await node.call(enter_as("m3", instance_id="i"), 1)).error_code == ErrorCode.NONE


@pytest.mark.usefixtures("bystander")
async def test_an_expression_is_resolved_although_the_member_was_refused_with_it_at_first(node: Any) -> None:
    answer = await node.call(enter_as("m", subscribed_topic_names=MANY_NAMES, subscribed_topic_regex="a"), 1)
    assert answer.error_code == TOO_LARGE
    joined = await node.call(enter_as("m", subscribed_topic_names=None, subscribed_topic_regex="a"), 1)
    assignment = None
    while assignment is None:
        await asyncio.sleep(0)
        assignment = (await node.call(beat_of("m", joined.member_epoch), 1)).assignment
    assert [topic.partitions for topic in assignment.topic_partitions] == [[0, 1]]


@pytest.mark.usefixtures("bystander")
async def test_an_expression_of_too_many_topics_stands_for_none(node: Any) -> None:
    for name in MANY_NAMES:
        await node.create(name)
    joined = await node.call(enter_as("m", subscribed_topic_names=None, subscribed_topic_regex=".*"), 1)
    ((_, machine),) = node.broker.groups.shards()
    while machine.consumer.is_resolving("g"):
        await asyncio.sleep(0)
    answer = await node.call(beat_of("m", joined.member_epoch), 1)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, None)


@pytest.mark.usefixtures("bystander")
async def test_a_static_member_that_comes_back_with_too_much_is_refused_and_the_old_one_goes_on(node: Any) -> None:
    joined = await node.call(join_of("g", instance_id="i"), 7)
    await node.call(sync_of("g", joined.member_id), 3)
    limits = timers(node)
    assert (await node.call(join_of("g", instance_id="i", metadata=b"x" * LARGEST), 7)).error_code == TOO_LARGE
    assert timers(node) == limits
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id, group_instance_id="i")
    assert (await node.call(beat, 4)).error_code == ErrorCode.NONE
    again = await node.call(join_of("g", instance_id="i"), 7)
    assert (again.error_code, again.generation_id, again.leader) == (ErrorCode.NONE, 1, joined.member_id)
    assert (await node.call(beat, 4)).error_code == ErrorCode.FENCED_INSTANCE_ID
