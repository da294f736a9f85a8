"""DescribeConfigs (key 32), versions 1-4: the options of topics, brokers, groups, and the levels of loggers.

Unusual: a broker answers for itself alone, so a client has to ask each one; with an empty name it says what was set for
all brokers. Options without effect are listed too, and their documentation (v3) says so. What the client may not see
comes last in the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.apis.api import Answer, Api, Context, Operation, error_text
from klamm.apis.broker_loggers import described_loggers
from klamm.apis.config_entries import (
    Wanted,
    broker_entry,
    broker_names,
    client_metrics_entry,
    default_entry,
    group_entry,
    topic_entry,
)
from klamm.apis.config_resources import ConfigType, check_broker, chosen, denial
from klamm.controller import problem_with_name
from klamm.core.errors import BrokerError, ErrorCode
from klamm.core.options import Source, topic_option_names
from klamm.core.slices import Sliced, in_slices
from klamm.metadata.image import ConfigResource
from klamm.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

_Entries = list[DescribeConfigsResourceResult]


def handle(ctx: Context, request: DescribeConfigsRequest) -> Answer:
    return _describe(ctx, request)


async def _describe(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = await in_slices(_results(ctx, request))
    return DescribeConfigsResponse(throttle_time_ms=ctx.throttle_time_ms, results=results)


def _results(ctx: Context, request: DescribeConfigsRequest) -> Sliced[list[DescribeConfigsResult]]:
    """A topic takes half a millisecond, a broker some: the loop has its turn after each."""
    want = Wanted(request.include_synonyms, request.include_documentation)
    results, denied = [], []
    for asked in request.resources:
        code = denial(ctx, Operation.DESCRIBE_CONFIGS, asked.resource_type, asked.resource_name)
        if code:
            denied.append(_error(asked, code))
        else:
            results.append(_result(ctx, asked, want))
        yield
    return results + denied


def _result(ctx: Context, asked: DescribeConfigsResource, want: Wanted) -> DescribeConfigsResult:
    describe = _DESCRIBERS.get(asked.resource_type)
    try:
        if describe is None:
            message = f"there is no resource type {asked.resource_type} that has options"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        configs = describe(ctx, asked, want)
    except BrokerError as error:
        return _error(asked, error.code, str(error))
    return DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name, configs=configs)


def _topic(ctx: Context, asked: DescribeConfigsResource, want: Wanted) -> _Entries:
    problem = problem_with_name(asked.resource_name)
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    image = ctx.broker.image
    if asked.resource_name not in image.topics:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.resource_name}")
    configs, options = image.topic_configs(asked.resource_name), ctx.broker.options
    names = chosen(topic_option_names(configs), asked.configuration_keys)
    return [topic_entry(name, configs, options, want) for name in names]


def _broker(ctx: Context, asked: DescribeConfigsResource, want: Wanted) -> _Entries:
    check_broker(asked.resource_name, ctx.broker.node_id, all_allowed=True)
    options = ctx.broker.options
    if not asked.resource_name:
        names = sorted(options.layers.get(Source.DYNAMIC_DEFAULT, ()))
        return [default_entry(name, options, want) for name in chosen(names, asked.configuration_keys)]
    return [broker_entry(name, options, want) for name in chosen(broker_names(options), asked.configuration_keys)]


def _logger(ctx: Context, asked: DescribeConfigsResource, want: Wanted) -> _Entries:
    check_broker(asked.resource_name, ctx.broker.node_id)
    levels = described_loggers()
    return [
        DescribeConfigsResourceResult(
            name=name, value=levels[name], config_source=Source.BROKER_LOGGER, documentation=None
        )
        for name in chosen(levels, asked.configuration_keys)
    ]


def _client_metrics(ctx: Context, asked: DescribeConfigsResource, want: Wanted) -> _Entries:
    from klamm.core.options.client_metrics import CLIENT_METRICS_OPTIONS

    if not asked.resource_name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a subscription of client metrics needs a name")
    configs = ctx.broker.image.configs.get(ConfigResource(ConfigType.CLIENT_METRICS, asked.resource_name), {})
    names = chosen(CLIENT_METRICS_OPTIONS, asked.configuration_keys)
    return [client_metrics_entry(CLIENT_METRICS_OPTIONS[name], configs, want) for name in names]


def _group(ctx: Context, asked: DescribeConfigsResource, want: Wanted) -> _Entries:
    from klamm.core.options.groups import GROUP_OPTIONS

    if not asked.resource_name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "name a group; options for all groups are those of the broker")
    configs = ctx.broker.image.configs.get(ConfigResource(ConfigType.GROUP, asked.resource_name), {})
    names = chosen(GROUP_OPTIONS, asked.configuration_keys)
    return [group_entry(GROUP_OPTIONS[name], configs, ctx.broker.options, want) for name in names]


_DESCRIBERS: dict[int, Callable[[Context, DescribeConfigsResource, Wanted], _Entries]] = {
    ConfigType.TOPIC: _topic,
    ConfigType.BROKER: _broker,
    ConfigType.BROKER_LOGGER: _logger,
    ConfigType.CLIENT_METRICS: _client_metrics,
    ConfigType.GROUP: _group,
}


def _error(asked: DescribeConfigsResource, code: ErrorCode, message: str | None = None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=error_text(code, message),
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[],
    )


def on_error(request: DescribeConfigsRequest, version: int, code: ErrorCode) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_error(asked, code) for asked in request.resources])


API = Api(DescribeConfigsRequest, handle, key=32, versions=(1, 4), on_error=on_error)
