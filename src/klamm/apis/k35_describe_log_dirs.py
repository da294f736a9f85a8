"""DescribeLogDirs (key 35), versions 1-5: the data folder, how full its disk is, and the partitions in it (KIP-113).

Unusual: null asks for all partitions. What the broker does not have is left out of the answer, without an error. A
partition without a record has size 0, whether its files exist or not. There is one folder, and nothing is ever moved
into another; so no partition is a future one, and none of them lags.
"""

from __future__ import annotations

from collections.abc import Iterator

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.replica.log_dirs import LogDir, describe_log_dir, log_dir_path
from klamm.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(ctx: Context, request: DescribeLogDirsRequest) -> Answer:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _describe(ctx, request)


async def _describe(ctx: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    logs = ctx.broker.replicas.logs
    try:
        found = await describe_log_dir(logs, dict.fromkeys(_wanted(ctx, request)))
    except OSError:
        result = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir_path(logs))
    else:
        result = _result(found)
    return DescribeLogDirsResponse(throttle_time_ms=ctx.throttle_time_ms, results=[result])


def _wanted(ctx: Context, request: DescribeLogDirsRequest) -> Iterator[tuple[str, int]]:
    """The partitions that are asked for, as far as this broker keeps them."""
    image, us = ctx.broker.image, ctx.broker.node_id
    if request.topics is None:
        for topic in image.topics.values():
            yield from ((topic.name, index) for index, state in enumerate(topic.partitions) if us in state.replicas)
        return
    for asked in request.topics:
        for index in asked.partitions:
            state = image.partition(asked.topic, index)
            if state is not None and us in state.replicas:
                yield asked.topic, index


def _result(found: LogDir) -> DescribeLogDirsResult:
    topics = [
        DescribeLogDirsTopic(
            name=topic,
            partitions=[
                DescribeLogDirsPartition(partition_index=index, partition_size=size) for index, size in sizes.items()
            ],
        )
        for topic, sizes in found.sizes.items()
    ]
    return DescribeLogDirsResult(
        log_dir=found.path, topics=topics, total_bytes=found.total_bytes, usable_bytes=found.usable_bytes
    )


def on_error(request: DescribeLogDirsRequest, version: int, code: ErrorCode) -> DescribeLogDirsResponse:
    """Before v3 there is no room for the error: there are simply no folders."""
    return DescribeLogDirsResponse(error_code=code)


API = Api(DescribeLogDirsRequest, handle, key=35, versions=(1, 5), on_error=on_error)
