"""Records as a consumer's application gets them: with everything that is known of each in one tuple.

This is the pure twin of its part of `klamm.records._native`; `klamm.records.kernel` picks one of the two.
`decode_consumed` takes the payload of one batch, as `klamm.records.decoding` does; the others the bytes of a fetch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.core.env import Buffer
from klamm.records import batch
from klamm.records.batch import BatchHeader, CorruptBatch
from klamm.records.checksum import crc32c
from klamm.records.decoding import Headers, decode_payload
from klamm.records.filter import check_base

CREATE_TIME = 0
LOG_APPEND_TIME = 1
_PLAIN = batch.LOG_APPEND_TIME | batch.TRANSACTIONAL | batch.DELETE_HORIZON
"""The attributes that a plain batch may have: no codec, no control records."""


class ConsumerRecord(NamedTuple):
    """`timestamp` is in milliseconds since 1970: when the record was made (`timestamp_type` 0) or appended (1). Key and
    value are bytes, unless a deserializer made something else of them."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Headers
    leader_epoch: int


def decode_consumed(
    payload: Buffer,
    count: int,
    *,
    base_offset: int,
    last_delta: int,
    base_timestamp: int,
    append_time: int | None,
    topic: str,
    partition: int,
    leader_epoch: int,
    start: int,
) -> list[ConsumerRecord]:
    """The records of a payload from offset `start` on; everything else as `decode_payload` does it."""
    records = decode_payload(
        payload,
        count,
        base_offset=base_offset,
        last_delta=last_delta,
        base_timestamp=base_timestamp,
        append_time=append_time,
    )
    new = tuple.__new__  # the constructor of a NamedTuple costs three times as much
    kind = CREATE_TIME if append_time is None else LOG_APPEND_TIME
    return [
        new(ConsumerRecord, (topic, partition, offset, timestamp, kind, key, value, headers, leader_epoch))
        for offset, timestamp, key, value, headers in records
        if offset >= start
    ]


def decode_fetched(
    data: Buffer, pos: int, *, topic: str, partition: int, start: int, limit: int
) -> tuple[list[ConsumerRecord], int]:
    """The records from offset `start` on of the batches at `pos`, and where they end. Goes on to the batch in which
    `limit` is reached, and stops before any that is not plain: compressed, with control records, partial, damaged. Who
    looks closer at that one finds out what is the matter with it."""
    records: list[ConsumerRecord] = []
    view = memoryview(data)
    while len(records) < limit and 0 <= pos <= len(view) - batch.header_bytes:
        try:
            header = batch.read_header(view, pos)
            if not is_plain(header, len(view) - pos):
                break
            if header.last_offset >= start:
                records += _decode_plain(view[pos : pos + header.size], header, topic, partition, start)
        except CorruptBatch:
            break
        pos += header.size
    return records, pos


def is_plain(header: BatchHeader, left: int) -> bool:
    """Whether it can be a whole batch in `left` bytes that takes no closer look."""
    check_base(header.base_offset, header.last_offset_delta)
    return (
        header.magic == batch.MAGIC
        and header.size <= left
        and not header.attributes & ~_PLAIN
        and header.last_offset_delta >= 0
        and 0 <= header.record_count <= header.last_offset_delta + 1
    )


def _decode_plain(
    data: memoryview, header: BatchHeader, topic: str, partition: int, start: int
) -> list[ConsumerRecord]:
    if crc32c(data[batch.crc_start :]) != header.crc:
        raise CorruptBatch("a wrong checksum")
    return decode_consumed(
        data[batch.header_bytes :],
        header.record_count,
        base_offset=header.base_offset,
        last_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        append_time=header.max_timestamp if header.is_log_append_time else None,
        topic=topic,
        partition=partition,
        leader_epoch=header.leader_epoch,
        start=start,
    )


def measure_fetched(data: Buffer, offset: int) -> tuple[int, int, int]:
    """How far the bytes of a fetch go: where the last whole batch ends, the offset behind it (or `offset`, if that is
    higher), and its leader epoch, -1 if there is none. Looks at headers only; CorruptBatch if they make no sense."""
    size, epoch = 0, -1
    for position, header in batch.iter_batches(data):
        check_base(header.base_offset, max(header.last_offset_delta, 0))
        size = position + header.size
        offset = max(offset, header.next_offset)
        epoch = header.leader_epoch
    return size, offset, epoch
