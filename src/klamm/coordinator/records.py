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
from klamm.records.batch import TRANSACTIONAL, header_bytes, seal_in_place
from klamm.records.varint import write_varint
from klamm.wire import ProtocolError, decode
from klamm.wire.codec import new_decoder, new_encoder
from klamm.wire.messages import coordinator as tables
from klamm.wire.schema import Struct, versions_of

_number = Packer(">h")
_TWO_BYTES: Final = [_number.pack(n) for n in range(32)]
"""The beginnings of keys and values: there are fewer tables, and fewer versions, than that."""

_ONE_BYTE: Final = [bytes((number << 1,)) for number in range(0x40)]
_NO_VALUE: Final = b"\x01"  # a length of -1

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
        self._tables = {number: (key, value, versions_of(value)) for number, (key, value) in by_number.items()}

    def decode(self, key: bytes | None, value: bytes | None) -> Record | None:
        """None for what is not known: a table or a version of the future, a record without a key. ProtocolError for
        bytes that are not what they say."""
        if key is None or len(key) < _number.size:
            return None
        (number,) = _number.unpack_from(key)
        found = self._tables.get(number)
        if found is None:
            return None
        key_type, value_type, versions = found
        decoded = _decode(key_type, key, number)
        if value is None:
            return Record(decoded, None)
        if len(value) < _number.size:
            raise ProtocolError(f"a value of {len(value)} bytes has no version")
        (version,) = _number.unpack_from(value)
        return Record(decoded, _decode(value_type, value, version)) if version in versions else None


def _decode(table: type[Struct], data: bytes, version: int) -> Struct:
    """As `wire.decode`, for what stands behind the first two bytes, without a copy of it: a log is full of them."""
    decoder, _ = table.__decoders__.get(version) or new_decoder(table, version)
    size = len(data)
    try:
        found, end = decoder(data, _number.size, size)
    except Exception:  # noqa: BLE001 - `decode` says what it was
        end = -1
    return found if end == size else decode(table, data, version, _number.size)


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
    out = bytearray(header_bytes)
    for delta, record in enumerate(records):
        _write_record(out, delta, *encode(record))
    if producer is None:
        seal_in_place(out, len(records), time_ms)
    else:
        producer_id, epoch = producer
        seal_in_place(out, len(records), time_ms, attributes=TRANSACTIONAL, producer_id=producer_id, epoch=epoch)
    return out


def _write_record(out: bytearray, delta: int, key: bytes, value: bytes | None) -> None:
    key_length, delta_bytes = _varint(len(key)), _varint(delta)
    # attributes and the difference in time, both 0, come first; the number of headers, 0, last
    if value is None:
        body = b"".join((b"\0\0", delta_bytes, key_length, key, _NO_VALUE, b"\0"))
    else:
        body = b"".join((b"\0\0", delta_bytes, key_length, key, _varint(len(value)), value, b"\0"))
    out += _varint(len(body))
    out += body


def _varint(number: int) -> bytes:
    """As records have it: zig-zag. Nearly all fit into a byte or two."""
    if number < 0x40:
        return _ONE_BYTE[number]
    if number < 0x2000:
        return bytes((number << 1 & 0x7F | 0x80, number >> 6))
    out = bytearray()
    write_varint(out, number)
    return bytes(out)
