"""CreatePartitions."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)


def more(name: str = "t", count: int = 3, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


def request(*topics: CreatePartitionsTopic, validate_only: bool = False) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)


def errors(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in response.results]


@pytest.mark.parametrize("version", range(4))
async def test_new_partitions_take_records_at_once(node: Any, version: int) -> None:
    await node.create("t", 2)
    node.append(b"x", topic="t", index=1)
    assert errors(await node.call(request(more("t", 3), more("u", 3)), version)) == [
        ("t", ErrorCode.NONE),
        ("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    node.append(b"y", topic="t", index=2)
    assert node.partition("t", 2).high_watermark == 1
    assert node.partition("t", 1).high_watermark == 1


async def test_every_topic_has_an_error_of_its_own_that_says_why(node: Any) -> None:
    await node.create("t", 2)
    await node.create("u", 2)
    await node.create("v", 2)
    topics = (more("t", 2), more("u", 4, [[1]]), more("v", 3, [[7]]), more("w"), more("w"))
    response = await node.call(request(*topics), 3)
    assert errors(response) == [
        ("t", ErrorCode.INVALID_PARTITIONS),
        ("u", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("v", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("w", ErrorCode.INVALID_REQUEST),
    ]
    assert all(result.error_message for result in response.results)


async def test_validate_only_adds_nothing(node: Any) -> None:
    await node.create("t")
    response = await node.call(request(more("t", 3, [[1], [1]]), validate_only=True), 3)
    assert errors(response) == [("t", ErrorCode.NONE)]
    assert len(node.publisher.image.topics["t"].partitions) == 1


async def test_who_may_not_alter_the_topic(node: Any, tools: Any) -> None:
    await node.create("t")
    await node.create("u")
    node.broker.authorizer = tools.deny((Operation.ALTER, ResourceType.TOPIC, "t"))
    assert errors(await node.call(request(more("t"), more("u")), 3)) == [
        ("u", ErrorCode.NONE),
        ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert len(node.publisher.image.topics["t"].partitions) == 1
