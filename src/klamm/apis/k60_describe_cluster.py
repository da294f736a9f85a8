"""DescribeCluster (key 60), versions 0-2: cluster id, controller, and where the brokers are (KIP-700).

Unusual: a client that talks to controllers asks for their endpoints (v1, KIP-919); those are not what this listener
serves. The allowed operations are 0 for whoever may not describe the cluster, where Metadata would list the others.
"""

from __future__ import annotations

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType
from klamm.apis.leaders import addresses
from klamm.apis.operations import NOT_ASKED_FOR, cluster_operations
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS = 1
_CONTROLLERS = 2


def handle(ctx: Context, request: DescribeClusterRequest) -> Answer:
    if request.endpoint_type != _BROKERS:
        return _wrong_endpoint(request.endpoint_type)
    broker, image = ctx.broker, ctx.broker.image
    wanted = [b.id for b in image.brokers.values() if request.include_fenced_brokers or not b.fenced]
    brokers = [
        DescribeClusterBroker(
            broker_id=a.node_id, host=a.host, port=a.port, rack=a.rack, is_fenced=image.brokers[a.node_id].fenced
        )
        for a in addresses(image, ctx.listener, wanted)
    ]
    known = any(b.broker_id == image.controller_id for b in brokers)
    return DescribeClusterResponse(
        throttle_time_ms=ctx.throttle_time_ms,
        cluster_id=broker.cluster_id,
        controller_id=image.controller_id if known else -1,
        brokers=brokers,
        cluster_authorized_operations=(
            _operations(ctx) if request.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def _operations(ctx: Context) -> int:
    may_ask = ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return cluster_operations(ctx) if may_ask else 0


def _wrong_endpoint(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == _CONTROLLERS:
        code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's listener; ask for brokers instead"
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there are no endpoints of type {endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=message)


def on_error(request: DescribeClusterRequest, version: int, code: ErrorCode) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=code.text)


API = Api(DescribeClusterRequest, handle, key=60, versions=(0, 2), on_error=on_error)
