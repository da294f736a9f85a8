"""WriteTxnMarkers, and what fetches and offsets look like with transactions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.apis.api import CLUSTER_NAME, Operation, Pending, ResourceType
from klamm.core.errors import ErrorCode
from klamm.records.batch import read_header
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from klamm.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest

COMMITTED = 1


def marker(
    *indexes: int,
    producer_id: int = 7,
    epoch: int = 0,
    commit: bool = True,
    topic: str = "t",
    coordinator_epoch: int = 0,
    version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


async def write(node: Any, *markers: WritableTxnMarker, version: int = 2) -> list[int]:
    response = await node.call(WriteTxnMarkersRequest(markers=list(markers)), version)
    return [p.error_code for m in response.markers for topic in m.topics for p in topic.partitions]


def produce(
    node: Any, tools: Any, value: bytes, *, sequence: int = 0, producer_id: int = 7, epoch: int = 0, index: int = 0
) -> None:
    """A batch of a transaction that its coordinator knows of."""
    records = tools.batch(
        value, transactional=True, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    partition = node.partition(index=index)
    verification = partition.verification(read_header(records), adds=False)
    if verification is not None:
        partition.confirm(verification)
    result = partition.append(bytearray(records), -1, in_transaction=True)
    assert not hasattr(result, "code"), result
    partition.wake()


def fetch(offset: int = 0, *, committed: bool = True, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        isolation_level=COMMITTED if committed else 0,
        min_bytes=1,
        max_bytes=1 << 20,
        max_wait_ms=max_wait_ms,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )


async def fetched(node: Any, request: FetchRequest, version: int = 12) -> Any:
    ((partition,),) = (topic.partitions for topic in (await node.call(request, version)).responses)
    return partition


async def latest(node: Any, *, committed: bool) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=COMMITTED if committed else 0,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    )
    ((partition,),) = (topic.partitions for topic in (await node.call(request, 7)).topics)
    return int(partition.offset)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_ends_the_transaction_in_each_of_its_partitions(
    node: Any, tools: Any, version: int, commit: bool
) -> None:
    await node.create(partitions=2)
    for index in (0, 1):
        produce(node, tools, b"a", index=index)
    assert await latest(node, committed=True) == 0
    assert await latest(node, committed=False) == 1
    assert await write(node, marker(0, 1, commit=commit), version=version) == [ErrorCode.NONE] * 2
    for index in (0, 1):
        log = node.partition(index=index).log
        assert log.last_stable_offset(log.end_offset) == log.end_offset == 2
    assert await latest(node, committed=True) == 2


async def test_aborted_records_are_sent_and_named_and_open_ones_are_not_sent(node: Any, tools: Any) -> None:
    await node.create()
    produce(node, tools, b"a")
    produce(node, tools, b"b", producer_id=8)
    await write(node, marker(0, commit=False))
    produce(node, tools, b"c", sequence=1)
    answer = await fetched(node, fetch())
    assert answer.last_stable_offset == 1 and answer.high_watermark == 4
    assert tools.values_of(answer.records) == [b"a"]
    assert [(a.producer_id, a.first_offset) for a in answer.aborted_transactions] == [(7, 0)]
    await write(node, marker(0, producer_id=8), marker(0))
    answer = await fetched(node, fetch())
    assert answer.last_stable_offset == answer.high_watermark == 6
    assert [(a.producer_id, a.first_offset) for a in answer.aborted_transactions] == [(7, 0)]
    answer = await fetched(node, fetch(3))
    assert answer.aborted_transactions == []
    answer = await fetched(node, fetch(committed=False))
    assert answer.aborted_transactions is None
    assert len(tools.values_of(answer.records)) == 6


@pytest.mark.parametrize("committed", [True, False])
async def test_a_fetch_of_committed_records_waits_for_the_marker(node: Any, tools: Any, committed: bool) -> None:
    await node.create()
    held = node.begin(fetch(committed=committed, max_wait_ms=20_000), 12)
    assert isinstance(held, Pending)
    produce(node, tools, b"a")
    await asyncio.sleep(0)  # what is held is answered on the next turn of the loop
    assert held.done != committed
    await write(node, marker(0))
    await asyncio.sleep(0)
    assert held.done


async def test_a_hanging_transaction_is_seen_and_can_be_ended(node: Any, tools: Any) -> None:
    await node.create()
    node.append(b"before")
    produce(node, tools, b"a")
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])

    async def state() -> Any:
        (topic,) = (await node.call(request, 0)).topics
        return topic.partitions[0].active_producers[0]

    before = await state()
    assert (before.producer_id, before.current_txn_start_offset, before.coordinator_epoch) == (7, 1, -1)
    assert await write(node, marker(0, commit=False), version=1) == [ErrorCode.NONE]
    after = await state()
    assert (after.current_txn_start_offset, after.coordinator_epoch) == (-1, 0)


async def test_errors_are_for_each_partition(node: Any, tools: Any) -> None:
    await node.create()
    produce(node, tools, b"a", epoch=3)
    assert await write(
        node,
        marker(0, 9, epoch=2),
        marker(0, topic="unknown"),
        marker(0, epoch=3, coordinator_epoch=5),
        marker(0, epoch=3, coordinator_epoch=4),
    ) == [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ]


async def test_a_marker_of_version_2_brings_the_next_epoch(node: Any, tools: Any) -> None:
    await node.create()
    produce(node, tools, b"a")
    assert await write(node, marker(0, epoch=0, version=2)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await write(node, marker(0, epoch=1, version=2)) == [ErrorCode.NONE]
    assert await write(node, marker(0, epoch=1, version=2)) == [ErrorCode.NONE]  # the same again does no harm
    stale = tools.batch(b"b", transactional=True, producer_id=7, producer_epoch=0, base_sequence=1)
    refused = node.partition().append(bytearray(stale), -1, in_transaction=True)
    assert refused.code == ErrorCode.INVALID_PRODUCER_EPOCH
    produce(node, tools, b"b", epoch=1)


async def test_markers_go_into_the_topic_of_offsets_through_its_coordinator(node: Any) -> None:
    assert await node.broker.groups.ensure_topic() == ErrorCode.NONE
    assert await write(node, marker(3, topic="__consumer_offsets")) == [ErrorCode.NONE]
    partition = node.broker.replicas.find("__consumer_offsets", 3)
    assert partition.high_watermark == 1
    node.broker.groups.close()
    assert await write(node, marker(3, topic="__consumer_offsets")) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_administrators_and_brokers_may_write_markers_and_nobody_else(node: Any, tools: Any) -> None:
    await node.create()
    either = [(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)]
    both = [*either, (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)]
    node.broker.authorizer = tools.deny(*both)
    assert await write(node, marker(0)) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    node.broker.authorizer = tools.deny(*either)
    assert await write(node, marker(0)) == [ErrorCode.NONE]
