"""ListOffsets (key 2), versions 1-11: an offset by a timestamp, or by one of the names that negative ones stand for.

Unusual: each special timestamp came with a version of its own; an older request that carries one is refused for that
partition. Nothing is tiered yet, so the earliest local offset (-4) is the log's start, and neither the last tiered
(-5) nor the next to be uploaded (-6) exists: both are answered with -1, as Kafka does where tiering is off.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.log.results import Rejected
from klamm.replica.fetch import Limits
from klamm.replica.partition import Partition
from klamm.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6

_SINCE = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1
_LEADER_EPOCHS = 4


def handle(ctx: Context, request: ListOffsetsRequest) -> Answer:
    # Everything but a consumer (a follower, or the debugging id -2) is told of the log's end.
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
    found = _find(partition, asked.timestamp, limits)
    if isinstance(found, ErrorCode):
        return _error(asked, found)
    offset, timestamp, leader_epoch = found
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset, timestamp=timestamp)
    if ctx.api_version >= _LEADER_EPOCHS:
        answer.leader_epoch = leader_epoch
    return answer


def _find(partition: Partition, timestamp: int, limits: Limits) -> tuple[int, int, int] | ErrorCode:
    """(offset, timestamp, leader epoch), with -1 for what there is not."""
    log = partition.log
    assert log is not None
    limit = partition.limit(limits)
    if timestamp == _LATEST:
        return limit, -1, partition.leader_epoch
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return log.start_offset, -1, log.epochs.epoch_for_offset(log.start_offset)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    found = log.max_timestamp_offset() if timestamp == _MAX_TIMESTAMP else log.offset_for_timestamp(timestamp, limit)
    if isinstance(found, Rejected):
        return found.code
    if found is None or found.offset >= limit:
        return -1, -1, -1
    return found.offset, found.timestamp, found.leader_epoch


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
