"""ApiVersions and InitProducerId."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k18_api_versions import ApiVersionsRequest
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ä", "x\n"])
async def test_a_bad_client_software_name_is_an_invalid_request(node: Any, name: str) -> None:
    response = await node.call(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert node.peer.software_name == ""


async def test_the_client_software_is_remembered(node: Any) -> None:
    request = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.1.0")
    assert (await node.call(request, 3)).error_code == ErrorCode.NONE
    assert (node.peer.software_name, node.peer.software_version) == ("apache-kafka-java", "4.1.0")


async def test_the_software_of_every_connection_is_remembered(node: Any) -> None:
    """Also where the answer is one that another client got before."""
    for version in (3, 4):
        for name in ("x", "y", "x"):
            request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
            node.peer.software_name = node.peer.software_version = ""
            assert (await node.call(request, version)).api_keys
            assert (node.peer.software_name, node.peer.software_version) == (name, "1")


async def test_one_client_s_request_is_no_other_s(node: Any) -> None:
    """The same bytes mean something else in another version, and many kinds of clients do not add up."""
    from klamm.apis.versions_cache import MAX_ANSWERS

    for number in range(MAX_ANSWERS + 2):
        request = ApiVersionsRequest(client_software_name=f"x{number}", client_software_version="1")
        answers = [await node.call(request, version) for version in range(5)]
        assert [bool(answer.supported_features) for answer in answers[:3]] == [False] * 3
        assert {len(answer.api_keys) for answer in answers} == {len(list(node.broker.apis))}


async def test_features_are_those_of_broker_and_image(node: Any) -> None:
    from klamm.controller import BrokerRegistration

    features = [("metadata.version", 1, 7), ("group.version", 0, 1)]
    await node.controller.register_broker(BrokerRegistration(1, node.env.uuid(), [], features=features))
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    response = await node.call(request, 4)
    assert [(f.name, f.min_version, f.max_version) for f in response.supported_features] == features
    assert response.finalized_features_epoch == node.publisher.image.offset
    response = await node.call(request, 3)
    assert [f.name for f in response.supported_features] == ["metadata.version"]


@pytest.mark.parametrize("version", range(6))
async def test_every_producer_gets_an_id_of_its_own(node: Any, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answers = [await node.call(request, version) for _ in range(3)]
    assert [a.error_code for a in answers] == [0, 0, 0]
    assert len({a.producer_id for a in answers}) == 3
    assert {a.producer_epoch for a in answers} == {0}


async def test_a_transactional_producer_is_told_to_come_back(node: Any) -> None:
    answer = await node.call(InitProducerIdRequest(transactional_id="x"), 4)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    answer = await node.call(InitProducerIdRequest(transactional_id=""), 4)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_an_epoch_without_an_id_is_an_invalid_request(node: Any) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_epoch=3)
    assert (await node.call(request, 3)).error_code == ErrorCode.INVALID_REQUEST


async def test_who_may_not_produce_idempotently(node: Any, tools: Any) -> None:
    node.broker.authorizer = tools.deny((Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME))
    answer = await node.call(InitProducerIdRequest(transactional_id=None), 3)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_without_a_controller_the_producer_is_told_to_try_again(node: Any) -> None:
    await node.controller.close()
    answer = await node.call(InitProducerIdRequest(transactional_id=None), 3)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
