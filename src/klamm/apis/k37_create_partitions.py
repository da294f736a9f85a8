"""CreatePartitions (key 37), versions 0-3: let topics have more partitions, each topic with an error of its own.

Unusual: `count` is what the topic has afterwards, not what is added. The answer comes when the partitions are durable
in the metadata log and ready for use, so `timeout_ms` has nothing to limit.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType, error_text
from klamm.controller.partitions import GrownTopic, MorePartitions, create_partitions
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(ctx: Context, request: CreatePartitionsRequest) -> Answer:
    return _create(ctx, request)


async def _create(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    allowed: list[MorePartitions] = []
    denied: dict[str, None] = {}
    for topic in request.topics:
        if ctx.authorize(Operation.ALTER, ResourceType.TOPIC, topic.name):
            allowed.append(_asked(topic))
        else:
            denied[topic.name] = None
    rng = ctx.broker.env.rng
    grown = await ctx.broker.controller.run(
        lambda image: create_partitions(image, allowed, rng=rng, validate_only=request.validate_only)
    )
    results = [_result(topic) for topic in grown]
    results += [_result(GrownTopic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)) for name in denied]
    return CreatePartitionsResponse(throttle_time_ms=ctx.throttle_time_ms, results=results)


def _asked(topic: CreatePartitionsTopic) -> MorePartitions:
    given = topic.assignments
    return MorePartitions(topic.name, topic.count, None if given is None else [one.broker_ids for one in given])


def _result(topic: GrownTopic) -> CreatePartitionsTopicResult:
    message = error_text(topic.error, topic.message) if topic.error else None
    return CreatePartitionsTopicResult(name=topic.name, error_code=topic.error, error_message=message)


def on_error(request: CreatePartitionsRequest, version: int, code: ErrorCode) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(results=[_result(GrownTopic(name, code)) for name in names])


API = Api(CreatePartitionsRequest, handle, key=37, versions=(0, 3), on_error=on_error)
