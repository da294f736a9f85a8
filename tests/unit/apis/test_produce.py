"""Produce: what is appended, what is refused, and when the answer comes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.apis.api import Hangup, Operation, Pending, ResourceType
from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.records.compression import Codec
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

VERSIONS = range(3, 14)


def produce(
    *parts: tuple[int, bytes | None], topic: str = "t", topic_id: bytes = ZERO_UUID, acks: int = -1
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)],
    )


def only(response: Any) -> Any:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_batch_is_appended_at_every_version(node: Any, tools: Any, version: int) -> None:
    topic_id = await node.create()
    request = produce((0, tools.batch(b"a", b"b")), topic_id=topic_id)
    first = only(await node.call(request, version))
    second = only(await node.call(request, version))
    assert (first.error_code, first.base_offset, first.log_append_time_ms) == (ErrorCode.NONE, 0, -1)
    assert second.base_offset == 2
    assert node.partition().high_watermark == 4
    if version >= 5:
        assert first.log_start_offset == 0


@pytest.mark.parametrize("acks", [-1, 1])
async def test_partitions_succeed_and_fail_apart(node: Any, tools: Any, acks: int) -> None:
    await node.create(partitions=2)
    damaged = bytearray(tools.batch(b"x"))
    damaged[-1] ^= 1
    request = produce(
        (0, tools.batch(b"a")), (1, bytes(damaged)), (2, tools.batch(b"a")), (1, tools.batch(b"b")), acks=acks
    )
    (topic,) = (await node.call(request, 9)).responses
    assert [(p.index, p.error_code, p.base_offset) for p in topic.partition_responses] == [
        (0, ErrorCode.NONE, 0),
        (1, ErrorCode.CORRUPT_MESSAGE, -1),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (1, ErrorCode.NONE, 0),
    ]
    assert topic.partition_responses[1].error_message


async def test_a_topic_or_an_id_that_is_not_there(node: Any, tools: Any) -> None:
    assert only(await node.call(produce((0, tools.batch(b"a"))), 9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = produce((0, tools.batch(b"a")), topic_id=b"x" * 16)
    assert only(await node.call(by_id, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    topic_id = await node.create()
    no_partition = produce((7, tools.batch(b"a")), topic_id=topic_id)
    assert only(await node.call(no_partition, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_unknown_acks_are_refused_and_nothing_is_appended(node: Any, tools: Any, acks: int) -> None:
    await node.create()
    request = produce((0, tools.batch(b"a")), acks=acks)
    assert only(await node.call(request, 9)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert node.partition().high_watermark == 0


async def test_acks_0_gets_no_answer(node: Any, tools: Any) -> None:
    await node.create()
    assert await node.call(produce((0, tools.batch(b"a")), acks=0), 9) is None
    assert node.partition().high_watermark == 1


async def test_an_error_with_acks_0_closes_the_connection(node: Any, tools: Any) -> None:
    request = produce((0, tools.batch(b"a")), acks=0)
    with pytest.raises(Hangup, match="UNKNOWN_TOPIC_OR_PARTITION"):
        node.begin(request, 9)
    assert node.api(request).on_error(request, 9, ErrorCode.UNKNOWN_SERVER_ERROR) is None


@pytest.mark.parametrize("records", [None, b""])
async def test_missing_records_are_an_invalid_record(node: Any, records: bytes | None) -> None:
    await node.create()
    assert only(await node.call(produce((0, records)), 9)).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("version", VERSIONS)
async def test_zstd_is_for_requests_that_know_it(node: Any, tools: Any, version: int) -> None:
    topic_id = await node.create()
    records = tools.batch(b"x" * 100, codec=Codec.ZSTD)
    answer = only(await node.call(produce((0, records), topic_id=topic_id), version))
    assert answer.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else ErrorCode.NONE)
    assert node.partition().high_watermark == (0 if version < 7 else 1)


async def test_a_transactional_batch_is_refused_if_the_request_names_no_transaction(node: Any, tools: Any) -> None:
    await node.create()
    records = tools.batch(b"a", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    answer = only(await node.call(produce((0, records)), 9))
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert node.partition().high_watermark == 0


async def test_a_batch_above_max_message_bytes_is_too_large(node: Any, tools: Any) -> None:
    await node.create(max_message_bytes="200")
    answer = only(await node.call(produce((0, tools.batch(b"x" * 500))), 9))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_log_append_time_is_told(node: Any, tools: Any) -> None:
    await node.create(message_timestamp_type="LogAppendTime")
    before = node.env.clock.time_ms()
    answer = only(await node.call(produce((0, tools.batch(b"a"))), 9))
    assert before <= answer.log_append_time_ms <= node.env.clock.time_ms()


async def test_a_duplicate_is_answered_with_its_first_offset(node: Any, tools: Any) -> None:
    await node.create()
    node.append(b"before")
    records = tools.batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        answer = only(await node.call(produce((0, records)), 9))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
    gap = tools.batch(b"a", producer_id=7, producer_epoch=0, base_sequence=5)
    assert only(await node.call(produce((0, gap)), 9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_too_small_an_isr_refuses_acks_all_only(node: Any, tools: Any) -> None:
    await node.create(min_insync_replicas="2")
    partition = node.partition()
    partition.lead(partition.log, 1, 0, isr_size=1, min_isr=2, followers=(2,))
    refused = only(await node.call(produce((0, tools.batch(b"a"))), 9))
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert only(await node.call(produce((0, tools.batch(b"a")), acks=1), 9)).error_code == ErrorCode.NONE


async def test_no_more_replicas_are_asked_for_than_the_partition_has(node: Any, tools: Any) -> None:
    await node.create(min_insync_replicas="2")
    assert only(await node.call(produce((0, tools.batch(b"a"))), 9)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [9, 10, 13])
async def test_a_wrong_leader_is_answered_with_the_right_one(node: Any, tools: Any, version: int) -> None:
    topic_id = await node.create()
    node.partition().stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 5)
    response = await node.call(produce((0, tools.batch(b"a")), topic_id=topic_id), version, "OTHER")
    answer = only(response)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version >= 10:
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 5)
        assert [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints] == [(1, "outside", 9093, "r1")]


async def test_a_principal_that_may_not_write(node: Any, tools: Any) -> None:
    topic_id = await node.create()
    node.broker.authorizer = tools.deny((Operation.WRITE, ResourceType.TOPIC, "t"))
    for version in (9, 13):
        answer = only(await node.call(produce((0, tools.batch(b"a")), topic_id=topic_id), version))
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert node.partition().high_watermark == 0


async def test_an_internal_topic_is_not_for_clients(node: Any, tools: Any) -> None:
    await node.create("__consumer_offsets")
    answer = only(await node.call(produce((0, tools.batch(b"a")), topic="__consumer_offsets"), 9))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_deleted_topic_takes_nothing(node: Any, tools: Any) -> None:
    from klamm.controller import TopicToDelete

    await node.create()
    request = produce((0, tools.batch(b"a")))
    await node.call(request, 9)
    await node.controller.delete_topics([TopicToDelete("t")])
    assert only(await node.call(request, 9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await node.create()
    assert only(await node.call(request, 9)).base_offset == 0


@pytest.mark.parametrize("acks", [-1, 1])
async def test_the_answer_waits_for_a_write_that_must_be_synced_first(start: Any, tools: Any, acks: int) -> None:
    node = await start(log_flush_interval_messages="1")
    await node.create()
    request = produce((0, tools.batch(b"a")), acks=acks)
    answer = node.begin(request, 9)
    assert isinstance(answer, Pending) and node.broker.purgatory.held == 1
    response = await tools.finished(answer)
    assert only(response).base_offset == 0
    assert node.partition().high_watermark == 1
    assert node.broker.purgatory.held == 0


async def test_a_connection_that_goes_away_while_its_produce_waits_leaves_nothing(start: Any, tools: Any) -> None:
    node = await start(log_flush_interval_messages="1")
    await node.create()
    answer = node.begin(produce((0, tools.batch(b"a"))), 9)
    assert isinstance(answer, Pending)
    answer.cancel()
    assert node.broker.purgatory.held == 0
    while node.partition().high_watermark == 0:
        await asyncio.sleep(0)


async def test_a_log_that_is_offline_refuses_and_the_others_go_on(node: Any, tools: Any) -> None:
    await node.create(partitions=2)
    node.partition(index=0).log.failure = "the disk is gone"
    (topic,) = (await node.call(produce((0, tools.batch(b"a")), (1, tools.batch(b"a"))), 9)).responses
    assert [p.error_code for p in topic.partition_responses] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
