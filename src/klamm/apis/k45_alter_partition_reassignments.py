"""AlterPartitionReassignments (key 45), versions 0-1: move replicas to other brokers, or stop moving them (KIP-455).

Unusual: on a standalone broker there is nowhere to go. The replicas that a partition has may be asked for again, which
changes nothing; null, which stops a reassignment, finds none under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.controller.assignment import check_replicas
from klamm.core.errors import BrokerError, ErrorCode
from klamm.metadata.image import Image
from klamm.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

Outcome: TypeAlias = "tuple[ErrorCode, str | None]"


def handle(ctx: Context, request: AlterPartitionReassignmentsRequest) -> Answer:
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    image, resize = ctx.broker.image, request.allow_replication_factor_change

    def outcome(topic: str, asked: ReassignablePartition) -> Outcome:
        try:
            _check(image, topic, asked, resize)
        except BrokerError as error:
            return error.code, str(error)
        return ErrorCode.NONE, None

    response = _answer(request, outcome)
    response.throttle_time_ms = ctx.throttle_time_ms
    response.allow_replication_factor_change = resize
    return response


def _check(image: Image, topic: str, asked: ReassignablePartition, resize: bool) -> None:
    """BrokerError unless the partition is as it is asked for."""
    name = f"partition {asked.partition_index} of topic {topic}"
    state = image.partition(topic, asked.partition_index)
    if state is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}")
    if asked.replicas is None:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"no reassignment of {name} is under way")
    check_replicas(image, name, asked.replicas)
    if len(asked.replicas) != len(state.replicas) and not resize:
        message = f"{name} has {len(state.replicas)} replicas, and the request forbids to change that"
        raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if tuple(asked.replicas) != state.replicas:
        message = f"{name} stays on {list(state.replicas)}: this version cannot move replicas"
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _answer(
    request: AlterPartitionReassignmentsRequest, outcome: Callable[[str, ReassignablePartition], Outcome]
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_partition(p.partition_index, *outcome(topic.name, p)) for p in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _partition(index: int, code: ErrorCode, message: str | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index, error_code=code, error_message=error_text(code, message) if code else None
    )


def on_error(
    request: AlterPartitionReassignmentsRequest, version: int, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    response = _answer(request, lambda topic, asked: (code, None))
    response.error_code, response.error_message = code, error_text(code)
    return response


API = Api(AlterPartitionReassignmentsRequest, handle, key=45, versions=(0, 1), on_error=on_error)
