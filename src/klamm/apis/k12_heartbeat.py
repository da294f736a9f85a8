"""Heartbeat (key 12), versions 0-4: a member of a classic group is alive, and is told if it has to join again.

Unusual: while the coordinator loads, everybody is fine. It does not know better, and a member that took an error for
the end of its membership would start a rebalance for nothing.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(ctx: Context, request: HeartbeatRequest) -> Answer:
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return ctx.broker.groups.call(
        request.group_id,
        lambda machine, reply, now: machine.classic.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id, reply, now
        ),
        _refused,
    )


def _refused(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=ErrorCode.NONE if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code)


def on_error(request: HeartbeatRequest, version: int, code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


API = Api(HeartbeatRequest, handle, key=12, versions=(0, 4), on_error=on_error)
