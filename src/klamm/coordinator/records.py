"""Between the records that machines speak of and the bytes in an internal topic.

A key begins with the number of its table, a value with its version (`wire/messages/coordinator`). Values are written
in the versions that Kafka 4.3 writes, and read in all that are known. What is not known is skipped: a newer broker may
have written it, and it stays in the log. Both topics number their tables from 0, so there is a format for each.

This module must never look at what a record means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct as Packer
from typing import Any, Final

from klamm.coordinator.machine import Producer, Record
from klamm.records.batch import MAGIC, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL, BatchHeader, seal_writable
from klamm.records.varint import write_varint
from klamm.wire import ProtocolError, decode
from klamm.wire.codec import new_encoder
from klamm.wire.messages import coordinator as tables
from klamm.wire.schema import Struct, versions_of

_number = Packer(">h")
_TWO_BYTES: Final = [_number.pack(n) for n in range(32)]
"""The beginnings of keys and values: there are fewer tables, and fewer versions, than that."""

_OFFSET_COMMIT_KEY: Final = 1
_VALUE_WITH_EXPIRY: Final = 1
"""The only version of OffsetCommitValue that can say when an offset expires."""

_WRITTEN: Final[Mapping[type[Struct], int]] = {
    tables.OffsetCommitValue: 4,
    tables.GroupMetadataValue: 3,
    tables.ConsumerGroupMetadataValue: 0,
    tables.ConsumerGroupMemberMetadataValue: 0,
    tables.ConsumerGroupTargetAssignmentMetadataValue: 0,
    tables.ConsumerGroupTargetAssignmentMemberValue: 0,
    tables.ConsumerGroupCurrentMemberAssignmentValue: 0,
    tables.ConsumerGroupRegularExpressionValue: 0,
    tables.TransactionLogValue: 1,
}

_NUMBERS: Final[Mapping[type[Struct], int]] = {
    tables.OffsetCommitKey: _OFFSET_COMMIT_KEY,
    tables.GroupMetadataKey: 2,
    tables.ConsumerGroupMetadataKey: 3,
    tables.ConsumerGroupPartitionMetadataKey: 4,
    tables.ConsumerGroupMemberMetadataKey: 5,
    tables.ConsumerGroupTargetAssignmentMetadataKey: 6,
    tables.ConsumerGroupTargetAssignmentMemberKey: 7,
    tables.ConsumerGroupCurrentMemberAssignmentKey: 8,
    tables.ConsumerGroupRegularExpressionKey: 16,
    tables.TransactionLogKey: 0,
}


class RecordFormat:
    """The tables of one internal topic, by the number that their keys begin with."""

    __slots__ = ("_tables",)

    def __init__(self, by_number: Mapping[int, tuple[type[Struct], type[Struct]]]) -> None:
        self._tables = by_number

    def decode(self, key: bytes | None, value: bytes | None) -> Record | None:
        """None for what is not known: a table or a version of the future, a record without a key. ProtocolError for
        bytes that are not what they say."""
        if key is None or len(key) < _number.size:
            return None
        (number,) = _number.unpack_from(key)
        found = self._tables.get(number)
        if found is None:
            return None
        key_type, value_type = found
        decoded = decode(key_type, key, number, _number.size)
        if value is None:
            return Record(decoded, None)
        if len(value) < _number.size:
            raise ProtocolError(f"a value of {len(value)} bytes has no version")
        (version,) = _number.unpack_from(value)
        if version not in versions_of(value_type):
            return None
        return Record(decoded, decode(value_type, value, version, _number.size))


GROUPS: Final = RecordFormat(
    {
        0: (tables.OffsetCommitKey, tables.OffsetCommitValue),
        1: (tables.OffsetCommitKey, tables.OffsetCommitValue),
        2: (tables.GroupMetadataKey, tables.GroupMetadataValue),
        3: (tables.ConsumerGroupMetadataKey, tables.ConsumerGroupMetadataValue),
        4: (tables.ConsumerGroupPartitionMetadataKey, tables.ConsumerGroupPartitionMetadataValue),
        5: (tables.ConsumerGroupMemberMetadataKey, tables.ConsumerGroupMemberMetadataValue),
        6: (tables.ConsumerGroupTargetAssignmentMetadataKey, tables.ConsumerGroupTargetAssignmentMetadataValue),
        7: (tables.ConsumerGroupTargetAssignmentMemberKey, tables.ConsumerGroupTargetAssignmentMemberValue),
        8: (tables.ConsumerGroupCurrentMemberAssignmentKey, tables.ConsumerGroupCurrentMemberAssignmentValue),
        16: (tables.ConsumerGroupRegularExpressionKey, tables.ConsumerGroupRegularExpressionValue),
    }
)
TRANSACTIONS: Final = RecordFormat({0: (tables.TransactionLogKey, tables.TransactionLogValue)})


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as they are stored."""
    key, value = record
    number = _NUMBERS[type(key)]
    out: list[Any] = [_TWO_BYTES[number]]
    (key.__encoders__.get(number) or new_encoder(type(key), number))(key, out, [])
    encoded_key = b"".join(out)
    if value is None:
        return encoded_key, None
    version = _WRITTEN[type(value)]
    if type(value) is tables.OffsetCommitValue and value.expire_timestamp != -1:
        version = _VALUE_WITH_EXPIRY
    out = [_TWO_BYTES[version]]
    (value.__encoders__.get(version) or new_encoder(type(value), version))(value, out, [])
    return encoded_key, b"".join(out)


def encode_batch(records: Sequence[Record], producer: Producer | None, time_ms: int) -> bytearray:
    """One batch of all, for a log that will write their offsets into it. They have the same time and no headers."""
    body = bytearray()
    for delta, record in enumerate(records):
        _write_record(body, delta, *encode(record))
    if producer is None:
        attributes, producer_id, epoch = 0, NO_PRODUCER_ID, -1
    else:
        attributes, (producer_id, epoch) = TRANSACTIONAL, producer
    last = len(records) - 1
    header = BatchHeader(
        0, 0, -1, MAGIC, 0, attributes, last, time_ms, time_ms, producer_id, epoch, NO_SEQUENCE, last + 1
    )
    return seal_writable(header, body)


def _write_record(out: bytearray, delta: int, key: bytes, value: bytes | None) -> None:
    body = bytearray(2)  # attributes, and no difference in time
    write_varint(body, delta)
    write_varint(body, len(key))
    body += key
    if value is None:
        body.append(1)  # a length of -1
    else:
        write_varint(body, len(value))
        body += value
    body.append(0)  # no headers
    write_varint(out, len(body))
    out += body
