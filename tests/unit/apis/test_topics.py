"""CreateTopics and DeleteTopics."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from klamm.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState


def new(name: str = "t", partitions: int = 1, replicas: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), validate_only=validate_only)


def errors(response: Any) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created_at_every_version(node: Any, version: int) -> None:
    response = await node.call(create(new("a", 3, retention_ms="1234")), version)
    assert errors(response) == [("a", ErrorCode.NONE)]
    state = node.publisher.image.topics["a"]
    assert len(state.partitions) == 3
    (topic,) = response.topics
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        configs = {c.name: (c.value, c.config_source) for c in topic.configs}
        assert configs["retention.ms"] == ("1234", 1)
        assert configs["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert topic.topic_id == state.id


async def test_defaults_and_manual_assignments(start: Any) -> None:
    node = await start(num_partitions="4")
    manual = new("manual", -1, -1)
    manual.assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=[1]) for i in range(2)]
    response = await node.call(create(new("default", -1, -1), manual), 5)
    assert [(t.name, t.num_partitions) for t in response.topics] == [("default", 4), ("manual", 2)]


async def test_validate_only_creates_nothing(node: Any) -> None:
    response = await node.call(create(new("a"), validate_only=True), 5)
    assert errors(response) == [("a", ErrorCode.NONE)]
    assert not node.publisher.image.topics


async def test_every_topic_has_an_error_of_its_own(node: Any) -> None:
    await node.create("there")
    response = await node.call(
        create(
            new("fine"),
            new("there"),
            new("bad name"),
            new("none", 0),
            new("three", 1, 3),
            new("odd", 1, 1, retention_ms="soon"),
            new("twice"),
            new("twice"),
        ),
        5,
    )
    assert errors(response) == [
        ("fine", ErrorCode.NONE),
        ("there", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.INVALID_PARTITIONS),
        ("three", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("odd", ErrorCode.INVALID_CONFIG),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert all(t.error_message for t in response.topics[1:])


async def test_a_partition_that_is_assigned_twice_is_refused(node: Any) -> None:
    manual = new("a", -1, -1)
    manual.assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=[1]) for i in (0, 0)]
    assert errors(await node.call(create(manual), 5)) == [("a", ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
    assert not node.publisher.image.topics


@pytest.mark.parametrize("version", [4, 7])
async def test_a_long_reason_for_one_topic_does_not_cost_the_others_their_answer(node: Any, version: int) -> None:
    endless = "x" * 32_767  # the longest string that there is
    topics = (new("fine"), new("odd", retention_ms=endless), new(endless), new(endless))
    response = await node.call(create(*topics), version)
    assert errors(response) == [
        ("fine", ErrorCode.NONE),
        ("odd", ErrorCode.INVALID_CONFIG),
        (endless, ErrorCode.INVALID_REQUEST),
    ]
    assert response.topics[1].error_message.startswith("retention.ms=xxx")


async def test_who_may_not_create(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny(
        (Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
        (Operation.CREATE, ResourceType.TOPIC, "b"),
        (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "a"),
    )
    response = await node.call(create(new("b"), new("a")), 5)
    assert errors(response) == [("a", ErrorCode.NONE), ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    assert response.topics[0].topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert response.topics[0].configs is None


def delete(*names: str, ids: tuple[bytes, ...] = (), version: int = 6) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names))
    states = [DeleteTopicState(name=name) for name in names] + [DeleteTopicState(topic_id=i) for i in ids]
    return DeleteTopicsRequest(topics=states)


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_topic_is_deleted_at_every_version(node: Any, version: int) -> None:
    await node.create("a")
    node.append(b"x", topic="a")
    response = await node.call(delete("a", "b", version=version), version)
    assert [(r.name, r.error_code) for r in response.responses] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert not node.publisher.image.topics
    assert node.broker.replicas.find("a", 0) is None


@pytest.mark.parametrize("version", [5, 6])
async def test_a_name_that_no_topic_can_have_is_unknown_and_the_others_are_deleted(node: Any, version: int) -> None:
    await node.create("a")
    endless = "x" * 32_767
    response = await node.call(delete("a", endless, version=version), version)
    assert [(t.name, t.error_code) for t in response.responses] == [
        ("a", ErrorCode.NONE),
        (endless, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_topics_are_deleted_by_id(node: Any) -> None:
    topic_id = await node.create("a")
    response = await node.call(delete(ids=(topic_id, b"x" * 16)), 6)
    assert [(r.name, r.topic_id, r.error_code) for r in response.responses] == [
        ("a", topic_id, ErrorCode.NONE),
        (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_deletion_can_be_switched_off(start: Any) -> None:
    node = await start(delete_topic_enable="false")
    await node.create("a")
    for version, error in ((2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)):
        response = await node.call(delete("a", version=version), version)
        assert response.responses[0].error_code == error


async def test_who_may_not_delete(node: Any, tools: Any) -> None:
    topic_id = await node.create("a")
    delete_a = (Operation.DELETE, ResourceType.TOPIC, "a")
    node.broker.authorizer = tools.deny(delete_a)
    assert (await node.call(delete("a"), 6)).responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    by_id = (await node.call(delete(ids=(topic_id,)), 6)).responses[0]
    assert (by_id.error_code, by_id.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    node.broker.authorizer = tools.deny(delete_a, (Operation.DESCRIBE, ResourceType.TOPIC, "a"))
    assert (await node.call(delete(ids=(topic_id,)), 6)).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert "a" in node.publisher.image.topics


async def test_each_of_many_topics_is_told_its_own_options(node: Any) -> None:
    topics = [new(f"t{i}", **({"retention_ms": str(i)} if i % 2 else {})) for i in range(50)]
    response = await node.call(CreateTopicsRequest(topics=topics), 7)
    for i, topic in enumerate(response.topics):
        (retention,) = [(c.value, c.config_source) for c in topic.configs if c.name == "retention.ms"]
        assert retention == ((str(i), 1) if i % 2 else ("604800000", 5))
