"""Records as a consumer's application gets them: with everything that is known of each in one tuple.

This is the pure twin of `decode_consumed` in `klamm.records._native`; `klamm.records.kernel` picks one of the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from klamm.core.env import Buffer
from klamm.records.decoding import Headers, decode_payload

CREATE_TIME = 0
LOG_APPEND_TIME = 1


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
