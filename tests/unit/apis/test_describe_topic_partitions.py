"""DescribeTopicPartitions."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k75_describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest


def request(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def found(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, p.partition_index) for topic in response.topics for p in topic.partitions]


def following(response: Any) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def errors(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


async def pages(node: Any, *names: str, limit: int) -> list[list[tuple[str, int]]]:
    all_pages = []
    cursor = None
    while True:
        response = await node.call(request(*names, limit=limit, cursor=cursor), 0)
        all_pages.append(found(response))
        cursor = following(response)
        if cursor is None:
            return all_pages


async def test_all_topics_in_the_order_of_their_names(node: Any) -> None:
    topic_id = await node.create("b", 2)
    await node.create("a")
    await node.create("__consumer_offsets")
    response = await node.call(request(), 0)
    assert found(response) == [("__consumer_offsets", 0), ("a", 0), ("b", 0), ("b", 1)]
    assert [topic.is_internal for topic in response.topics] == [True, False, False]
    assert response.topics[2].topic_id == topic_id
    partition = response.topics[2].partitions[1]
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
    assert response.topics[1].topic_authorized_operations == sum(1 << op for op in (3, 4, 5, 6, 7, 8, 10, 11))


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
async def test_pages_put_together_are_the_whole(node: Any, limit: int) -> None:
    for name, partitions in (("a", 3), ("b", 1), ("c", 2)):
        await node.create(name, partitions)
    whole = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]
    for names in ((), ("c", "b", "a")):
        parts = await pages(node, *names, limit=limit)
        assert [p for page in parts for p in page] == whole
        assert all(len(page) == limit for page in parts[:-1])


async def test_a_limit_below_one_still_gets_on(node: Any) -> None:
    await node.create("a", 2)
    assert await pages(node, limit=0) == [[("a", 0)], [("a", 1)]]


async def test_the_broker_has_a_limit_of_its_own(start: Any) -> None:
    node = await start(max_request_partition_size_limit="2")
    await node.create("a", 3)
    response = await node.call(request(limit=1000), 0)
    assert (found(response), following(response)) == ([("a", 0), ("a", 1)], ("a", 2))


async def test_a_topic_that_was_deleted_between_two_pages_is_passed_over(node: Any) -> None:
    await node.create("c")
    response = await node.call(request(cursor=("b", 5)), 0)
    assert found(response) == [("c", 0)]
    response = await node.call(request("b", "c", cursor=("b", 5)), 0)
    assert errors(response) == [("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("c", ErrorCode.NONE)]


async def test_a_cursor_that_makes_no_sense(node: Any) -> None:
    await node.create("a")
    for cursor in (("b", 0), ("a", -1)):
        assert errors(await node.call(request("a", cursor=cursor), 0)) == [("a", ErrorCode.INVALID_REQUEST)]


async def test_topics_that_are_not_there_and_cannot_be(node: Any) -> None:
    assert errors(await node.call(request("a", "a b"), 0)) == [
        ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


async def test_what_the_principal_may_not_see_is_an_error_if_it_was_named(node: Any, tools: Any) -> None:
    await node.create("a")
    await node.create("b")
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.TOPIC, "a"))
    assert errors(await node.call(request(), 0)) == [("b", ErrorCode.NONE)]
    response = await node.call(request("a", "b"), 0)
    assert errors(response) == [("b", ErrorCode.NONE), ("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    assert response.topics[1].topic_id == bytes(16)


async def test_a_partition_whose_log_has_failed_has_no_leader(node: Any) -> None:
    await node.create("a", 2)
    node.append(b"x", topic="a", index=1)
    node.partition("a", 1).log._fail("broken")
    first, second = (await node.call(request("a"), 0)).topics[0].partitions
    assert (first.leader_id, first.offline_replicas) == (1, [])
    assert (second.leader_id, second.offline_replicas) == (-1, [1])


async def test_a_leader_that_this_listener_cannot_reach_is_not_named(node: Any) -> None:
    await node.create("a")
    response = await node.call(request("a"), 0, listener="NOBODY")
    assert response.topics[0].partitions[0].leader_id == -1
