"""UpdateFeatures, DescribeQuorum, DescribeUserScramCredentials."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.controller import BrokerRegistration
from klamm.core.errors import ErrorCode
from klamm.metadata.image import BrokerEndpoint
from klamm.wire.messages.k18_api_versions import ApiVersionsRequest
from klamm.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from klamm.wire.messages.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from klamm.wire.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture
async def featured(node: Any) -> Any:
    """A broker with features, at their lowest levels."""
    await register(node, 1, [("a", 0, 3), ("b", 1, 2)])
    assert await update(node, ("a", 0, SAFE), ("b", 1, SAFE)) == ErrorCode.NONE
    return node


def levels(node: Any) -> dict[str, int]:
    return {name: level for name, level in node.publisher.image.features.items() if name in ("a", "b")}


async def register(node: Any, broker_id: int, features: list[tuple[str, int, int]]) -> None:
    endpoints = [BrokerEndpoint("PLAINTEXT", "localhost", 9092)]
    await node.controller.register_broker(BrokerRegistration(broker_id, node.env.uuid(), endpoints, features=features))


async def update(node: Any, *asked: tuple[str, int, int], version: int = 2, validate_only: bool = False) -> int:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level, _ in asked]
    for key, (_, _, kind) in zip(keys, asked, strict=True):
        if version == 0:
            key.allow_downgrade = kind != UPGRADE
        else:
            key.upgrade_type = kind
    request = UpdateFeaturesRequest(feature_updates=keys)
    request.validate_only = validate_only
    response = await node.call(request, version)
    assert bool(response.error_message) == bool(response.error_code)
    listed = [] if response.error_code or version > 1 else [name for name, _, _ in asked]
    assert [result.feature for result in response.results] == listed
    return int(response.error_code)


@pytest.mark.parametrize("version", range(3))
async def test_levels_go_up_and_down_when_asked_the_right_way(featured: Any, version: int) -> None:
    node = featured
    assert await update(node, ("a", 2, UPGRADE), ("b", 2, UPGRADE), version=version) == ErrorCode.NONE
    assert levels(node) == {"a": 2, "b": 2}
    assert await update(node, ("a", 1, UPGRADE), version=version) == ErrorCode.INVALID_UPDATE_VERSION
    assert await update(node, ("a", 1, SAFE), version=version) == ErrorCode.NONE
    assert await update(node, ("a", 2, SAFE), version=version) == ErrorCode.INVALID_UPDATE_VERSION
    assert await update(node, ("a", 0, SAFE), version=version) == ErrorCode.NONE
    assert levels(node) == {"b": 2}


async def test_clients_see_the_new_level(featured: Any) -> None:
    await update(featured, ("a", 2, UPGRADE))
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    response = await featured.call(request, 4)
    assert ("a", 2) in [(f.name, f.max_version_level) for f in response.finalized_features]


async def test_all_or_nothing(featured: Any) -> None:
    assert await update(featured, ("a", 2, UPGRADE), ("b", 3, UPGRADE)) == ErrorCode.INVALID_UPDATE_VERSION
    assert levels(featured) == {"b": 1}


async def test_validate_only_changes_nothing(featured: Any) -> None:
    assert await update(featured, ("a", 2, UPGRADE), validate_only=True) == ErrorCode.NONE
    assert await update(featured, ("a", 4, UPGRADE), validate_only=True) == ErrorCode.INVALID_UPDATE_VERSION
    assert levels(featured) == {"b": 1}


@pytest.mark.parametrize(
    "asked", [("a", 4, UPGRADE), ("a", -1, UPGRADE), ("b", 0, SAFE), ("c", 1, UPGRADE), ("a", 1, 0), ("a", 1, 4)]
)
async def test_levels_that_cannot_be(featured: Any, asked: tuple[str, int, int]) -> None:
    assert await update(featured, asked) == ErrorCode.INVALID_UPDATE_VERSION


async def test_every_broker_must_have_the_level(featured: Any) -> None:
    await register(featured, 2, [("a", 0, 1)])
    assert await update(featured, ("a", 1, UPGRADE)) == ErrorCode.NONE
    assert await update(featured, ("a", 2, UPGRADE)) == ErrorCode.INVALID_UPDATE_VERSION


async def test_a_feature_that_is_named_twice(featured: Any) -> None:
    assert await update(featured, ("a", 1, UPGRADE), ("a", 2, UPGRADE)) == ErrorCode.INVALID_REQUEST


async def test_who_may_not_change_features(featured: Any, tools: Any) -> None:
    featured.broker.authorizer = tools.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    assert await update(featured, ("a", 1, UPGRADE)) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def quorum(topic: str = "__cluster_metadata", index: int = 0) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[TopicData(topic_name=topic, partitions=[PartitionData(partition_index=index)])]
    )


@pytest.mark.parametrize("version", range(3))
async def test_a_quorum_of_one(node: Any, version: int) -> None:
    await node.create()
    response = await node.call(quorum(), version)
    assert response.error_code == ErrorCode.NONE
    ((partition,),) = [topic.partitions for topic in response.topics]
    image = node.publisher.image
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (ErrorCode.NONE, 1, image.epoch)
    assert partition.high_watermark == image.offset + 1
    assert [(v.replica_id, v.log_end_offset) for v in partition.current_voters] == [(1, image.offset + 1)]
    assert partition.observers == []
    if version >= 1:
        assert partition.current_voters[0].last_caught_up_timestamp > 0
    if version >= 2:
        assert [(n.node_id, n.listeners[0].host, n.listeners[0].port) for n in response.nodes] == [
            (1, "localhost", 9092)
        ]


@pytest.mark.parametrize("request_", [quorum("other"), quorum(index=1)])
async def test_there_is_no_other_quorum(node: Any, request_: DescribeQuorumRequest) -> None:
    response = await node.call(request_, 2)
    ((partition,),) = [topic.partitions for topic in response.topics]
    assert (response.error_code, partition.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_who_may_not_describe_the_quorum(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    response = await node.call(quorum(), 2)
    assert (response.error_code, response.topics) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def users(*names: str) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])


async def test_a_user_without_credentials_is_an_error_for_that_user_alone(node: Any) -> None:
    response = await node.call(users("alice", "bob", "alice"), 0)
    assert response.error_code == ErrorCode.NONE
    assert [(r.user, r.error_code) for r in response.results] == [
        ("alice", ErrorCode.DUPLICATE_RESOURCE),
        ("bob", ErrorCode.RESOURCE_NOT_FOUND),
    ]
    assert all(r.error_message for r in response.results)


@pytest.mark.parametrize("request_", [users(), DescribeUserScramCredentialsRequest(users=None)])
async def test_nobody_has_credentials(node: Any, request_: DescribeUserScramCredentialsRequest) -> None:
    response = await node.call(request_, 0)
    assert (response.error_code, response.results) == (ErrorCode.NONE, [])


async def test_who_may_not_see_users(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    response = await node.call(users("alice"), 0)
    assert (response.error_code, response.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
