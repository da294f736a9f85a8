"""DeleteGroups (key 42), versions 0-2: remove groups that have no members, with everything they have committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.apis.gather import gathered
from klamm.coordinator.groups import listing
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.machine import Now, Outcome, Reply


def handle(ctx: Context, request: DeleteGroupsRequest) -> Answer:
    answers = [_delete(ctx, group_id) for group_id in dict.fromkeys(request.groups_names)]
    return gathered(answers, lambda parts: _merged(parts, ctx))


def _merged(parts: Sequence[DeleteGroupsResponse], ctx: Context) -> DeleteGroupsResponse:
    results = [result for part in parts for result in part.results]
    return DeleteGroupsResponse(throttle_time_ms=ctx.throttle_time_ms, results=results)


def _delete(ctx: Context, group_id: str) -> Answer:
    """An answer with this group alone."""

    def refuse(code: ErrorCode) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id, error_code=code)])

    if not ctx.authorize(Operation.DELETE, ResourceType.GROUP, group_id):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def decide(machine: GroupMachine, reply: Reply, now: Now) -> Outcome:
        return listing.delete(machine, group_id, reply)

    return ctx.broker.groups.call(group_id, decide, refuse)


def on_error(request: DeleteGroupsRequest, version: int, code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    )


API = Api(DeleteGroupsRequest, handle, key=42, versions=(0, 2), on_error=on_error)
