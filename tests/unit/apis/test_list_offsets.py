"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.apis.api import Operation, ResourceType
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def ask(timestamp: int, *, index: int = 0, topic: str = "t", times: int = 1, **fields: Any) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp, **fields)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition] * times)], timeout_ms=100
    )


def found(response: Any) -> tuple[int, int, int, int]:
    (p,) = response.topics[0].partitions
    return p.error_code, p.offset, p.timestamp, p.leader_epoch


async def fill(node: Any, tools: Any) -> None:
    await node.create()
    for timestamp in (1000, 3000, 2000):
        node.partition().append(bytearray(tools.batch(b"a", b"b", timestamp=timestamp)), -1)


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        (-1, 1, (6, -1, 0)),
        (-2, 1, (0, -1, 0)),
        (-3, 7, (2, 3000, 0)),
        (-4, 8, (0, -1, 0)),
        (-5, 9, (-1, -1, -1)),
        (-6, 11, (-1, -1, -1)),
        (0, 1, (0, 1000, 0)),
        (1001, 1, (2, 3000, 0)),
        (3001, 1, (-1, -1, -1)),
    ],
)
async def test_every_timestamp_at_every_version(
    node: Any, tools: Any, timestamp: int, since: int, expected: tuple[int, int, int]
) -> None:
    await fill(node, tools)
    for version in range(1, 12):
        error, offset, stamp, epoch = found(await node.call(ask(timestamp), version))
        if version < since:
            assert (error, offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        else:
            assert (error, offset, stamp) == (ErrorCode.NONE, *expected[:2])
            assert epoch == (expected[2] if version >= 4 else -1)


async def test_an_unknown_special_timestamp_is_refused(node: Any) -> None:
    await node.create()
    assert found(await node.call(ask(-7), 11))[0] == ErrorCode.UNSUPPORTED_VERSION


async def test_an_empty_partition_starts_and_ends_at_zero(node: Any) -> None:
    await node.create()
    assert found(await node.call(ask(-1), 7)) == (ErrorCode.NONE, 0, -1, 0)
    assert found(await node.call(ask(-2), 7)) == (ErrorCode.NONE, 0, -1, 0)
    assert found(await node.call(ask(-3), 7)) == (ErrorCode.NONE, -1, -1, -1)


async def test_errors_are_per_partition(node: Any, tools: Any) -> None:
    await fill(node, tools)
    assert found(await node.call(ask(-1, topic="no"), 7))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found(await node.call(ask(-1, index=3), 7))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found(await node.call(ask(-1, current_leader_epoch=4), 7))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    twice = await node.call(ask(-1, times=2), 7)
    assert [p.error_code for p in twice.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2
    node.broker.authorizer = tools.deny((Operation.DESCRIBE, ResourceType.TOPIC, "t"))
    assert found(await node.call(ask(-1), 7))[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def epoch_end(epoch: int, *, current: int = -1, index: int = 0) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])])


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_where_an_epoch_ended(node: Any, version: int) -> None:
    await node.create()
    node.append(b"a", b"b")
    partition = node.partition()
    log = partition.log
    partition.lead(log, 1, 3, isr_size=1, min_isr=1)

    async def end(epoch: int, **options: int) -> tuple[int, int, int]:
        (p,) = (await node.call(epoch_end(epoch, **options), version)).topics[0].partitions
        return p.error_code, p.leader_epoch, p.end_offset

    assert await end(0) == (0, 0, 2)
    assert await end(2) == (0, 0, 2), "no record was written under epoch 2"
    assert await end(3) == (0, 3, 2), "the leader's epoch counts before its first record"
    node.append(b"c")
    assert await end(0) == (0, 0, 2)
    assert await end(3) == (0, 3, 3)
    assert await end(4) == (0, -1, -1)
    assert await end(3, current=2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert await end(3, current=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert await end(3, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


async def test_a_log_that_is_offline_or_unreadable_is_a_storage_error(
    node: Any, tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from klamm.log.log import Log

    await fill(node, tools)

    def unreadable(*args: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as broken:
        broken.setattr(Log, "epochs", property(unreadable))
        assert found(await node.call(ask(-2), 7))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        (p,) = (await node.call(epoch_end(4), 4)).topics[0].partitions
        assert p.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    node.partition().log.failure = "the disk is gone"
    for timestamp in (-1, -2, -3, 0):
        assert found(await node.call(ask(timestamp), 7))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    (p,) = (await node.call(epoch_end(0), 4)).topics[0].partitions
    assert p.error_code == ErrorCode.KAFKA_STORAGE_ERROR
