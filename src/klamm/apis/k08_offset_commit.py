"""OffsetCommit (key 8), versions 2-10: a group stores its positions; topics by name, from v10 on by id.

Unusual: a client that is no member (a generation of -1) may commit as long as the group has no members; the group is
made by that. An offset may be any number: nobody asks whether the partition has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.coordinator.groups.offsets import Commit, Committer
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.machine import Now, Outcome, Reply
    from klamm.metadata.image import Image, TopicState

_BY_ID = 10


def handle(ctx: Context, request: OffsetCommitRequest) -> Answer:
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return _error(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, ctx.throttle_time_ms)
    response = OffsetCommitResponse(throttle_time_ms=ctx.throttle_time_ms)
    commits = _accepted(ctx, request, response)
    if not commits:
        return response
    who = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        ctx.api_version,
    )

    def decide(machine: GroupMachine, reply: Reply, now: Now) -> Outcome:
        return machine.offsets.commit(who, commits, response, reply, now, request.retention_time_ms)

    def refuse(code: ErrorCode) -> OffsetCommitResponse:
        for commit in commits:
            commit.answer.error_code = code
        return response

    return ctx.broker.groups.call(request.group_id, decide, refuse)


def _accepted(ctx: Context, request: OffsetCommitRequest, response: OffsetCommitResponse) -> list[Commit]:
    """What is to be committed, with its place in the response; all other partitions are answered there."""
    image, commits = ctx.broker.image, []
    for asked in request.topics:
        topic, code = _find(ctx, image, asked)
        partitions = []
        for partition in asked.partitions:
            index = partition.partition_index
            answer = OffsetCommitResponsePartition(partition_index=index, error_code=code)
            partitions.append(answer)
            if topic is None:
                continue
            if 0 <= index < len(topic.partitions):
                commits.append(Commit(topic.name, topic.id, partition, answer))
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response.topics.append(
            OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=partitions)
        )
    return commits


def _find(ctx: Context, image: Image, asked: OffsetCommitRequestTopic) -> tuple[TopicState | None, ErrorCode]:
    by_id = ctx.api_version >= _BY_ID
    topic = image.topic_by_id(asked.topic_id) if by_id else image.topic(asked.name)
    if topic is None and by_id:
        return None, ErrorCode.UNKNOWN_TOPIC_ID
    if not ctx.authorize(Operation.READ, ResourceType.TOPIC, asked.name if topic is None else topic.name):
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return topic, ErrorCode.NONE if topic is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _error(request: OffsetCommitRequest, code: ErrorCode, throttle_time_ms: int = 0) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        throttle_time_ms=throttle_time_ms,
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def on_error(request: OffsetCommitRequest, version: int, code: ErrorCode) -> OffsetCommitResponse:
    return _error(request, code)


API = Api(OffsetCommitRequest, handle, key=8, versions=(2, 10), on_error=on_error)
