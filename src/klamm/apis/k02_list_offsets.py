"""ListOffsets (key 2), versions 1-11: an offset by a timestamp, or by one of the names that negative ones stand for.

Unusual: each special timestamp came with a version of its own; an older request that carries one is refused for that
partition. Consumers are told of what they may read, all others (followers, the debugging id -2) of the log's end.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.replica import offsets
from klamm.replica.fetch import Limits
from klamm.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

_SINCE = {
    offsets.LATEST: 1,
    offsets.EARLIEST: 1,
    offsets.MAX_TIMESTAMP: 7,
    offsets.EARLIEST_LOCAL: 8,
    offsets.LATEST_TIERED: 9,
    offsets.EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1
_LEADER_EPOCHS = 4


def handle(ctx: Context, request: ListOffsetsRequest) -> Answer:
    limits = Limits(
        committed=request.isolation_level == _READ_COMMITTED,
        min_bytes=0,
        max_bytes=0,
        replica_id=request.replica_id,
    )
    named_twice = _named_twice(request)
    topics = []
    for topic in request.topics:
        if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            partitions = [_partition(ctx, topic, p, limits, named_twice) for p in topic.partitions]
        else:
            partitions = [_error(p, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for p in topic.partitions]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(throttle_time_ms=ctx.throttle_time_ms, topics=topics)


def _named_twice(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for p in topic.partitions:
            key = (topic.name, p.partition_index)
            (twice if key in seen else seen).add(key)
    return twice


def _partition(
    ctx: Context,
    topic: ListOffsetsTopic,
    asked: ListOffsetsPartition,
    limits: Limits,
    named_twice: set[tuple[str, int]],
) -> ListOffsetsPartitionResponse:
    if (topic.name, asked.partition_index) in named_twice:
        return _error(asked, ErrorCode.INVALID_REQUEST)
    if asked.timestamp < 0 and ctx.api_version < _SINCE.get(asked.timestamp, ctx.api_version + 1):
        return _error(asked, ErrorCode.UNSUPPORTED_VERSION)
    partition = ctx.broker.replicas.find(topic.name, asked.partition_index)
    if partition is None:
        return _error(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if error := partition.available() or partition.check_epoch(asked.current_leader_epoch):
        return _error(asked, error)
    found = offsets.find_offset(partition, asked.timestamp, limits)
    if isinstance(found, ErrorCode):
        return _error(asked, found)
    offset, timestamp, leader_epoch = found
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset, timestamp=timestamp)
    if ctx.api_version >= _LEADER_EPOCHS:
        answer.leader_epoch = leader_epoch
    return answer


def _error(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)


def on_error(request: ListOffsetsRequest, version: int, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[_error(p, code) for p in topic.partitions])
            for topic in request.topics
        ]
    )


API = Api(ListOffsetsRequest, handle, key=2, versions=(1, 11), on_error=on_error)
