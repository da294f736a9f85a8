"""DescribeProducers."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis import k61_describe_producers as api
from klamm.apis.api import Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.records.record import Record, encode_batch
from klamm.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest


def request(*partitions: int, topic: str = "t") -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(partitions))])


def produce(node: Any, producer_id: int, sequence: int, count: int = 1, epoch: int = 0) -> None:
    records = [Record(0, node.env.clock.time_ms(), None, b"x") for _ in range(count)]
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    result = node.partition().append(bytearray(batch), -1)
    assert not hasattr(result, "code"), result


async def described(node: Any, request: DescribeProducersRequest) -> Any:
    (topic,) = (await node.call(request, 0)).topics
    return topic.partitions


async def test_what_a_partition_remembers_of_its_producers(node: Any) -> None:
    await node.create("t", 2)
    before = node.env.clock.time_ms()
    produce(node, 7, 0, 3)
    produce(node, 7, 3, 2)
    produce(node, 9, 0, epoch=4)
    node.append(b"from nobody in particular")
    first, second = await described(node, request(0, 1))
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert [(p.producer_id, p.producer_epoch, p.last_sequence) for p in first.active_producers] == [
        (7, 0, 4),
        (9, 4, 0),
    ]
    assert all(before <= p.last_timestamp <= node.env.clock.time_ms() for p in first.active_producers)
    assert {(p.coordinator_epoch, p.current_txn_start_offset) for p in first.active_producers} == {(-1, -1)}
    assert second.active_producers == []


async def test_many_producers_are_told_of_in_slices(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_PRODUCERS_PER_SLICE", 2)
    await node.create()
    for producer_id in range(5):
        produce(node, producer_id, 0)
    (partition,) = await described(node, request(0))
    assert [p.producer_id for p in partition.active_producers] == [0, 1, 2, 3, 4]


async def test_every_partition_has_an_error_of_its_own(node: Any) -> None:
    await node.create("t", 2)
    node.append(b"x", index=1)
    node.partition("t", 1).log._fail("broken")
    codes = [(p.partition_index, p.error_code) for p in await described(node, request(0, 1, 7))]
    assert codes == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.KAFKA_STORAGE_ERROR),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize(
    ("topic", "error"), [("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)]
)
async def test_topics_that_are_not_there(node: Any, topic: str, error: ErrorCode) -> None:
    (partition,) = await described(node, request(0, topic=topic))
    assert partition.error_code == error and partition.error_message


async def test_who_may_not_read_the_topic(node: Any, tools: Any) -> None:
    await node.create("t")
    node.broker.authorizer = tools.deny((Operation.READ, ResourceType.TOPIC, "t"))
    (partition,) = await described(node, request(0))
    assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
