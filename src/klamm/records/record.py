"""The records inside a batch: decode, encode, and the control records of transactions.

The broker needs this only for its own internal topics and for the topics whose records it must look at; produce and
fetch pass batches on as they are. Decoding trusts nothing: every count and length is held against the bytes that are
left, and anything that does not add up to exactly this batch raises CorruptBatch (or BatchError, where it is too large
or its codec unknown). Nothing but these two gets out of here.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from klamm.core.env import Buffer
from klamm.records import batch
from klamm.records.batch import BatchHeader, CorruptBatch
from klamm.records.compression import MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from klamm.records.decoding import Headers as Headers
from klamm.records.decoding import Record as Record
from klamm.records.kernel import decode_payload, encode_payload

_timestamp = itemgetter(1)


def decode_records(buf: Buffer, pos: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """All records of the batch at `pos`, whose checksum is verified first.

    `max_bytes` bounds the uncompressed bytes; the objects made of them take up to some 30 times as much if they are
    all tiny (an empty record has 7 bytes, a header 2)."""
    header = batch.read_header(buf, pos)
    batch.check(buf, pos, header)
    payload = memoryview(buf)[pos + batch.header_bytes : pos + header.size]
    body = decompress(header.codec, payload, max_bytes)
    return decode_payload(
        body,
        header.record_count,
        base_offset=header.base_offset,
        last_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        append_time=header.max_timestamp if header.is_log_append_time else None,
    )


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    xerial: bool = True,
    producer_id: int = batch.NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = batch.NO_SEQUENCE,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
) -> bytes:
    """A batch of one record or more. They get consecutive offsets from `base_offset`; their own are not looked at."""
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp
    body = encode_payload(records, base_timestamp)
    attributes = (
        codec
        | (batch.LOG_APPEND_TIME if log_append_time else 0)
        | (batch.TRANSACTIONAL if transactional else 0)
        | (batch.CONTROL if control else 0)
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=batch.MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(map(_timestamp, records)),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return batch.seal(header, compress(codec, body, level, xerial=xerial))


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4


class EndMarker(NamedTuple):
    """What ends a transaction in a partition."""

    type: ControlType
    coordinator_epoch: int


_control_key = Struct(">hh")  # version, type
_end_marker_value = Struct(">hi")  # version, coordinator epoch


def encode_end_marker(
    marker: EndMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that commits or aborts a producer's transaction in one partition."""
    assert marker.type in (ControlType.COMMIT, ControlType.ABORT)
    key = _control_key.pack(0, marker.type)
    value = _end_marker_value.pack(0, marker.coordinator_epoch)
    return encode_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def decode_control(record: Record) -> EndMarker | None:
    """The end marker in a control batch's record; None for the other kinds, which clients skip over as well.

    Later versions may only add fields, so these are read whatever the version is."""
    key, value = record.key, record.value
    if key is None or len(key) < _control_key.size:
        raise CorruptBatch("a control record without a type")
    version, kind = _control_key.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"a control record of version {version}")
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _end_marker_value.size:
        raise CorruptBatch("an end marker without a coordinator epoch")
    _, coordinator_epoch = _end_marker_value.unpack_from(value)
    return EndMarker(ControlType(kind), coordinator_epoch)
