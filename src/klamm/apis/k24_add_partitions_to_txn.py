"""AddPartitionsToTxn (key 24), versions 0-5: partitions become part of a transaction.

Unusual:
- Up to v3 it is a client's request for its own transaction. From v4 on it is a broker's, for many of them, and may only
  want to know whether the partitions are in it (KIP-890); a broker adds for clients of transaction protocol 2.
- All partitions of a transaction or none. If one of them cannot be, the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType
from klamm.apis.fencing import fenced
from klamm.apis.gather import gathered
from klamm.coordinator.machine import Now, Outcome, Producer, Reply
from klamm.coordinator.transactions.machine import TxnMachine
from klamm.coordinator.transactions.state import EPOCH_BUMP
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.replica.manager import INTERNAL_TOPICS
from klamm.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

_KNOWS_FENCED = 2
_BROKERS = 4


def handle(ctx: Context, request: AddPartitionsToTxnRequest) -> Answer:
    version = ctx.api_version
    if version >= _BROKERS and not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return on_error(request, version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return gathered([_one(ctx, one) for one in _transactions(request, version)], partial(_response, ctx))


def _transactions(request: AddPartitionsToTxnRequest, version: int) -> Sequence[AddPartitionsToTxnTransaction]:
    if version >= _BROKERS:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _one(ctx: Context, asked: AddPartitionsToTxnTransaction) -> Any:
    """An AddPartitionsToTxnResult, or where it will be."""
    version, transactional_id = ctx.api_version, asked.transactional_id
    if version < _BROKERS and not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _all(asked, version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    partitions = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions]
    impossible = _impossible(ctx, asked.topics)
    if impossible:
        return _result(asked, {one: impossible.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in partitions})
    producer = Producer(asked.producer_id, asked.producer_epoch)
    everything = partial(_all, asked, version)

    def decide(machine: TxnMachine, reply: Reply, now: Now) -> Outcome:
        if asked.verify_only:
            return machine.verify_partitions(
                reply, now, partial(_result, asked), transactional_id, producer, partitions
            )
        protocol = EPOCH_BUMP if version >= _BROKERS else 0
        return machine.add_partitions(reply, now, everything, transactional_id, producer, partitions, version=protocol)

    return ctx.broker.transactions.call(transactional_id, decide, everything)  # type: ignore[arg-type] # a part of one


def _impossible(ctx: Context, topics: Sequence[AddPartitionsToTxnTopic]) -> dict[TopicPartition, ErrorCode]:
    """Partitions that are not there, or that the client may not write to. A broker has looked at that before."""
    image = ctx.broker.image
    found: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        allowed = ctx.api_version >= _BROKERS or (
            topic.name not in INTERNAL_TOPICS and ctx.authorize(Operation.WRITE, ResourceType.TOPIC, topic.name)
        )
        for index in topic.partitions:
            if not allowed:
                found[TopicPartition(topic.name, index)] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(topic.name, index) is None:
                found[TopicPartition(topic.name, index)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found


def _all(asked: AddPartitionsToTxnTransaction, version: int, code: ErrorCode) -> AddPartitionsToTxnResult:
    code = fenced(code, version, since=_KNOWS_FENCED)
    every = [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions]
    return _result(asked, dict.fromkeys(every, code))


def _result(
    asked: AddPartitionsToTxnTransaction, codes: Mapping[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )


def _response(ctx: Context, results: Sequence[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    response = AddPartitionsToTxnResponse(throttle_time_ms=ctx.throttle_time_ms)
    if ctx.api_version >= _BROKERS:
        response.results_by_transaction = list(results)
    else:
        (result,) = results
        response.results_by_topic_v3_and_below = result.topic_results
    return response


def on_error(request: AddPartitionsToTxnRequest, version: int, code: ErrorCode) -> AddPartitionsToTxnResponse:
    if version >= _BROKERS:
        return AddPartitionsToTxnResponse(error_code=code)
    (one,) = _transactions(request, version)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_all(one, version, code).topic_results)


API = Api(AddPartitionsToTxnRequest, handle, key=24, versions=(0, 5), on_error=on_error)
