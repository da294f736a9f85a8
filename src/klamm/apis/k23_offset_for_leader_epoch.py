"""OffsetForLeaderEpoch (key 23), versions 2-4: where a leader epoch ended in the log (KIP-101, KIP-320).

A consumer or a follower learns from it whether what it has read was cut off by a change of leaders.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.replica.partition import UNREADABLE
from klamm.wire.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(ctx: Context, request: OffsetForLeaderEpochRequest) -> Answer:
    topics = []
    for topic in request.topics:
        if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic):
            partitions = [_partition(ctx, topic.topic, p) for p in topic.partitions]
        else:
            partitions = [_error(p, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for p in topic.partitions]
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(throttle_time_ms=ctx.throttle_time_ms, topics=topics)


def _partition(ctx: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = ctx.broker.replicas.find(topic, asked.partition)
    if partition is None:
        return _error(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if error := partition.available() or partition.check_epoch(asked.current_leader_epoch):
        return _error(asked, error)
    try:
        epoch, end_offset = partition.end_of_epoch(asked.leader_epoch)
    except UNREADABLE:
        return _error(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


def _error(asked: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=asked.partition, error_code=code)


def on_error(request: OffsetForLeaderEpochRequest, version: int, code: ErrorCode) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic=topic.topic, partitions=[_error(p, code) for p in topic.partitions])
            for topic in request.topics
        ]
    )


API = Api(OffsetForLeaderEpochRequest, handle, key=23, versions=(2, 4), on_error=on_error)
