"""The records of internal topics: in the versions that Kafka writes, and what is not known is skipped."""

from __future__ import annotations

import pytest

from klamm import wire
from klamm.coordinator.java_hash import java_hash, partition_for
from klamm.coordinator.machine import Producer, Record
from klamm.coordinator.records import GROUPS, TRANSACTIONS, encode, encode_batch
from klamm.records.batch import read_header, validate
from klamm.records.record import decode_records
from klamm.wire.messages import coordinator as tables

OFFSET = Record(
    tables.OffsetCommitKey(group="g", topic="t", partition=3),
    tables.OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9, topic_id=bytes(range(16))),
)


@pytest.mark.parametrize(
    ("record", "number", "version"),
    [
        (OFFSET, 1, 4),
        (Record(OFFSET.key, tables.OffsetCommitValue(offset=7, expire_timestamp=12)), 1, 1),
        (Record(tables.GroupMetadataKey(group="g"), tables.GroupMetadataValue(protocol=None, leader=None)), 2, 3),
        (Record(tables.ConsumerGroupMetadataKey(group_id="g"), tables.ConsumerGroupMetadataValue(epoch=1)), 3, 0),
        (
            Record(
                tables.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a.*"),
                tables.ConsumerGroupRegularExpressionValue(topics=["a"]),
            ),
            16,
            0,
        ),
    ],
)
def test_a_record_is_written_as_kafka_writes_it_and_read_again(record: Record, number: int, version: int) -> None:
    key, value = encode(record)
    assert value is not None
    assert (int.from_bytes(key[:2]), int.from_bytes(value[:2])) == (number, version)
    assert key[2:] == wire.encode(record.key, number)
    assert GROUPS.decode(key, value) == record


def test_the_topics_number_their_tables_apart() -> None:
    record = Record(tables.TransactionLogKey(transactional_id="x"), tables.TransactionLogValue(producer_id=5))
    key, value = encode(record)
    assert (key[:2], value and value[:2]) == (b"\0\0", b"\0\1")
    assert TRANSACTIONS.decode(key, value) == record
    assert TRANSACTIONS.decode(*encode(OFFSET)) is None


def test_a_tombstone_has_no_value() -> None:
    key, value = encode(Record(OFFSET.key, None))
    assert value is None
    assert GROUPS.decode(key, None) == Record(OFFSET.key, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"x"),
        (b"\0", b"x"),
        (b"\x00\x63future", b"x"),
        (encode(OFFSET)[0], b"\x00\x63" + b"future"),
    ],
)
def test_what_is_not_known_is_skipped(key: bytes | None, value: bytes | None) -> None:
    assert GROUPS.decode(key, value) is None


@pytest.mark.parametrize("cut", [3, -1])
def test_bytes_that_are_not_what_they_say_are_an_error(cut: int) -> None:
    key, value = encode(OFFSET)
    with pytest.raises(wire.ProtocolError):
        GROUPS.decode(key[:cut], value)
    with pytest.raises(wire.ProtocolError):
        GROUPS.decode(key, value and value[:cut])


@pytest.mark.parametrize("producer", [None, Producer(4, 1)])
@pytest.mark.parametrize("count", [1, 2, 200])
def test_a_batch_is_one_that_a_log_takes(producer: Producer | None, count: int) -> None:
    records = [
        Record(
            tables.OffsetCommitKey(group="g" * i, topic="t", partition=i),
            None if i % 3 == 2 else tables.OffsetCommitValue(offset=i, metadata="m" * i),
        )
        for i in range(count)
    ]
    data = encode_batch(records, producer, 1234)
    header = read_header(data)
    validate(data, 0, header, from_client=False)
    assert header.size == len(data)
    assert (header.is_transactional, header.producer_id) == (producer is not None, producer.id if producer else -1)
    found = decode_records(data)
    assert [GROUPS.decode(one.key, one.value) for one in found] == records
    assert {one.timestamp for one in found} == {1234}


@pytest.mark.parametrize(
    ("text", "java"),  # as jshell has it
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("my-group", -1906497762),
        ("gr\u00fc\u00dfe", 98768023),
        ("\U0001d11e", 1772394),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_a_key_is_hashed_as_by_java(text: str, java: int) -> None:
    assert java_hash(text) == java & 0x7FFF_FFFF
    assert partition_for(text, 50) == (java & 0x7FFF_FFFF) % 50
