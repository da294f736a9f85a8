"""JoinGroup (key 11), versions 0-9: enter a classic group, or the next generation of it.

Unusual: the answer comes when the rebalance is over, which may take minutes. From v7 on, an error has no name of a
protocol, where it was empty before. From v4 on, a new member is first given an
id and asked to come back with it; from v9 on, a leader may be told to keep the assignment as it is. While a member
waits, nothing else of its connection is handled, as with Kafka: a client that loses patience and joins again
(kafka-python does) must find the rebalance over, and not begin another one.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, Pending, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse

_REBALANCE_TIMEOUT = 1
_NO_NAME = 7


def handle(ctx: Context, request: JoinGroupRequest) -> Answer:
    error = _check(ctx, request)
    if error:
        return _named(_error(request, error), ctx.api_version)
    from klamm.coordinator.groups.members import Joining  # with the first member, not with the broker

    joining = Joining(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        ctx.client_id or "",
        f"/{ctx.peer.host}",
        request.session_timeout_ms,
        request.rebalance_timeout_ms if ctx.api_version >= _REBALANCE_TIMEOUT else request.session_timeout_ms,
        request.protocol_type,
        {protocol.name: protocol.metadata for protocol in request.protocols},
        ctx.api_version,
        request.reason,
    )
    answer = ctx.broker.groups.call(
        request.group_id,
        lambda machine, reply, now: machine.classic.join(joining, reply, now),
        lambda code: _error(request, code),
    )
    if isinstance(answer, Pending):
        answer = answer if ctx.api_version >= _NO_NAME else _named_later(answer)
        answer.alone = True
        return answer
    return _named(answer, ctx.api_version)


def _check(ctx: Context, request: JoinGroupRequest) -> ErrorCode:
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    options = ctx.broker.options
    shortest, longest = (options.get_int(f"group.{bound}.session.timeout.ms") for bound in ("min", "max"))
    if not shortest <= request.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def _error(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=request.member_id, protocol_name=None)


def _named(answer: Answer, version: int) -> JoinGroupResponse:
    assert isinstance(answer, JoinGroupResponse)
    if answer.protocol_name is None and version < _NO_NAME:
        answer.protocol_name = ""
    return answer


def _named_later(answer: Pending) -> Pending:
    named = Pending(answer.cancel)
    answer.then(lambda response: named.set(_named(response, 0)))
    return named


def on_error(request: JoinGroupRequest, version: int, code: ErrorCode) -> JoinGroupResponse:
    return _named(_error(request, code), version)


API = Api(JoinGroupRequest, handle, key=11, versions=(0, 9), on_error=on_error)
