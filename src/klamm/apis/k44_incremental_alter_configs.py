"""IncrementalAlterConfigs (key 44), versions 0-1: set, take back, append to or subtract from single options.

The answer comes when the change is durable and in force. All changes of a resource are made, or none.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.apis.api import Answer, Api, Context
from klamm.apis.config_changes import change, failed, message_of
from klamm.controller import AlteredResource, ConfigChange, ResourceChange
from klamm.core.errors import ErrorCode
from klamm.metadata.image import ConfigResource
from klamm.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def _alter(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    results = await change(ctx, _asked(request), validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(throttle_time_ms=ctx.throttle_time_ms, responses=_responses(results))


def handle(ctx: Context, request: IncrementalAlterConfigsRequest) -> Answer:
    return _alter(ctx, request)


def _asked(request: IncrementalAlterConfigsRequest) -> list[ResourceChange]:
    return [
        ResourceChange(
            ConfigResource(resource.resource_type, resource.resource_name),
            [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs],
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


def on_error(request: IncrementalAlterConfigsRequest, version: int, code: ErrorCode) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=_responses(failed(_asked(request), code)))


API = Api(IncrementalAlterConfigsRequest, handle, key=44, versions=(0, 1), on_error=on_error)
