"""DescribeQuorum (key 55), versions 0-2: who keeps the metadata log, and how far each of them is (KIP-595, KIP-836).

Unusual: our metadata log is no Raft log and no topic. A standalone broker answers for it as Kafka would for a quorum of
one: the partition 0 of `__cluster_metadata`, this node its leader and only voter, everything replicated.
"""

from __future__ import annotations

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType, error_text
from klamm.core.errors import ErrorCode
from klamm.metadata.image import Image
from klamm.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

_METADATA_TOPIC = "__cluster_metadata"
_NODES = 2


def handle(ctx: Context, request: DescribeQuorumRequest) -> Answer:
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [(topic.topic_name, p.partition_index) for topic in request.topics for p in topic.partitions]
    if asked != [(_METADATA_TOPIC, 0)]:
        return _unknown(request)
    image = ctx.broker.image
    topic = ResponseTopicData(topic_name=_METADATA_TOPIC, partitions=[_quorum(ctx, image)])
    nodes = _nodes(image) if ctx.api_version >= _NODES else []
    return DescribeQuorumResponse(error_message=None, topics=[topic], nodes=nodes)


def _quorum(ctx: Context, image: Image) -> ResponsePartitionData:
    now_ms = ctx.broker.env.clock.time_ms()
    end_offset = image.offset + 1
    voter = ReplicaState(
        replica_id=image.controller_id,
        log_end_offset=end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return ResponsePartitionData(
        error_message=None,
        leader_id=image.controller_id,
        leader_epoch=image.epoch,
        high_watermark=end_offset,
        current_voters=[voter],
    )


def _nodes(image: Image) -> list[Node]:
    controller = image.brokers.get(image.controller_id)
    if controller is None:
        return []
    listeners = [Listener(name=e.name, host=e.host, port=e.port) for e in controller.endpoints]
    return [Node(node_id=controller.id, listeners=listeners)]


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """There is one quorum; whoever asks for anything else, or for more, gets an error for each."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [
        ResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                ResponsePartitionData(
                    partition_index=p.partition_index, error_code=code, error_message=error_text(code), leader_id=-1
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(error_message=None, topics=topics)


def on_error(request: DescribeQuorumRequest, version: int, code: ErrorCode) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=code, error_message=error_text(code))


API = Api(DescribeQuorumRequest, handle, key=55, versions=(0, 2), on_error=on_error)
