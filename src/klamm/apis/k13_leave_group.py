"""LeaveGroup (key 13), versions 0-5: members leave a classic group, or a tool removes static members by instance id.

Unusual: up to v2 it is about one member, whose error is the answer's own. From v3 on each has its error.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, Pending, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_MANY = 3


def handle(ctx: Context, request: LeaveGroupRequest) -> Answer:
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    many = ctx.api_version >= _MANY
    leaving = request.members if many else [MemberIdentity(member_id=request.member_id)]
    answer = ctx.broker.groups.call(
        request.group_id,
        lambda machine, reply, now: machine.classic.leave(request.group_id, leaving, reply, now),
        lambda code: LeaveGroupResponse(error_code=code),
    )
    return answer if many else _of_one(answer)


def _of_one(answer: Answer) -> Answer:
    """The answer with the only member's error as its own."""
    if isinstance(answer, Pending):
        later = Pending(answer.cancel)
        answer.then(lambda response: later.set(_flat(response)))
        return later
    assert isinstance(answer, LeaveGroupResponse)
    return _flat(answer)


def _flat(response: object) -> LeaveGroupResponse:
    assert isinstance(response, LeaveGroupResponse)
    code = response.members[0].error_code if response.members else response.error_code
    return LeaveGroupResponse(error_code=code)


def on_error(request: LeaveGroupRequest, version: int, code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


API = Api(LeaveGroupRequest, handle, key=13, versions=(0, 5), on_error=on_error)
