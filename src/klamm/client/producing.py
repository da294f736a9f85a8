"""Produce requests and their answers, in every version: topics have ids from version 13 on, names before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.client.errors import UnsupportedVersion, error_code
from klamm.client.metadata import NO_LEADER, Broker, Leader, Topic
from klamm.client.versions import Versions
from klamm.core.errors import ErrorCode
from klamm.core.ids import NO_TOPIC_ID, TopicPartition
from klamm.records.compression import Codec
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

if TYPE_CHECKING:
    from klamm.client.batches import Batch
    from klamm.client.transactions import Transactions

LAST_WITH_NAMES: Final = 12
LAST_WITHOUT_ADDING: Final = 11
"""Later ones add their partitions to the transaction by themselves (KIP-890)."""
FIRST_WITH_ZSTD: Final = 7

_NEED_NEW_LEADER: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
    )
)
OUT_OF_PLACE: Final = frozenset((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID))
"""The log does not go on where the batch begins, so the batch is not in it; or was so long ago that nobody knows."""
UNSURE: Final = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
"""The batch may be in the log all the same: a leader that has moved on, or lost its disk, while it waited for its
followers says so with the same code as one that never wrote."""


def needs_new_leader(code: ErrorCode) -> bool:
    """Whether metadata should be asked for before the next attempt."""
    return code in _NEED_NEW_LEADER


class Answer(NamedTuple):
    """What a broker says about one batch."""

    code: ErrorCode
    base_offset: int = -1
    log_append_time_ms: int = -1
    message: str | None = None
    leader: Leader = Leader(NO_LEADER, -1)
    """Who leads the partition instead, if the broker says so (KIP-951)."""


def produce_request(
    versions: Versions,
    batches: Sequence[Batch],
    topics: Mapping[str, Topic],
    *,
    acks: int,
    timeout_ms: int,
    codec: Codec,
    transactions: Transactions | None = None,
) -> tuple[ProduceRequest, int]:
    """The request, and the version to send it in. One batch for each partition at most."""
    by_topic: dict[str, TopicProduceData] = {}
    all_ids = True
    for batch in batches:
        place = batch.place
        entry = by_topic.get(place.topic)
        if entry is None:
            topic_id = topics[place.topic].id if place.topic in topics else NO_TOPIC_ID
            all_ids = all_ids and topic_id != NO_TOPIC_ID
            entry = by_topic[place.topic] = TopicProduceData(name=place.topic, topic_id=topic_id, partition_data=[])
        entry.partition_data.append(PartitionProduceData(index=place.partition, records=batch.encoded))
    at_most = None if all_ids else LAST_WITH_NAMES
    if transactions is not None and not transactions.implicit:
        at_most = LAST_WITHOUT_ADDING
    version = versions.best(ProduceRequest, at_most)
    if codec is Codec.ZSTD and version < FIRST_WITH_ZSTD:
        raise UnsupportedVersion(f"The broker at {versions.broker} is too old for zstd.", "Use another codec.")
    name = None if transactions is None else transactions.id
    data = list(by_topic.values())
    return ProduceRequest(transactional_id=name, acks=acks, timeout_ms=timeout_ms, topic_data=data), version


def read_answer(answer: ProduceResponse, request: ProduceRequest) -> dict[TopicPartition, Answer]:
    """The answers by partition."""
    found = {}
    names = {topic.topic_id: topic.name for topic in request.topic_data}
    for topic in answer.responses:
        name = topic.name or names.get(bytes(topic.topic_id), "")
        for partition in topic.partition_responses:
            message = partition.error_message
            if partition.record_errors and partition.record_errors[0].batch_index_error_message:
                message = partition.record_errors[0].batch_index_error_message
            found[TopicPartition(name, partition.index)] = Answer(
                error_code(partition.error_code),
                partition.base_offset,
                partition.log_append_time_ms,
                message,
                Leader(partition.current_leader.leader_id, partition.current_leader.leader_epoch),
            )
    return found


def endpoints(answer: ProduceResponse) -> dict[int, Broker]:
    """Where the leaders are that the answer names."""
    return {node.node_id: Broker(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints}
