"""ListPartitionReassignments (key 46), version 0: the partitions whose replicas are being moved (KIP-455).

Unusual: null asks for all. Partitions that are not there, or not being moved, are left out without an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.core.errors import ErrorCode
from klamm.metadata.image import Image
from klamm.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(ctx: Context, request: ListPartitionReassignmentsRequest) -> Answer:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    image = ctx.broker.image
    topics = []
    for name, indexes in _asked(request, image):
        moving = list(_moving(image, name, indexes))
        if moving:
            topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return ListPartitionReassignmentsResponse(throttle_time_ms=ctx.throttle_time_ms, error_message=None, topics=topics)


def _asked(request: ListPartitionReassignmentsRequest, image: Image) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topics is None:
        return ((topic.name, range(len(topic.partitions))) for topic in image.topics.values())
    return ((topic.name, topic.partition_indexes) for topic in request.topics)


def _moving(image: Image, topic: str, indexes: Iterable[int]) -> Iterator[OngoingPartitionReassignment]:
    for index in indexes:
        state = image.partition(topic, index)
        if state is not None and (state.adding or state.removing):
            yield OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )


def on_error(
    request: ListPartitionReassignmentsRequest, version: int, code: ErrorCode
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=error_text(code))


API = Api(ListPartitionReassignmentsRequest, handle, key=46, versions=(0, 0), on_error=on_error)
