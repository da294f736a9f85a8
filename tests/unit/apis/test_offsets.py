"""OffsetCommit, OffsetFetch and OffsetDelete through the wire, at every version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.apis.api import Operation, ResourceType
from klamm.controller import TopicToDelete
from klamm.core.env.real import real_env
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k16_list_groups import ListGroupsRequest
from klamm.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)


@pytest.fixture
def shortcuts() -> bool:
    """These have none."""
    return False


@pytest.fixture
async def node(start: Any) -> Any:
    """With a topic `t` of three partitions, and the coordinator found."""
    node = await start(offsets_topic_num_partitions="5")
    await node.create("t", 3)
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    return node


def commit_of(
    node: Any,
    offsets: dict[int, int],
    topic: str = "t",
    group: str = "g",
    metadata: str | None = "note",
    **more: Any,
) -> OffsetCommitRequest:
    state = node.publisher.image.topic(topic)
    asked = OffsetCommitRequestTopic(
        name=topic,
        topic_id=b"\1" * 16 if state is None else state.id,
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_leader_epoch=5, committed_metadata=metadata
            )
            for index, offset in offsets.items()
        ],
    )
    return OffsetCommitRequest(group_id=group, topics=[asked], **more)


async def commit(node: Any, version: int, offsets: dict[int, int], **more: Any) -> dict[int, int]:
    """The error of each partition."""
    response = await node.call(commit_of(node, offsets, **more), version)
    (topic,) = response.topics
    return {partition.partition_index: partition.error_code for partition in topic.partitions}


def fetch_of(
    node: Any, version: int, partitions: list[int] | None, topic: str = "t", group: str = "g", **more: Any
) -> OffsetFetchRequest:
    """Without partitions: all offsets of the group."""
    if version < 8:
        topics = None
        if partitions is not None:
            topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)]
        return OffsetFetchRequest(group_id=group, topics=topics, **more)
    wanted = None
    if partitions is not None:
        state = node.publisher.image.topic(topic)
        topic_id = b"\1" * 16 if state is None else state.id
        wanted = [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=partitions)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)], **more)


async def fetch(node: Any, version: int, partitions: list[int] | None, **more: Any) -> tuple[int, list[Any]]:
    """The error of the group, and its topics."""
    response = await node.call(fetch_of(node, version, partitions, **more), version)
    if version < 8:
        return response.error_code, response.topics
    (group,) = response.groups
    return group.error_code, group.topics


async def committed(node: Any, group: str = "g", topic: str = "t") -> dict[int, int]:
    """What the group has committed, by partition."""
    _, topics = await fetch(node, 9, None, group=group)
    return {p.partition_index: p.committed_offset for t in topics if t.name == topic for p in t.partitions}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_a_client_that_is_no_member_commits_and_the_group_is_there(node: Any, version: int) -> None:
    assert await commit(node, version, {0: 10, 2: 30}) == {0: 0, 2: 0}
    assert await committed(node) == {0: 10, 2: 30}


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_offsets_are_read_back_with_epoch_and_note(node: Any, version: int) -> None:
    await commit(node, 10, {0: 10, 1: 20})
    error, (topic,) = await fetch(node, version, [1, 2])
    assert error == 0
    if version < 10:
        assert topic.name == "t"
    else:
        assert topic.topic_id == node.publisher.image.topics["t"].id
    found = [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in topic.partitions]
    assert found == [(1, 20, "note", 0), (2, -1, "", 0)]
    if version >= 5:
        assert [p.committed_leader_epoch for p in topic.partitions] == [5, -1]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_a_group_that_is_not_there_has_no_offsets(node: Any, version: int) -> None:
    error, (topic,) = await fetch(node, version, [0], group="nobody")
    assert error == 0
    assert [(p.committed_offset, p.error_code) for p in topic.partitions] == [(-1, 0)]
    if version >= 2:
        assert await fetch(node, version, None, group="nobody") == (0, [])


@pytest.mark.parametrize("version", range(2, 11))
async def test_without_topics_everything_is_answered(node: Any, version: int) -> None:
    await node.create("u", 1)
    await commit(node, 9, {0: 10, 2: 30})
    await commit(node, 9, {0: 7}, topic="u")
    _, topics = await fetch(node, version, None)
    assert sorted([p.committed_offset for p in topic.partitions] for topic in topics) == [[7], [10, 30]]
    if version >= 10:
        assert {topic.topic_id for topic in topics} == {node.publisher.image.topics[name].id for name in "tu"}


async def test_many_groups_are_answered_in_their_order(node: Any) -> None:
    groups = [f"g{i}" for i in range(10)]  # of many shards
    for i, group in enumerate(groups):
        await commit(node, 9, {0: i}, group=group)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups])
    response = await node.call(request, 9)
    found = [(group.group_id, group.topics[0].partitions[0].committed_offset) for group in response.groups]
    assert found == [(group, i) for i, group in enumerate(groups)]


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_what_does_not_exist_is_refused_by_itself(node: Any, version: int) -> None:
    assert await commit(node, version, {0: 1, 3: 1, -1: 1}) == {
        0: 0,
        3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(node, version, {0: 1}, topic="other") == {0: expected}
    assert await committed(node) == {0: 1}


async def test_an_unknown_topic_id_is_an_error_where_it_is_read(node: Any) -> None:
    await commit(node, 9, {0: 1})
    _, (topic,) = await fetch(node, 10, [0], topic="other")
    assert [(p.committed_offset, p.error_code) for p in topic.partitions] == [(-1, ErrorCode.UNKNOWN_TOPIC_ID)]


async def test_a_note_that_is_too_long_is_refused_and_the_others_are_kept(start: Any) -> None:
    node = await start(offset_metadata_max_bytes="4")
    await node.create("t", 2)
    await node.call(FindCoordinatorRequest(key="g", key_type=0), 2)
    request = commit_of(node, {0: 1, 1: 2}, metadata="okay")
    request.topics[0].partitions[1].committed_metadata = "too long"
    response = await node.call(request, 8)
    errors = [partition.error_code for partition in response.topics[0].partitions]
    assert errors == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await committed(node) == {0: 1}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
async def test_a_member_of_a_group_that_is_not_there_has_to_join_again(node: Any, version: int) -> None:
    member = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert await commit(node, version, {0: 1}, **member) == {0: expected}
    assert await committed(node) == {}


async def test_without_a_coordinator_commits_and_reads_are_refused(start: Any) -> None:
    node = await start()
    await node.create("t", 1)
    assert await commit(node, 9, {0: 1}) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert await fetch(node, 9, [0]) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    error, (topic,) = await fetch(node, 1, [0])
    assert (error, topic.partitions[0].error_code) == (0, ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_who_may_not_read_the_group_or_the_topic_commits_nothing(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.READ, ResourceType.GROUP, "g"))
    assert await commit(node, 9, {0: 1}) == {0: ErrorCode.GROUP_AUTHORIZATION_FAILED}
    node.broker.authorizer = tools.deny((Operation.READ, ResourceType.TOPIC, "t"))
    assert await commit(node, 9, {0: 1}) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    node.broker.authorizer = None
    assert await committed(node) == {}


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_who_may_not_describe_the_group_or_the_topic_reads_nothing(node: Any, tools: Any, version: int) -> None:
    await commit(node, 9, {0: 1})
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.GROUP, "g"))
    error, topics = await fetch(node, version, [0])
    if version >= 2:
        assert (error, topics) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    else:
        assert topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.TOPIC, "t"))
    _, (topic,) = await fetch(node, version, [0])
    found = [(p.committed_offset, p.error_code) for p in topic.partitions]
    assert found == [(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    if version >= 2:
        assert await fetch(node, version, None) == (0, [])


async def settled(node: Any, condition: Any) -> None:
    """Sweeps come one after another, by timers that are due at once."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


def store_of(node: Any, group: str = "g") -> Any:
    index = node.broker.groups.partition_of(group)
    return dict(node.broker.groups.shards())[index].offsets.store


async def test_deleting_a_topic_drops_its_offsets_and_no_others(node: Any) -> None:
    await node.create("u", 1)
    await commit(node, 9, {0: 1, 1: 2})
    await commit(node, 9, {0: 7}, topic="u")
    await node.controller.delete_topics([TopicToDelete("t")])
    await settled(node, lambda: store_of(node).get("g", ("t", 0)) is None)
    assert await committed(node) == {}
    assert await committed(node, topic="u") == {0: 7}


async def test_a_topic_that_was_made_anew_has_none_of_the_offsets_of_the_old_one(node: Any) -> None:
    await commit(node, 9, {0: 1})
    await node.controller.delete_topics([TopicToDelete("t")])
    await node.create("t", 3)
    for version in FETCH_VERSIONS:
        _, (topic,) = await fetch(node, version, [0])
        assert topic.partitions[0].committed_offset == -1
    await commit(node, 9, {1: 4})
    await settled(node, lambda: store_of(node).get("g", ("t", 0)) is None)
    assert await committed(node) == {1: 4}


def delete_of(*partitions: int, group: str = "g", topic: str = "t") -> OffsetDeleteRequest:
    asked = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=asked)])


async def delete(node: Any, *partitions: int, **more: Any) -> tuple[int, dict[int, int]]:
    response = await node.call(delete_of(*partitions, **more), 0)
    errors = {p.partition_index: p.error_code for topic in response.topics for p in topic.partitions}
    return response.error_code, errors


async def test_single_offsets_are_deleted_and_what_is_not_there_is_fine(node: Any) -> None:
    await commit(node, 9, {0: 1, 1: 2})
    assert await delete(node, 0, 2, 0, 9) == (0, {0: 0, 2: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert await committed(node) == {1: 2}
    assert await delete(node, 0, topic="other") == (0, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


async def test_offsets_of_no_group_and_of_an_unknown_one_cannot_be_deleted(node: Any) -> None:
    assert await delete(node, 0, group="nobody") == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert await delete(node, 0, group="") == (ErrorCode.INVALID_GROUP_ID, {})


async def test_who_may_not_delete_of_the_group_deletes_nothing(node: Any, tools: Any) -> None:
    await commit(node, 9, {0: 1})
    node.broker.authorizer = tools.deny((Operation.DELETE, ResourceType.GROUP, "g"))
    assert await delete(node, 0) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, {})
    node.broker.authorizer = tools.deny((Operation.READ, ResourceType.TOPIC, "t"))
    assert await delete(node, 0) == (0, {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    node.broker.authorizer = None
    assert await committed(node) == {0: 1}


async def test_everything_is_there_again_after_a_restart(node: Any) -> None:
    await commit(node, 9, {0: 10, 1: 20})
    await commit(node, 9, {2: 30}, group="h")
    await delete(node, 1)
    await commit(node, 4, {0: 7}, group="old", retention_time_ms=3_600_000)
    before = {group: store_of(node, group).durable() for group in ("g", "h", "old")}
    await node.stop()
    node.env = real_env(seed=2)
    await node.start()
    assert (await node.call(ListGroupsRequest(), 5)).error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    await settled(node, lambda: not node.broker.groups.loading)
    assert {group.group_id for group in (await node.call(ListGroupsRequest(), 5)).groups} == {"g", "h", "old"}
    assert await committed(node) == {0: 10}
    assert {group: store_of(node, group).durable() for group in before} == before
