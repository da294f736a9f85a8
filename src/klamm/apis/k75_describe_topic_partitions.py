"""DescribeTopicPartitions (key 75), version 0: topics and their partitions, page by page (KIP-966).

Unusual: topics come in the order of their names, whatever the order of the request. An answer has so many partitions at
most as the client and the broker both want, over all topics; where it stops, its cursor says where the next one begins,
and the client asks again with it. The cursor's topic need not be there any more: the page begins with the next one.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.apis.leaders import addresses
from klamm.apis.operations import topic_operations
from klamm.controller.names import is_valid_topic_name
from klamm.core.errors import ErrorCode
from klamm.metadata.image import Image, PartitionState, TopicState
from klamm.replica.manager import INTERNAL_TOPICS
from klamm.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(ctx: Context, request: DescribeTopicPartitionsRequest) -> Answer:
    cursor = request.cursor
    wanted = _wanted(request, ctx.broker.image)
    if cursor is not None:
        wanted = [name for name in wanted if name >= cursor.topic_name]
        listed = not request.topics or cursor.topic_name in wanted
        if cursor.partition_index < 0 or not listed:
            return on_error(request, ctx.api_version, ErrorCode.INVALID_REQUEST)
    allowed = [name for name in wanted if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name)]
    response = _page(ctx, request, allowed)
    if request.topics and len(allowed) < len(wanted):
        response.topics += [
            _error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in wanted if name not in set(allowed)
        ]
    response.throttle_time_ms = ctx.throttle_time_ms
    return response


def _wanted(request: DescribeTopicPartitionsRequest, image: Image) -> list[str]:
    return sorted({topic.name for topic in request.topics} if request.topics else image.topics)


def _page(ctx: Context, request: DescribeTopicPartitionsRequest, names: list[str]) -> DescribeTopicPartitionsResponse:
    image, cursor = ctx.broker.image, request.cursor
    view = _View(ctx, image)
    most = ctx.broker.options.get_int("max.request.partition.size.limit")
    left = max(1, min(most, request.response_partition_limit))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        partitions = list(view.partitions(topic, first, left))
        response.topics.append(_topic(ctx, topic, partitions))
        left -= len(partitions)
        if first + len(partitions) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(partitions))
            break
    return response


class _View:
    """The partitions of one image as they look from one listener."""

    def __init__(self, ctx: Context, image: Image) -> None:
        self._node_id = ctx.broker.node_id
        self._offline = ctx.broker.replicas.offline  # logs that have failed here; empty in normal times
        self._live = {broker.id for broker in image.live_brokers()}
        self._reachable = {address.node_id for address in addresses(image, ctx.listener, self._live)}

    def partitions(
        self, topic: TopicState, first: int, limit: int
    ) -> Iterator[DescribeTopicPartitionsResponsePartition]:
        failed = self._offline.get(topic.name, ())
        for index, state in enumerate(topic.partitions[first : first + limit], first):
            yield self._partition(index, state, index in failed)

    def _partition(self, index: int, state: PartitionState, failed: bool) -> DescribeTopicPartitionsResponsePartition:
        usable = self._live - {self._node_id} if failed else self._live
        led = state.leader in self._reachable and state.leader in usable
        return DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=state.leader if led else -1,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            eligible_leader_replicas=list(state.elr),
            last_known_elr=[],
            offline_replicas=[node for node in state.replicas if node not in usable],
        )


def _topic(
    ctx: Context, topic: TopicState, partitions: list[DescribeTopicPartitionsResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=topic_operations(ctx, topic.name),
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    valid = is_valid_topic_name(name)
    return _error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION)


def _error(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(name=name, error_code=code)


def on_error(request: DescribeTopicPartitionsRequest, version: int, code: ErrorCode) -> DescribeTopicPartitionsResponse:
    """Every topic that was named gets the error; there is no place for one of the whole."""
    return DescribeTopicPartitionsResponse(topics=[_error(topic.name, code) for topic in request.topics])


API = Api(DescribeTopicPartitionsRequest, handle, key=75, versions=(0, 0), on_error=on_error)
