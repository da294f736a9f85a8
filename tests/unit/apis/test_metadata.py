"""Metadata: all topics, some topics, topics that are made by asking."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis import metadata_cache
from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.controller import TopicToDelete
from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

NOT_ASKED_FOR = -(2**31)


def ask(*names: str, create: bool = True, **fields: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **fields)


def every(**fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=None, **fields)


def by_id(*ids: bytes) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(topic_id=one, name=None) for one in ids])


def names_of(response: Any) -> list[str]:
    return [topic.name for topic in response.topics]


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_at_every_version(node: Any, version: int) -> None:
    topic_id = await node.create(partitions=2)
    response = await node.call(ask("t"), version)
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "localhost", 9092)
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (ErrorCode.NONE, "t", False)
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (0, 1, [1], [1]),
        (1, 1, [1], [1]),
    ]
    if version >= 1:
        assert (response.controller_id, broker.rack) == (1, "r1")
    if version >= 2:
        assert response.cluster_id == node.folder.cluster_id
    if version >= 7:
        assert topic.partitions[0].leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == topic_id


async def test_all_topics_is_empty_in_v0_and_null_from_v1_on(node: Any) -> None:
    await node.create("a")
    await node.create("b")
    assert names_of(await node.call(ask(), 0)) == ["a", "b"]
    for version in range(1, 14):
        assert names_of(await node.call(every(), version)) == ["a", "b"]
        none = await node.call(ask(), version)
        assert none.topics == [] and len(none.brokers) == 1


@pytest.mark.parametrize("request_", [every(), ask("a")], ids=["all", "one"])
@pytest.mark.parametrize("shortcuts", [True])
async def test_an_answer_is_encoded_once_for_an_image(node: Any, request_: MetadataRequest) -> None:
    await node.create("a")
    first = node.begin(request_, 9)
    assert isinstance(first, bytes)
    assert node.begin(request_, 9) is first
    assert node.begin(request_, 9, "OTHER") != first
    assert node.begin(request_, 8) != first
    await node.create("b")
    assert node.begin(request_, 9) is not first
    assert names_of(await node.call(every(), 9)) == ["a", "b"]


@pytest.mark.parametrize("shortcuts", [True])
async def test_kept_answers_are_bounded(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_cache, "MAX_BYTES", 200)
    for name in ("a", "b", "c"):
        await node.create(name)
    first = node.begin(ask("a"), 9)
    assert node.begin(ask("a"), 9) is first
    node.begin(ask("b"), 9)
    node.begin(ask("c"), 9)
    assert node.begin(ask("a"), 9) is not first
    assert node.begin(ask("a"), 9) == first


async def test_what_is_hidden_or_not_there_is_not_kept(node: Any, tools: Any) -> None:
    await node.create("a")
    await node.call(ask("a"), 9)
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.TOPIC, "a"))
    response = await node.call(ask("a"), 9)
    assert response.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_each_listener_has_its_own_addresses(node: Any) -> None:
    response = await node.call(every(), 9, "OTHER")
    assert [(b.host, b.port) for b in response.brokers] == [("outside", 9093)]


async def test_a_listener_that_the_leader_does_not_have(node: Any) -> None:
    await node.create()
    for version, error in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        response = await node.call(ask("t"), version, "UNHEARD_OF")
        assert response.brokers == []
        assert response.topics[0].partitions[0].error_code == error


async def test_asking_creates_a_topic_with_the_default_number_of_partitions(start: Any) -> None:
    node = await start(num_partitions="3")
    (topic,) = (await node.call(ask("new"), 9)).topics
    assert (topic.error_code, len(topic.partitions), topic.partitions[0].leader_id) == (ErrorCode.NONE, 3, 1)
    assert "new" in node.publisher.image.topics


async def test_two_who_ask_at_once_get_the_same_topic(node: Any) -> None:
    import asyncio

    one, two = await asyncio.gather(node.call(ask("new"), 12), node.call(ask("new"), 12))
    assert one.topics[0].topic_id == two.topics[0].topic_id != ZERO_UUID


async def test_nothing_is_created_where_client_or_broker_does_not_want_it(start: Any) -> None:
    node = await start()
    response = await node.call(ask("new", create=False), 4)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node = await start(auto_create_topics_enable="false")
    response = await node.call(ask("new"), 1)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not node.publisher.image.topics


@pytest.mark.parametrize("name", ["bad name", "", "..", "x" * 250, "ä"])
async def test_a_bad_name_is_an_invalid_topic(node: Any, name: str) -> None:
    response = await node.call(ask(name), 9)
    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_topic_that_cannot_be_created_says_why(start: Any) -> None:
    node = await start(default_replication_factor="3")
    response = await node.call(ask("new"), 9)
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_topics_by_id(node: Any) -> None:
    topic_id = await node.create()
    known, unknown = (await node.call(by_id(topic_id, b"x" * 16), 12)).topics
    assert (known.error_code, known.name) == (ErrorCode.NONE, "t")
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"x" * 16)


@pytest.mark.parametrize("version", [10, 11])
async def test_topic_ids_before_v12_are_refused(node: Any, version: int) -> None:
    topic_id = await node.create()
    (topic,) = (await node.call(by_id(topic_id), version)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


async def test_authorized_operations_are_told_when_asked_for(node: Any, tools: Any) -> None:
    await node.create()
    plain = await node.call(ask("t"), 8)
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED_FOR
    assert plain.cluster_authorized_operations == NOT_ASKED_FOR
    request = ask("t", include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    told = await node.call(request, 8)
    assert told.topics[0].topic_authorized_operations == 0b110111111000
    assert told.cluster_authorized_operations == 0b1111110100000
    node.broker.authorizer = tools.deny((Operation.DELETE, ResourceType.TOPIC, "t"))
    told = await node.call(request, 8)
    assert told.topics[0].topic_authorized_operations == 0b110110111000


async def test_topics_that_may_not_be_seen(node: Any, tools: Any) -> None:
    topic_id = await node.create("hidden")
    await node.create("seen")
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.TOPIC, "hidden"))
    assert names_of(await node.call(every(), 12)) == ["seen"]
    node.broker.authorizer.denied.add((Operation.DESCRIBE, ResourceType.TOPIC, "new"))
    assert (await node.call(ask("new"), 12)).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "new" not in node.publisher.image.topics
    (named,) = (await node.call(ask("hidden"), 12)).topics
    assert (named.error_code, named.partitions) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    (by_its_id,) = (await node.call(by_id(topic_id), 12)).topics
    assert (by_its_id.error_code, by_its_id.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


async def test_internal_topics_are_marked(node: Any) -> None:
    await node.create("__consumer_offsets")
    assert (await node.call(every(), 9)).topics[0].is_internal


async def test_asking_for_an_internal_topic_creates_it_with_options_of_its_own(node: Any) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        (topic,) = (await node.call(ask(name), 9)).topics
        assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (ErrorCode.NONE, True, 50)
        assert node.publisher.image.topic_configs(name)["cleanup.policy"] == "compact"


async def test_a_topic_that_is_asked_for_twice_is_answered_once(node: Any) -> None:
    topic_id = await node.create("a")
    assert names_of(await node.call(ask("a", "b", "a", "b"), 9)) == ["a", "b"]
    assert names_of(await node.call(by_id(topic_id, topic_id), 12)) == ["a"]


async def test_a_topic_that_the_principal_may_not_create_is_forbidden_rather_than_unknown(
    node: Any, tools: Any
) -> None:
    node.broker.authorizer = tools.deny(
        (Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME), (Operation.CREATE, ResourceType.TOPIC, "b")
    )
    topics = (await node.call(ask("a", "b", "bad name"), 9)).topics
    assert [(t.name, t.error_code) for t in topics] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    (topic,) = (await node.call(ask("b", create=False), 9)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def leaders(topic: Any) -> list[tuple[int, ErrorCode]]:
    return [(p.leader_id, ErrorCode(p.error_code)) for p in topic.partitions]


UP = (1, ErrorCode.NONE)
DOWN = (-1, ErrorCode.LEADER_NOT_AVAILABLE)


@pytest.mark.parametrize("version", range(14))
async def test_a_partition_whose_log_has_failed_has_no_leader(node: Any, version: int) -> None:
    await node.create("t", partitions=3)
    await node.create("other")
    node.append(b"x", index=1)
    node.partition("t", 1).log._fail("broken")
    for request in (ask("t", "other"), ask() if version == 0 else every()):
        response = await node.call(request, version)
        described = {topic.name: topic for topic in response.topics}
        assert leaders(described["t"]) == [UP, DOWN, UP]
        assert leaders(described["other"]) == [UP]
        assert described["t"].error_code == ErrorCode.NONE
        assert len(response.brokers) == 1
        partition = described["t"].partitions[1]
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        if version >= 5:
            assert [p.offline_replicas for p in described["t"].partitions] == [[], [1], []]


@pytest.mark.parametrize("request_", [every(), ask("t")], ids=["all", "one"])
async def test_a_kept_answer_follows_a_log_that_fails_and_comes_back(node: Any, request_: MetadataRequest) -> None:
    await node.create("t", partitions=2)

    async def shown() -> list[tuple[int, ErrorCode]]:
        (topic,) = (await node.call(request_, 12)).topics
        return leaders(topic)

    assert await shown() == [UP, UP]
    log = node.partition("t", 0).log
    log._fail("the disk is full for now")
    assert await shown() == [DOWN, UP]
    log.failure = None  # as after the log was cut back
    log._availability_changed()
    assert await shown() == [UP, UP]


async def test_a_topic_of_the_same_name_is_not_offline(node: Any) -> None:
    await node.create("t", partitions=2)
    node.append(b"x", index=1)
    node.partition("t", 1).log._fail("broken")
    await node.controller.delete_topics([TopicToDelete("t")])
    await node.create("t")
    (topic,) = (await node.call(ask("t"), 12)).topics
    assert leaders(topic) == [UP]
