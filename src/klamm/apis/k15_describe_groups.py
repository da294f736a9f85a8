"""DescribeGroups (key 15), versions 0-6: state and members of classic groups.

Unusual: a group that is not there, or that uses the consumer protocol (key 69 describes those), is Dead; only from v6
on that is an error, too. Metadata and assignments of members are shown while the group is stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.apis.gather import gathered
from klamm.apis.operations import group_operations
from klamm.coordinator.groups import listing
from klamm.coordinator.machine import Answer as Given
from klamm.coordinator.machine import Now, Outcome, Reply
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k15_describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine

_NOT_FOUND = 6
_OPERATIONS = 3


def handle(ctx: Context, request: DescribeGroupsRequest) -> Answer:
    operations = request.include_authorized_operations and ctx.api_version >= _OPERATIONS
    answers = [_describe(ctx, group_id, operations) for group_id in request.groups]
    return gathered(answers, lambda parts: _merged(parts, ctx))


def _merged(parts: Sequence[DescribeGroupsResponse], ctx: Context) -> DescribeGroupsResponse:
    groups = [group for part in parts for group in part.groups]
    return DescribeGroupsResponse(throttle_time_ms=ctx.throttle_time_ms, groups=groups)


def _describe(ctx: Context, group_id: str, operations: bool) -> Answer:
    """An answer with this group alone."""

    def refuse(code: ErrorCode) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[_error(group_id, ctx.api_version, code)])

    if not ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def decide(machine: GroupMachine, reply: Reply, now: Now) -> Outcome:
        group = listing.described(machine, group_id)
        if group.error_code and ctx.api_version < _NOT_FOUND:
            group = DescribedGroup(group_id=group_id, group_state=listing.DEAD)
        if operations and not group.error_code:
            group.authorized_operations = group_operations(ctx, group_id)
        return Outcome(answers=(Given(reply, DescribeGroupsResponse(groups=[group])),))

    return ctx.broker.groups.call(group_id, decide, refuse)


def _error(group_id: str, version: int, code: ErrorCode) -> DescribedGroup:
    message = code.text if version >= _NOT_FOUND else None
    return DescribedGroup(group_id=group_id, error_code=code, error_message=message)


def on_error(request: DescribeGroupsRequest, version: int, code: ErrorCode) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_error(group_id, version, code) for group_id in request.groups])


API = Api(DescribeGroupsRequest, handle, key=15, versions=(0, 6), on_error=on_error)
