"""DeleteRecords."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from klamm.apis.api import Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.log.folder import read_state
from klamm.replica.fetch import CONSUMER, Limits, Wanted
from klamm.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


def below(offset: int, topic: str = "t", index: int = 0) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)])


async def delete(node: Any, *asked: Any, version: int = 2) -> tuple[int, int]:
    response = await node.call(below(*asked), version)
    ((result,),) = [topic.partitions for topic in response.topics]
    return result.low_watermark, result.error_code


def saved_start(node: Any, name: str = "t-0") -> int:
    return read_state(node.env.files, str(node.path)).logs[name].state.start_offset


def segments(node: Any, name: str = "t-0") -> list[int]:
    return sorted(int(n[:20]) for n in os.listdir(node.path / "topics" / name) if n.endswith(".log"))


@pytest.mark.parametrize("version", range(3))
async def test_what_lies_below_the_offset_is_gone_and_stays_gone(node: Any, version: int) -> None:
    await node.create()
    for value in (b"a", b"b", b"c"):
        node.append(value)
    assert await delete(node, 2, version=version) == (2, ErrorCode.NONE)
    partition = node.partition()
    assert (partition.log.start_offset, partition.high_watermark) == (2, 3)
    assert partition.log.recovery_point == 3
    assert saved_start(node) == 2


async def test_minus_one_is_the_high_watermark(node: Any) -> None:
    await node.create()
    node.append(b"a", b"b")
    assert await delete(node, -1) == (2, ErrorCode.NONE)
    node.append(b"c")
    assert node.partition().high_watermark == 3
    assert await delete(node, -1) == (3, ErrorCode.NONE)


async def test_an_offset_below_the_start_changes_nothing(node: Any) -> None:
    await node.create()
    node.append(b"a", b"b", b"c")
    assert await delete(node, 2) == (2, ErrorCode.NONE)
    assert await delete(node, 1) == (2, ErrorCode.NONE)


async def test_an_empty_partition_has_nothing_to_delete(node: Any) -> None:
    await node.create()
    assert await delete(node, -1) == (0, ErrorCode.NONE)
    assert await delete(node, 1) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize("offset", [4, -2])
async def test_an_offset_that_is_not_there_is_out_of_range(node: Any, offset: int) -> None:
    await node.create()
    node.append(b"a", b"b", b"c")
    assert await delete(node, offset) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert node.partition().log.start_offset == 0


async def test_segments_that_are_below_the_start_go(node: Any) -> None:
    await node.create(segment_bytes="100")
    for value in (b"a", b"b", b"c", b"d"):
        node.append(value)
    assert segments(node) == [0, 1, 2, 3]
    assert await delete(node, 2) == (2, ErrorCode.NONE)
    assert segments(node) == [2, 3]
    assert await delete(node, 4) == (4, ErrorCode.NONE)
    assert segments(node) == [3]


async def test_a_consumer_that_is_behind_is_told_so(node: Any) -> None:
    await node.create()
    node.append(b"a", b"b", b"c")
    await delete(node, 2)
    partition = node.partition()
    limits = Limits(replica_id=CONSUMER, max_bytes=1000, min_bytes=1, committed=False)
    fetched = partition.fetch(Wanted("t", partition.topic_id, 0, 1, 1000), 1000, True, limits)
    assert fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_every_partition_has_an_error_of_its_own(node: Any, tools: Any) -> None:
    await node.create("t", 2)
    await node.create("secret")
    await node.create("compacted", cleanup_policy="compact")
    await node.create("both", cleanup_policy="compact,delete")
    await node.create("__consumer_offsets")
    for topic in ("t", "compacted", "both"):
        node.append(b"x", key=b"k", topic=topic)
    node.broker.authorizer = tools.deny((Operation.DELETE, ResourceType.TOPIC, "secret"))
    names = ("t", "secret", "compacted", "both", "__consumer_offsets", "nowhere")
    topics = [
        DeleteRecordsTopic(
            name=name,
            partitions=[DeleteRecordsPartition(partition_index=i, offset=1) for i in ((0, 7)[: 1 + (name == "t")])],
        )
        for name in names
    ]
    response = await node.call(DeleteRecordsRequest(topics=topics), 2)
    found = [(t.name, p.partition_index, p.low_watermark, p.error_code) for t in response.topics for p in t.partitions]
    assert found == [
        ("t", 0, 1, ErrorCode.NONE),
        ("t", 7, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("secret", 0, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("compacted", 0, -1, ErrorCode.POLICY_VIOLATION),
        ("both", 0, 1, ErrorCode.NONE),
        ("__consumer_offsets", 0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_a_log_that_is_offline_is_not_touched(node: Any) -> None:
    await node.create()
    node.append(b"a")
    node.partition().log._fail("broken")
    assert await delete(node, 1) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)
    assert node.partition().log.start_offset == 0


async def test_nobody_sees_a_start_before_it_is_durable(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create()
    node.append(b"a", b"b", b"c")
    seen: list[tuple[int, int]] = []
    write = type(node.folder).write_state

    def written(self: Any, lines: Any, *, clean: bool) -> None:
        write(self, lines, clean=clean)
        seen.append((saved_start(node), node.partition().log.start_offset))

    monkeypatch.setattr(type(node.folder), "write_state", written)
    assert await delete(node, 2) == (2, ErrorCode.NONE)
    assert seen == [(2, 0)]


async def test_many_at_once_and_the_same_partition_twice(node: Any) -> None:
    await node.create("t", 40)
    for index in range(40):
        node.append(b"a", b"b", b"c", index=index)
    asked = [DeleteRecordsPartition(partition_index=i % 40, offset=1 + i // 40) for i in range(80)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=asked)])
    first, second = await asyncio.gather(node.call(request, 2), node.call(below(3, "t", 7), 2))
    assert [p.low_watermark for p in first.topics[0].partitions if p.partition_index != 7] == [2] * 78
    assert second.topics[0].partitions[0].low_watermark == 3
    assert node.partition("t", 7).log.start_offset == 3


async def test_a_start_that_cannot_be_written_down_is_an_error(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create()
    node.append(b"a")

    async def full() -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(type(node.logs), "save_state", lambda self: full())
    assert await delete(node, 1) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)
    assert node.partition().log.start_offset == 0
