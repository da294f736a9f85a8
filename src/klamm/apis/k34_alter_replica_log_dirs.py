"""AlterReplicaLogDirs (key 34), versions 1-2: move replicas to another folder of this broker (KIP-113).

Unusual: there is one folder. Whoever names it has what it wants; any other is not there.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.replica.log_dirs import log_dir_path
from klamm.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(ctx: Context, request: AlterReplicaLogDirsRequest) -> Answer:
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response = _answer(request, lambda path, topic, index: _check(ctx, path, topic, index))
    response.throttle_time_ms = ctx.throttle_time_ms
    return response


def _check(ctx: Context, path: str, topic: str, index: int) -> ErrorCode:
    replicas = ctx.broker.replicas
    if path.rstrip("/") != log_dir_path(replicas.logs):
        return ErrorCode.LOG_DIR_NOT_FOUND
    state = ctx.broker.image.partition(topic, index)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if ctx.broker.node_id not in state.replicas:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.KAFKA_STORAGE_ERROR if index in replicas.offline.get(topic, ()) else ErrorCode.NONE


def _answer(
    request: AlterReplicaLogDirsRequest, check: Callable[[str, str, int], ErrorCode]
) -> AlterReplicaLogDirsResponse:
    """A topic is answered once, with its partitions of all folders; of a partition the last folder counts."""
    codes: dict[str, dict[int, ErrorCode]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            for index in topic.partitions:
                codes.setdefault(topic.name, {})[index] = check(folder.path, topic.name, index)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in partitions.items()
                ],
            )
            for name, partitions in codes.items()
        ]
    )


def on_error(request: AlterReplicaLogDirsRequest, version: int, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    return _answer(request, lambda path, topic, index: code)


API = Api(AlterReplicaLogDirsRequest, handle, key=34, versions=(1, 2), on_error=on_error)
