"""FindCoordinator: the internal topics that it makes, and who coordinates what."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.apis.api import Operation, ResourceType
from klamm.controller import TopicToDelete
from klamm.core.errors import ErrorCode
from klamm.metadata.image import TOPIC_RESOURCE, ConfigResource
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, SHARE = 0, 1, 2


def asking(version: int, *keys: str, kind: int = GROUP) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=keys[0], key_type=kind)
    return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind)


@pytest.mark.parametrize("version", range(7))
async def test_this_broker_coordinates_every_group_by_the_address_of_the_listener(node: Any, version: int) -> None:
    for listener, host, port in (("PLAINTEXT", "localhost", 9092), ("OTHER", "outside", 9093)):
        response = await node.call(asking(version, "g", "h"), version, listener)
        if version < 4:
            found = [(response.error_code, response.node_id, response.host, response.port)]
            assert found == [(ErrorCode.NONE, 1, host, port)]
        else:
            assert [(c.key, c.error_code, c.node_id, c.host, c.port) for c in response.coordinators] == [
                (key, ErrorCode.NONE, 1, host, port) for key in ("g", "h")
            ]


@pytest.mark.parametrize(("kind", "topic"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")])
async def test_the_first_who_asks_has_the_topic_created_once(node: Any, kind: int, topic: str) -> None:
    answers = await asyncio.gather(*(node.call(asking(4, f"k{i}", kind=kind), 4) for i in range(5)))
    assert [answer.coordinators[0].error_code for answer in answers] == [ErrorCode.NONE] * 5
    image = node.publisher.image
    assert list(image.topics) == [topic]
    assert len(image.topics[topic].partitions) == 50
    configs = image.configs[ConfigResource(TOPIC_RESOURCE, topic)]
    assert (configs["cleanup.policy"], configs["compression.type"]) == ("compact", "producer")
    assert configs["segment.bytes"] == str(100 << 20)


async def test_a_deleted_topic_is_created_anew(node: Any) -> None:
    await node.call(asking(4, "g"), 4)
    first = node.publisher.image.topics["__consumer_offsets"].id
    await node.controller.delete_topics([TopicToDelete("__consumer_offsets")])
    answer = await node.call(asking(4, "g"), 4)
    assert answer.coordinators[0].error_code == ErrorCode.NONE
    assert node.publisher.image.topics["__consumer_offsets"].id != first


async def test_who_may_not_describe_a_group_learns_nothing_and_creates_nothing(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.GROUP, "g"))
    response = await node.call(asking(2, "g"), 2)
    assert (response.error_code, response.node_id) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, -1)
    assert not node.publisher.image.topics
    response = await node.call(asking(4, "g", "h"), 4)
    assert [c.error_code for c in response.coordinators] == [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NONE]
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "t"))
    response = await node.call(asking(4, "t", kind=TRANSACTION), 4)
    assert response.coordinators[0].error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_there_are_no_coordinators_of_other_kinds(node: Any) -> None:
    for kind, version in ((SHARE, 6), (9, 4), (9, 1)):
        response = await node.call(asking(version, "x", kind=kind), version)
        code = response.error_code if version < 4 else response.coordinators[0].error_code
        assert code == ErrorCode.INVALID_REQUEST


async def test_a_topic_that_cannot_be_created_means_that_there_is_no_coordinator(node: Any) -> None:
    await node.create("__consumer.offsets")  # differs only in '.' and '_'
    response = await node.call(asking(3, "g"), 3)
    assert (response.error_code, response.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
