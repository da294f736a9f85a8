"""AlterConfigs and IncrementalAlterConfigs, which differ in their messages and in little else.

Loggers are changed here and now; everything else is a command of the controller. What the client may not change is
left out of both. Results come in the order of the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from klamm.apis.api import Context, Operation, error_text
from klamm.apis.config_resources import ConfigType, check_broker, denial
from klamm.controller import AlteredResource, ResourceChange
from klamm.core.errors import BrokerError, ErrorCode
from klamm.metadata.image import ConfigResource


async def change(ctx: Context, asked: Sequence[ResourceChange], *, validate_only: bool) -> list[AlteredResource]:
    counts = Counter(one.resource for one in asked)
    done: dict[ConfigResource, AlteredResource] = {}
    for one in asked:
        resource = one.resource
        code = denial(ctx, Operation.ALTER_CONFIGS, resource.type, resource.name)
        if code:
            done[resource] = AlteredResource(resource, code, code.text)
        elif resource.type == ConfigType.BROKER_LOGGER and not one.replace and counts[resource] == 1:
            done[resource] = _change_loggers(ctx, one, validate_only)
    rest = [one for one in asked if one.resource not in done]
    if rest:
        altered = await ctx.broker.controller.alter_configs(
            rest, node_id=ctx.broker.node_id, validate_only=validate_only
        )
        done.update((one.resource, one) for one in altered)
    return [done[one.resource] for one in asked]


def _change_loggers(ctx: Context, asked: ResourceChange, validate_only: bool) -> AlteredResource:
    from klamm.apis.broker_loggers import change_loggers

    try:
        check_broker(asked.resource.name, ctx.broker.node_id)
        change_loggers(asked.changes, validate_only=validate_only)
    except BrokerError as error:
        return AlteredResource(asked.resource, error.code, str(error))
    return AlteredResource(asked.resource)


def message_of(result: AlteredResource) -> str | None:
    return error_text(result.error, result.message) if result.error else None


def failed(asked: Sequence[ResourceChange], code: ErrorCode) -> list[AlteredResource]:
    return [AlteredResource(one.resource, code) for one in asked]
