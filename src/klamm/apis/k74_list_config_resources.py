"""ListConfigResources (key 74), versions 0-1: the names of what has options.

Unusual: topics, brokers and their loggers are listed whether anything is set for them or not; groups and subscriptions
of client metrics only where something is. Version 0 knows client metrics alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType
from klamm.apis.config_resources import ConfigType
from klamm.core.errors import ErrorCode
from klamm.metadata.image import Image
from klamm.wire.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_KNOWN = frozenset(ConfigType)


def handle(ctx: Context, request: ListConfigResourcesRequest) -> Answer:
    if not ctx.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [int(ConfigType.CLIENT_METRICS)] if ctx.api_version == 0 else request.resource_types or list(ConfigType)
    if any(number not in _KNOWN for number in asked):
        return on_error(request, ctx.api_version, ErrorCode.UNSUPPORTED_VERSION)
    image = ctx.broker.image
    found = [
        ConfigResource(resource_name=name, resource_type=number)
        for number in dict.fromkeys(asked)
        for name in _names(image, number)
    ]
    return ListConfigResourcesResponse(throttle_time_ms=ctx.throttle_time_ms, config_resources=found)


def _names(image: Image, number: int) -> Iterable[str]:
    if number == ConfigType.TOPIC:
        return image.topics
    if number in (ConfigType.BROKER, ConfigType.BROKER_LOGGER):
        return [str(broker) for broker in sorted(image.brokers)]
    return [resource.name for resource in image.configs if resource.type == number]


def on_error(request: ListConfigResourcesRequest, version: int, code: ErrorCode) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code, config_resources=[])


API = Api(ListConfigResourcesRequest, handle, key=74, versions=(0, 1), on_error=on_error)
