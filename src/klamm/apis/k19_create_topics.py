"""CreateTopics (key 19), versions 2-7: make topics, each with an error of its own.

Unusual: the answer comes when the topics are durable in the metadata log and ready for use, so `timeout_ms` has nothing
to limit. From v5 on it says what the topics are like, with every option in force (KIP-525).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.controller import CreatedTopic, NewTopic
from klamm.core.errors import ErrorCode
from klamm.core.options import Source, resolve_all, text_of
from klamm.core.slices import Sliced, in_slices
from klamm.wire.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_DETAILS = 5
_TOPICS_PER_SLICE = 20  # each with some 30 options: 2 ms


async def _create(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    everywhere = ctx.authorize(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    allowed: list[CreatableTopic] = []
    denied: list[CreatableTopic] = []
    for topic in request.topics:
        fine = everywhere or ctx.authorize(Operation.CREATE, ResourceType.TOPIC, topic.name)
        (allowed if fine else denied).append(topic)
    created = await ctx.broker.controller.create_topics([_asked(t) for t in allowed], request.validate_only)
    results = await in_slices(_results(ctx, created))
    results += [_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in dict.fromkeys(t.name for t in denied)]
    return CreateTopicsResponse(throttle_time_ms=ctx.throttle_time_ms, topics=results)


def handle(ctx: Context, request: CreateTopicsRequest) -> Answer:
    return _create(ctx, request)


def _asked(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(a.partition_index, a.broker_ids) for a in topic.assignments],
        [(config.name, config.value) for config in topic.configs],
    )


def _results(ctx: Context, created: Sequence[CreatedTopic]) -> Sliced[list[CreatableTopicResult]]:
    """Most topics have no options of their own, and their list of options in force is the same."""
    common: list[CreatableTopicConfigs] = []
    results: list[CreatableTopicResult] = []
    for topic in created:
        result = _result(ctx, topic)
        if result.num_partitions >= 0:
            if topic.configs:
                result.configs = _in_force(ctx, topic.configs)
            else:
                common = result.configs = common or _in_force(ctx, {})
        results.append(result)
        if len(results) % _TOPICS_PER_SLICE == 0:
            yield
    return results


def _result(ctx: Context, topic: CreatedTopic) -> CreatableTopicResult:
    """Without the options. The number of partitions is there if they are to come."""
    if topic.error:
        return _error(topic.name, topic.error, topic.message)
    result = CreatableTopicResult(name=topic.name, topic_id=topic.topic_id, error_message=None, configs=None)
    if ctx.api_version < _DETAILS:
        return result
    if not ctx.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return result
    result.num_partitions = topic.num_partitions
    result.replication_factor = topic.replication_factor
    return result


def _in_force(ctx: Context, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=one.option.name,
            value=None if one.option.sensitive else text_of(one.value),
            config_source=Source(one.source),
            is_sensitive=one.option.sensitive,
        )
        for one in resolve_all(configs, ctx.broker.options)
    ]


def _error(name: str, code: ErrorCode, message: str | None = None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=error_text(code, message), configs=None)


def on_error(request: CreateTopicsRequest, version: int, code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_error(name, code) for name in dict.fromkeys(t.name for t in request.topics)])


API = Api(CreateTopicsRequest, handle, key=19, versions=(2, 7), on_error=on_error)
