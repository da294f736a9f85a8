"""The records of the internal topics, byte for byte: the only tables that no other implementation here knows.

The expected bytes are written out by hand from Kafka's definitions.
"""

from __future__ import annotations

import pytest

from klamm.wire import Struct, decode, encode
from klamm.wire.messages.coordinator import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionMetadata,
    PartitionsSchema,
    TopicMetadata,
    TopicPartition,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
)

ID = bytes(range(16))


def i16(value: int) -> bytes:
    return value.to_bytes(2, "big", signed=True)


def i32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def i64(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


COMMIT = OffsetCommitValue(offset=10, leader_epoch=4, metadata="m", commit_timestamp=20, expire_timestamp=30)
MEMBER = MemberMetadata(
    member_id="i",
    group_instance_id="s",
    client_id="c",
    client_host="h",
    rebalance_timeout=5,
    session_timeout=6,
    subscription=b"x",
    assignment=b"yz",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer", generation=3, protocol="range", leader=None, current_state_timestamp=9, members=[MEMBER]
)
TRANSACTION = TransactionLogValue(
    producer_id=1,
    producer_epoch=2,
    transaction_timeout_ms=3,
    transaction_status=4,
    transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[5])],
    transaction_last_update_timestamp_ms=6,
    transaction_start_timestamp_ms=7,
)

CASES: list[tuple[Struct, int, bytes]] = [
    (OffsetCommitKey(group="g", topic="t", partition=1), 0, b"\0\x01g\0\x01t" + i32(1)),
    (OffsetCommitKey(group="g", topic="t", partition=1), 1, b"\0\x01g\0\x01t" + i32(1)),
    (COMMIT, 0, i64(10) + b"\0\x01m" + i64(20)),
    (COMMIT, 1, i64(10) + b"\0\x01m" + i64(20) + i64(30)),
    (COMMIT, 2, i64(10) + b"\0\x01m" + i64(20)),
    (COMMIT, 3, i64(10) + i32(4) + b"\0\x01m" + i64(20)),
    (COMMIT, 4, i64(10) + i32(4) + b"\x02m" + i64(20) + b"\0"),
    (OffsetCommitValue(offset=1, topic_id=ID), 4, i64(1) + i32(-1) + b"\x01" + i64(0) + b"\x01\x00\x10" + ID),
    (OffsetCommitValue(offset=1, topic_id=ID), 3, i64(1) + i32(-1) + b"\0\0" + i64(0)),
    (GroupMetadataKey(group="g"), 2, b"\0\x01g"),
    (
        GROUP,
        0,
        b"\0\x08consumer" + i32(3) + b"\0\x05range" + i16(-1) + i32(1)
        + b"\0\x01i\0\x01c\0\x01h" + i32(6) + i32(1) + b"x" + i32(2) + b"yz",
    ),
    (
        GROUP,
        3,
        b"\0\x08consumer" + i32(3) + b"\0\x05range" + i16(-1) + i64(9) + i32(1)
        + b"\0\x01i\0\x01s\0\x01c\0\x01h" + i32(5) + i32(6) + i32(1) + b"x" + i32(2) + b"yz",
    ),
    (
        GROUP,
        4,
        b"\x09consumer" + i32(3) + b"\x06range" + b"\0" + i64(9)
        + b"\x02" + b"\x02i\x02s\x02c\x02h" + i32(5) + i32(6) + b"\x02x" + b"\x03yz" + b"\0" + b"\0",
    ),
    (ConsumerGroupMetadataKey(group_id="g"), 3, b"\0\x01g"),
    (ConsumerGroupMetadataValue(epoch=5), 0, i32(5) + b"\0"),
    (ConsumerGroupMetadataValue(epoch=5, metadata_hash=6), 0, i32(5) + b"\x01\x00\x08" + i64(6)),
    (ConsumerGroupPartitionMetadataKey(group_id="g"), 4, b"\0\x01g"),
    (
        ConsumerGroupPartitionMetadataValue(
            topics=[
                TopicMetadata(
                    topic_id=ID,
                    topic_name="t",
                    num_partitions=1,
                    partition_metadata=[PartitionMetadata(partition=0, racks=["r"])],
                )
            ]
        ),
        0,
        b"\x02" + ID + b"\x02t" + i32(1) + b"\x02" + i32(0) + b"\x02\x02r\0" + b"\0" + b"\0",
    ),
    (ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), 5, b"\0\x01g\0\x01m"),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id="r",
            client_id="c",
            client_host="h",
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            rebalance_timeout_ms=9,
            server_assignor="u",
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=8, supported_protocols=[ClassicProtocol(name="p", metadata=b"z")]
            ),
        ),
        0,
        b"\0\x02r\x02c\x02h\x02\x02t\0" + i32(9) + b"\x02u"
        + b"\x01\x00\x0c\x01" + i32(8) + b"\x02\x02p\x02z\0" + b"\0",
    ),
    (ConsumerGroupTargetAssignmentMetadataKey(group_id="g"), 6, b"\0\x01g"),
    (ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3), 0, i32(3) + b"\0"),
    (
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3, assignment_timestamp=4),
        0,
        i32(3) + b"\x01\x00\x08" + i64(4),
    ),
    (ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"), 7, b"\0\x01g\0\x01m"),
    (
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=[TopicPartition(topic_id=ID, partitions=[1])]),
        0,
        b"\x02" + ID + b"\x02" + i32(1) + b"\0" + b"\0",
    ),
    (ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), 8, b"\0\x01g\0\x01m"),
    (
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=1,
            assigned_partitions=[TopicPartitions(topic_id=ID, partitions=[1], assignment_epochs=[2])],
        ),
        0,
        i32(2) + i32(1) + b"\x01\x02" + ID + b"\x02" + i32(1) + b"\x01\x00\x05\x02" + i32(2) + b"\x01" + b"\0",
    ),
    (ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="r"), 16, b"\0\x01g\0\x01r"),
    (
        ConsumerGroupRegularExpressionValue(topics=["t"], version=2, timestamp=3),
        0,
        b"\x02\x02t" + i64(2) + i64(3) + b"\0",
    ),
    (TransactionLogKey(transactional_id="x"), 0, b"\0\x01x"),
    (
        TRANSACTION,
        0,
        i64(1) + i16(2) + i32(3) + b"\x04" + i32(1) + b"\0\x01t" + i32(1) + i32(5) + i64(6) + i64(7),
    ),
    (
        TRANSACTION,
        1,
        i64(1) + i16(2) + i32(3) + b"\x04" + b"\x02\x02t\x02" + i32(5) + b"\0" + i64(6) + i64(7) + b"\0",
    ),
    (
        TransactionLogValue(
            previous_producer_id=8, next_producer_id=9, transaction_partitions=None, client_transaction_version=2
        ),
        1,
        i64(0) + i16(0) + i32(0) + b"\0\0" + i64(0) + i64(0)
        + b"\x03" + b"\x00\x08" + i64(8) + b"\x01\x08" + i64(9) + b"\x02\x02" + i16(2),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "version", "data"), CASES, ids=[f"{type(record).__name__}-{version}" for record, version, _ in CASES]
)
def test_the_record_has_exactly_these_bytes(record: Struct, version: int, data: bytes) -> None:
    assert encode(record, version) == data
    again = decode(type(record), data, version)
    assert encode(again, version) == data


def test_a_newer_writer_may_add_tagged_fields() -> None:
    assert decode(ConsumerGroupMetadataValue, i32(5) + b"\x01\x01\x08" + i64(6), 0) == ConsumerGroupMetadataValue(
        epoch=5
    )
