"""DescribeProducers (key 61), version 0: the idempotent and transactional producers that partitions know (KIP-664).

Unusual: what a partition's leader remembers, not what is connected: producers that were idle for
`producer.id.expiration.ms` are forgotten. Many may be known, so the answer is made in slices.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType, error_text
from klamm.controller.names import is_valid_topic_name
from klamm.core.errors import ErrorCode
from klamm.core.slices import Sliced, in_slices
from klamm.log.producer_state import Producer
from klamm.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

_PRODUCERS_PER_SLICE = 500


def handle(ctx: Context, request: DescribeProducersRequest) -> Answer:
    return in_slices(_describe(ctx, request))


def _describe(ctx: Context, request: DescribeProducersRequest) -> Sliced[DescribeProducersResponse]:
    response = DescribeProducersResponse(throttle_time_ms=ctx.throttle_time_ms)
    for topic in request.topics:
        code = _topic_error(ctx, topic.name)
        answer = TopicResponse(name=topic.name)
        response.topics.append(answer)
        for index in topic.partition_indexes:
            if code:
                answer.partitions.append(_error(index, code))
            else:
                answer.partitions.append((yield from _partition(ctx, topic.name, index)))
    return response


def _topic_error(ctx: Context, name: str) -> ErrorCode:
    if not is_valid_topic_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not ctx.authorize(Operation.READ, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if name in ctx.broker.image.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partition(ctx: Context, topic: str, index: int) -> Sliced[PartitionResponse]:
    partition = ctx.broker.replicas.find(topic, index)
    if partition is None:
        return _error(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known = () if partition.log is None else tuple(partition.log.producers.items())
    if code := partition.available():  # after the look at the log, which may have found it damaged
        return _error(index, code)
    answer = PartitionResponse(partition_index=index)
    for start in range(0, len(known), _PRODUCERS_PER_SLICE):
        answer.active_producers += _states(known[start : start + _PRODUCERS_PER_SLICE])
        yield
    return answer


def _states(known: Iterable[tuple[int, Producer]]) -> list[ProducerState]:
    states = []
    for producer_id, producer in known:
        batches = list(producer.batches())  # five at most; none after a marker
        states.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=batches[-1].last_sequence if batches else -1,
                last_timestamp=batches[-1].timestamp if batches else producer.seen_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
        )
    return states


def _error(index: int, code: ErrorCode) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, error_message=error_text(code))


def on_error(request: DescribeProducersRequest, version: int, code: ErrorCode) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=topic.name, partitions=[_error(index, code) for index in topic.partition_indexes])
            for topic in request.topics
        ]
    )


API = Api(DescribeProducersRequest, handle, key=61, versions=(0, 0), on_error=on_error)
