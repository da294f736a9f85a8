"""AlterConfigs (key 33), versions 0-2: what a resource has is replaced by what the request says.

Unusual: what is not in the request is taken back, so two clients undo each other's changes; Kafka has put it aside for
IncrementalAlterConfigs (key 44), and so should clients. Loggers cannot be changed with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.apis.api import Answer, Api, Context
from klamm.apis.config_changes import change, failed, message_of
from klamm.controller import AlteredResource, ConfigChange, ConfigOperation, ResourceChange
from klamm.core.errors import ErrorCode
from klamm.metadata.image import ConfigResource
from klamm.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def _alter(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    results = await change(ctx, _asked(request), validate_only=request.validate_only)
    return AlterConfigsResponse(throttle_time_ms=ctx.throttle_time_ms, responses=_responses(results))


def handle(ctx: Context, request: AlterConfigsRequest) -> Answer:
    return _alter(ctx, request)


def _asked(request: AlterConfigsRequest) -> list[ResourceChange]:
    return [
        ResourceChange(
            ConfigResource(resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, ConfigOperation.SET, config.value) for config in resource.configs],
            replace=True,
        )
        for resource in request.resources
    ]


def _responses(results: Sequence[AlteredResource]) -> list[AlterConfigsResourceResponse]:
    return [
        AlterConfigsResourceResponse(
            error_code=result.error,
            error_message=message_of(result),
            resource_type=result.resource.type,
            resource_name=result.resource.name,
        )
        for result in results
    ]


def on_error(request: AlterConfigsRequest, version: int, code: ErrorCode) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=_responses(failed(_asked(request), code)))


API = Api(AlterConfigsRequest, handle, key=33, versions=(0, 2), on_error=on_error)
