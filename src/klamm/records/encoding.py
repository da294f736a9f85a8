"""Records into the payload of a batch: the uncompressed bytes behind its header.

This is the pure twin of the encoding of `klamm.records._native`; `klamm.records.kernel` picks one of the two, and
everybody imports from there. What has no place in a record (other types, times too far apart) raises a TypeError,
AttributeError, ValueError or OverflowError: whoever takes records from strangers is ready for any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.records.decoding import Record
from klamm.records.varint import write_varint

_MIN_INT64 = -(1 << 63)
_MAX_INT64 = (1 << 63) - 1


def encode_payload(records: Sequence[Record], base_timestamp: int) -> bytes:
    """The records with offset deltas from 0 on; their own offsets are not looked at."""
    out = bytearray()
    for delta, record in enumerate(records):
        write_record(out, delta, base_timestamp, record)
    return bytes(out)


def write_record(out: bytearray, delta: int, base_timestamp: int, record: Record) -> None:
    """One record behind what is in `out`, its offset and time as differences to the batch's."""
    _, timestamp, key, value, headers = record
    timestamp_delta = timestamp - base_timestamp
    if not (_MIN_INT64 <= timestamp <= _MAX_INT64 and _MIN_INT64 <= timestamp_delta <= _MAX_INT64):
        raise OverflowError(f"timestamps {timestamp} and {base_timestamp} in one batch")
    body = bytearray(1)  # attributes: none in use
    write_varint(body, timestamp_delta)
    write_varint(body, delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    write_varint(body, len(headers))
    for name, content in headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, content)
    write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # -1 in zig-zag
    else:
        write_varint(out, len(value))
        out += value
