"""DeleteRecords (key 21), versions 0-2: delete the oldest records of partitions, up to an offset (KIP-107).

Unusual: offset -1 is the high watermark. The low watermark of the answer is the smallest log start among the replicas;
it is durable when the answer comes, so `timeout_ms` has nothing to limit. A topic that only compacts keeps its records.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.replica.deletion import DeletedBelow
from klamm.wire.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(ctx: Context, request: DeleteRecordsRequest) -> Answer:
    return _delete(ctx, request)


async def _delete(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    allowed = [topic for topic in request.topics if ctx.authorize(Operation.DELETE, ResourceType.TOPIC, topic.name)]
    asked = [(topic.name, p.partition_index, p.offset) for topic in allowed for p in topic.partitions]
    results = dict(zip(asked, await ctx.broker.replicas.delete_records(asked), strict=True))
    denied = DeletedBelow(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _result(p.partition_index, results.get((topic.name, p.partition_index, p.offset), denied))
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DeleteRecordsResponse(throttle_time_ms=ctx.throttle_time_ms, topics=topics)


def _result(index: int, deleted: DeletedBelow) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=deleted.low_watermark, error_code=deleted.error
    )


def on_error(request: DeleteRecordsRequest, version: int, code: ErrorCode) -> DeleteRecordsResponse:
    failed = DeletedBelow(error=code)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=t.name, partitions=[_result(p.partition_index, failed) for p in t.partitions])
            for t in request.topics
        ]
    )


API = Api(DeleteRecordsRequest, handle, key=21, versions=(0, 2), on_error=on_error)
