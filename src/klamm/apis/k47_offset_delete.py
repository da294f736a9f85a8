"""OffsetDelete (key 47), version 0: a group forgets its position in some partitions (KIP-496).

Unusual: it works while the group has members, but not for topics that these are subscribed to. Of a group with members
that are no consumers nobody knows what they read: there it is refused as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.coordinator.machine import Answer as Given
from klamm.coordinator.machine import Now, Outcome, Reply
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.groups.offsets_store import Place


def handle(ctx: Context, request: OffsetDeleteRequest) -> Answer:
    group_id, throttle_time_ms = request.group_id, ctx.throttle_time_ms

    def refuse(code: ErrorCode) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=code, throttle_time_ms=throttle_time_ms)

    if not ctx.authorize(Operation.DELETE, ResourceType.GROUP, group_id):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)

    def decide(machine: GroupMachine, reply: Reply, now: Now) -> Outcome:
        if code := machine.offsets.delete_error(group_id):
            return Outcome(answers=(Given(reply, refuse(code)),))
        response = OffsetDeleteResponse(throttle_time_ms=throttle_time_ms)
        places: list[Place] = []
        for topic in request.topics:
            response.topics.append(_answer(ctx, machine, group_id, topic, places))
        return Outcome(machine.offsets.tombstones(group_id, places), (Given(reply, response),), only_records=True)

    return ctx.broker.groups.call(group_id, decide, refuse)


def _answer(
    ctx: Context, machine: GroupMachine, group_id: str, topic: OffsetDeleteRequestTopic, places: list[Place]
) -> OffsetDeleteResponseTopic:
    """What came of one topic; what is to be deleted goes to `places`."""
    state, code = ctx.broker.image.topic(topic.name), ErrorCode.NONE
    if not ctx.authorize(Operation.READ, ResourceType.TOPIC, topic.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif state is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif machine.offsets.is_subscribed(group_id, topic.name):
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    count = 0 if state is None else len(state.partitions)
    answer = OffsetDeleteResponseTopic(name=topic.name)
    for partition in topic.partitions:
        index = partition.partition_index
        exists = 0 <= index < count
        error = code if code or exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
        if not error:
            places.append((topic.name, index))
    return answer


def on_error(request: OffsetDeleteRequest, version: int, code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


API = Api(OffsetDeleteRequest, handle, key=47, versions=(0, 0), on_error=on_error)
