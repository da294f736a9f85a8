"""SyncGroup (key 14), versions 0-5: the leader of a classic group hands out the assignments, each member gets its own.

Unusual: the answer of all others comes with the leader's request. From v5 on, members must name the protocol.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, Pending, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

_NAMES_PROTOCOL = 5


def handle(ctx: Context, request: SyncGroupRequest) -> Answer:
    error = _check(ctx, request)
    if error:
        return SyncGroupResponse(error_code=error)
    assignments = {one.member_id: one.assignment for one in request.assignments}
    answer = ctx.broker.groups.call(
        request.group_id,
        lambda machine, reply, now: machine.classic.sync(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            (request.protocol_type, request.protocol_name),
            assignments,
            reply,
            now,
        ),
        lambda code: SyncGroupResponse(error_code=code),
    )
    if isinstance(answer, Pending):
        answer.alone = True
    return answer


def _check(ctx: Context, request: SyncGroupRequest) -> ErrorCode:
    if ctx.api_version >= _NAMES_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID


def on_error(request: SyncGroupRequest, version: int, code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


API = Api(SyncGroupRequest, handle, key=14, versions=(0, 5), on_error=on_error)
