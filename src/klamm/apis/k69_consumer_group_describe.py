"""ConsumerGroupDescribe (key 69), versions 0-1: state and members of consumer groups (KIP-848), and what
each of them owns and shall own.

Unusual: a group with a topic that the principal may not see is not shown at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.apis.gather import gathered
from klamm.apis.operations import group_operations
from klamm.coordinator.machine import Answer as Given
from klamm.coordinator.machine import Now, Outcome, Reply
from klamm.core.errors import ErrorCode
from klamm.metadata.features import GROUP_VERSION
from klamm.wire.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine


def handle(ctx: Context, request: ConsumerGroupDescribeRequest) -> Answer:
    if not ctx.broker.image.features.get(GROUP_VERSION, 0):
        return on_error(request, ctx.api_version, ErrorCode.UNSUPPORTED_VERSION)
    answers = [_describe(ctx, group_id, request.include_authorized_operations) for group_id in request.group_ids]
    return gathered(answers, lambda parts: _merged(parts, ctx))


def _merged(parts: Sequence[ConsumerGroupDescribeResponse], ctx: Context) -> ConsumerGroupDescribeResponse:
    groups = [group for part in parts for group in part.groups]
    return ConsumerGroupDescribeResponse(throttle_time_ms=ctx.throttle_time_ms, groups=groups)


def _describe(ctx: Context, group_id: str, operations: bool) -> Answer:
    """An answer with this group alone."""

    def refuse(code: ErrorCode) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(groups=[_error(group_id, code)])

    if not ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)

    def decide(machine: GroupMachine, reply: Reply, now: Now) -> Outcome:
        group = machine.consumer.describe(group_id)
        if not all(ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(_topics(group))):
            group = _error(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if operations and not group.error_code:
            group.authorized_operations = group_operations(ctx, group_id)
        return Outcome(answers=(Given(reply, ConsumerGroupDescribeResponse(groups=[group])),))

    return ctx.broker.groups.call(group_id, decide, refuse)


def _topics(group: DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _error(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=code, error_message=code.text)


def on_error(request: ConsumerGroupDescribeRequest, version: int, code: ErrorCode) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[_error(group_id, code) for group_id in request.group_ids])


API = Api(ConsumerGroupDescribeRequest, handle, key=69, versions=(0, 1), on_error=on_error)
