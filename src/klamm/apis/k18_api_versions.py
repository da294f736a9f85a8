"""ApiVersions (key 18), versions 0-4: which APIs and features there are, derived from the registry.

Unusual: a client may open with a version that we do not have, because it cannot know; the dispatcher then answers, in
version 0, which ones there are (KIP-511). Features whose lowest level is 0 are left out before v4, because older
clients take them for an error (KIP-1022). Answers are kept in their encoded form (see versions_cache).
"""

from __future__ import annotations

import re

from klamm import wire
from klamm.apis.api import Answer, Api, Context
from klamm.apis.versions_cache import MAX_REQUEST_BYTES, Greeting
from klamm.core.errors import ErrorCode
from klamm.metadata.image import Image
from klamm.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = 3  # client software name and version, and features, came with this version
_LEVEL_ZERO = 4

_software_name = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: Context, request: ApiVersionsRequest) -> Answer:
    response = ApiVersionsResponse(throttle_time_ms=ctx.throttle_time_ms)
    if ctx.api_version >= _SOFTWARE:
        name, version = request.client_software_name, request.client_software_version
        if not _software_name.fullmatch(name) or not _software_name.fullmatch(version):
            response.error_code = ErrorCode.INVALID_REQUEST
            return response
        ctx.peer.software_name, ctx.peer.software_version = name, version
        _add_features(response, ctx.broker.image, ctx.broker.node_id, ctx.api_version)
    response.api_keys = [_entry(api) for api in ctx.broker.apis]
    return response


def shortcut(ctx: Context, frame: memoryview, body: int) -> bytes | None:
    """What another client of the same kind was answered."""
    if ctx.throttle_time_ms or len(frame) - body > MAX_REQUEST_BYTES:
        return None
    cache, version, said = ctx.broker.versions_cache, ctx.api_version, frame[body:].tobytes()
    greeting = cache.get(ctx.broker.image, version, said)
    if greeting is None:
        greeting = _fresh(ctx, said)
        if greeting is None:
            return None
        cache.put(version, said, greeting)
    elif version >= _SOFTWARE:
        ctx.peer.software_name, ctx.peer.software_version = greeting.software_name, greeting.software_version
    return greeting.answer


def _fresh(ctx: Context, said: bytes) -> Greeting | None:
    try:
        request = wire.decode(ApiVersionsRequest, said, ctx.api_version, allow_trailing=True)
    except wire.ProtocolError:
        return None  # the dispatcher finds it again
    answer = handle(ctx, request)
    if not isinstance(answer, ApiVersionsResponse) or answer.error_code:
        return None
    return Greeting(request.client_software_name, request.client_software_version, wire.encode(answer, ctx.api_version))


def _entry(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.advertised.first, max_version=api.advertised.last)


def _add_features(response: ApiVersionsResponse, image: Image, node_id: int, version: int) -> None:
    us = image.brokers.get(node_id)
    if us is not None:
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, low, high in us.features
            if low > 0 or version >= _LEVEL_ZERO
        ]
    response.finalized_features_epoch = image.offset
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in sorted(image.features.items())
    ]


def on_error(request: ApiVersionsRequest, version: int, code: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code)


API = Api(ApiVersionsRequest, handle, key=18, versions=(0, 4), on_error=on_error, shortcut=shortcut)
