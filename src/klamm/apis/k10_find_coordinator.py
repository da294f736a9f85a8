"""FindCoordinator (key 10), versions 0-6: which broker coordinates a group or a transaction.

Unusual: there are no coordinators yet, so every key is answered with COORDINATOR_NOT_AVAILABLE, which clients take for
"ask again". The API must be there all the same: librdkafka uses lz4 only with brokers that advertise it.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k10_find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_BATCHED = 4
_GROUP = 0
_TRANSACTION = 1
_KEY_TYPES_SINCE = {_GROUP: 0, _TRANSACTION: 1}


def handle(ctx: Context, request: FindCoordinatorRequest) -> Answer:
    version = ctx.api_version
    keys = request.coordinator_keys if version >= _BATCHED else [request.key]
    codes = [_code(ctx, request.key_type, key) for key in keys]
    response = _response(version, keys, codes)
    response.throttle_time_ms = ctx.throttle_time_ms
    return response


def _code(ctx: Context, key_type: int, key: str) -> ErrorCode:
    if ctx.api_version < _KEY_TYPES_SINCE.get(key_type, ctx.api_version + 1):
        return ErrorCode.INVALID_REQUEST
    if key_type == _GROUP and not ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, key):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == _TRANSACTION and not ctx.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _response(version: int, keys: list[str], codes: list[ErrorCode]) -> FindCoordinatorResponse:
    if version < _BATCHED:
        return FindCoordinatorResponse(error_code=codes[0], error_message=codes[0].text, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=code.text)
            for key, code in zip(keys, codes, strict=True)
        ]
    )


def on_error(request: FindCoordinatorRequest, version: int, code: ErrorCode) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if version >= _BATCHED else [request.key]
    return _response(version, keys, [code] * len(keys))


API = Api(FindCoordinatorRequest, handle, key=10, versions=(0, 6), on_error=on_error)
