"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates, by state (v4) and type (v5) if wanted.

Unusual: while a part of the groups is still loading there is no answer but COORDINATOR_LOAD_IN_PROGRESS: a list that
lacks groups looks like one that is whole. For the same reason it is held back until what it shows is committed. Who may
not describe the cluster sees the groups that it may describe.
"""

from __future__ import annotations

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType
from klamm.coordinator.groups.listing import listed
from klamm.core.errors import ErrorCode
from klamm.core.slices import Sliced, in_slices
from klamm.wire.messages.k16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_GROUPS_PER_SLICE = 500


def handle(ctx: Context, request: ListGroupsRequest) -> Answer:
    if ctx.broker.groups.loading:
        return _error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ctx.throttle_time_ms)
    return _answer(ctx, request)


async def _answer(ctx: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    response = await in_slices(_list(ctx, request))
    lost = await ctx.broker.groups.settled()
    return _error(lost, ctx.throttle_time_ms) if lost else response


def _list(ctx: Context, request: ListGroupsRequest) -> Sliced[ListGroupsResponse]:
    states = {state.strip().lower() for state in request.states_filter}
    types = {name.strip().lower() for name in request.types_filter}
    sees_all = ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    there = [group for _, machine in ctx.broker.groups.shards() for group in machine.groups.values()]
    found: list[ListedGroup] = []
    for first in range(0, len(there), _GROUPS_PER_SLICE):
        part = listed(there[first : first + _GROUPS_PER_SLICE], states, types)
        found += (group for group in part if sees_all or _may_see(ctx, group))
        yield
    return ListGroupsResponse(throttle_time_ms=ctx.throttle_time_ms, groups=found)


def _may_see(ctx: Context, group: ListedGroup) -> bool:
    return ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)


def _error(code: ErrorCode, throttle_time_ms: int = 0) -> ListGroupsResponse:
    return ListGroupsResponse(throttle_time_ms=throttle_time_ms, error_code=code)


def on_error(request: ListGroupsRequest, version: int, code: ErrorCode) -> ListGroupsResponse:
    return _error(code)


API = Api(ListGroupsRequest, handle, key=16, versions=(0, 5), on_error=on_error)
