"""FindCoordinator (key 10), versions 0-6: which broker coordinates a group or a transaction.

Unusual: the first who asks has the internal topic created, and waits for that; Kafka answers COORDINATOR_NOT_AVAILABLE
meanwhile, and the client comes again. Share groups (v6) have no coordinator here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.coordinator.runtime import Coordinator as Runtime
from klamm.core.errors import ErrorCode
from klamm.metadata.image import NO_LEADER
from klamm.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_BATCHED = 4


class _Kind(NamedTuple):
    """What a key can be."""

    since: int
    resource: ResourceType
    denied: ErrorCode
    runtime: Callable[[Context], Runtime[Any]]


_KINDS = {
    0: _Kind(0, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, lambda ctx: ctx.broker.groups),
    1: _Kind(
        1,
        ResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        lambda ctx: ctx.broker.transactions,
    ),
}


def handle(ctx: Context, request: FindCoordinatorRequest) -> Answer:
    kind = _KINDS.get(request.key_type)
    keys = request.coordinator_keys if ctx.api_version >= _BATCHED else [request.key]
    if kind is None or ctx.api_version < kind.since:
        return _response(ctx, [_failed(key, ErrorCode.INVALID_REQUEST) for key in keys])
    if kind.runtime(ctx).has_topic or not any(_may_ask(ctx, kind, key) for key in keys):
        return _response(ctx, [_find(ctx, kind, key) for key in keys])
    return _create_first(ctx, kind, keys)


async def _create_first(ctx: Context, kind: _Kind, keys: list[str]) -> FindCoordinatorResponse:
    await kind.runtime(ctx).ensure_topic()  # if that failed, there is no coordinator
    return _response(ctx, [_find(ctx, kind, key) for key in keys])


def _may_ask(ctx: Context, kind: _Kind, key: str) -> bool:
    return ctx.authorize(Operation.DESCRIBE, kind.resource, key)


def _find(ctx: Context, kind: _Kind, key: str) -> Coordinator:
    if not _may_ask(ctx, kind, key):
        return _failed(key, kind.denied)
    runtime, image = kind.runtime(ctx), ctx.broker.image
    name, index = runtime.topic.name, runtime.partition_of(key)
    state = image.partition(name, index) if index >= 0 else None
    offline = ctx.broker.replicas.offline  # of this broker; nobody coordinates without a log
    if state is None or state.leader == NO_LEADER or index in offline.get(name, ()):
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = image.brokers.get(state.leader)
    endpoint = None if leader is None else leader.endpoint(ctx.listener)
    if endpoint is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=state.leader, host=endpoint.host, port=endpoint.port)


def _failed(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=code.text)


def _response(ctx: Context, found: list[Coordinator]) -> FindCoordinatorResponse:
    response = _shaped(ctx.api_version, found)
    response.throttle_time_ms = ctx.throttle_time_ms
    return response


def _shaped(version: int, found: list[Coordinator]) -> FindCoordinatorResponse:
    if version >= _BATCHED:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code, error_message=one.error_message, node_id=one.node_id, host=one.host, port=one.port
    )


def on_error(request: FindCoordinatorRequest, version: int, code: ErrorCode) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if version >= _BATCHED else [request.key]
    return _shaped(version, [_failed(key, code) for key in keys])


API = Api(FindCoordinatorRequest, handle, key=10, versions=(0, 6), on_error=on_error)
