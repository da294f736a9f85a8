"""DescribeCluster."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, ResourceType
from klamm.controller import BrokerRegistration
from klamm.controller.commands import Decision
from klamm.core.errors import ErrorCode
from klamm.metadata.image import BrokerEndpoint
from klamm.metadata.records import BrokerRecord, Endpoint
from klamm.wire.messages.k60_describe_cluster import DescribeClusterRequest


@pytest.mark.parametrize("version", range(3))
async def test_brokers_controller_and_cluster_id(node: Any, version: int) -> None:
    response = await node.call(DescribeClusterRequest(), version)
    assert response.error_code == ErrorCode.NONE
    assert (response.cluster_id, response.controller_id) == (node.folder.cluster_id, 1)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers] == [(1, "localhost", 9092, "r1")]
    assert response.cluster_authorized_operations == -(2**31)


async def test_addresses_are_those_of_the_listener_that_is_asked(node: Any) -> None:
    response = await node.call(DescribeClusterRequest(), 1, listener="OTHER")
    assert [(b.host, b.port) for b in response.brokers] == [("outside", 9093)]
    response = await node.call(DescribeClusterRequest(), 1, listener="NOBODY")
    assert (response.brokers, response.controller_id) == ([], -1)


async def test_fenced_brokers_only_for_whoever_wants_them(node: Any) -> None:
    endpoints = [Endpoint(name="PLAINTEXT", host="far", port=1)]
    fenced = BrokerRecord(id=2, epoch=5, endpoints=endpoints, fenced=True)
    await node.controller.run(lambda image: Decision([fenced], None))
    await node.controller.register_broker(
        BrokerRegistration(3, node.env.uuid(), [BrokerEndpoint("PLAINTEXT", "near", 2)])
    )
    response = await node.call(DescribeClusterRequest(), 2)
    assert [b.broker_id for b in response.brokers] == [1, 3]
    response = await node.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(b.broker_id, b.is_fenced) for b in response.brokers] == [(1, False), (2, True), (3, False)]


async def test_what_the_principal_may_do(node: Any, tools: Any) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    everything = (await node.call(request, 0)).cluster_authorized_operations
    assert everything == sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
    node.broker.authorizer = tools.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
    assert (await node.call(request, 0)).cluster_authorized_operations == everything & ~(1 << Operation.ALTER)
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))
    assert (await node.call(request, 0)).cluster_authorized_operations == 0


@pytest.mark.parametrize(
    ("asked", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_endpoints_that_are_not_served_here(node: Any, asked: int, error: ErrorCode) -> None:
    response = await node.call(DescribeClusterRequest(endpoint_type=asked), 1)
    assert (response.error_code, response.brokers) == (error, [])
    assert response.error_message
