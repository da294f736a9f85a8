"""Reads the files of a log for people: what is in a segment, an index, a checkpoint, a snapshot.

Every entry of a file becomes one dict whose names are those of Kafka's dump-log tool where it has them; it is shown as
one line of text or of JSON. Damage is shown where it is, as an entry with `error`, and reading goes on behind it where
that makes sense. Nothing here writes, and a file is mapped, never read as a whole.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from klamm.core.env import Buffer, Files
from klamm.log.epochs import CHECKPOINT_NAME, LeaderEpochs
from klamm.log.producer_state import ProducerStates
from klamm.log.segment import LOG_SUFFIX, OFFSET_SUFFIX, SNAPSHOT_SUFFIX, TIME_SUFFIX
from klamm.log.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from klamm.log.txn_index import SUFFIX as TXN_SUFFIX
from klamm.log.txn_index import decode_entries
from klamm.records.batch import BatchError, BatchHeader, check, header_bytes, read_header

Entry: TypeAlias = dict[str, Any]

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class DumpError(Exception):
    """Why a file cannot be shown: one sentence for the user."""


def entries(files: Files, path: str, *, records: bool = False) -> Iterator[Entry]:
    """What is in the file, entry by entry; `records` looks into the batches of a segment too."""
    name = path.rstrip("/").rpartition("/")[2]
    reader = _reader_for(name, records)
    if reader is None:
        raise DumpError(
            f"{name} is none of the files a log consists of "
            f"({LOG_SUFFIX}, {OFFSET_SUFFIX}, {TIME_SUFFIX}, {TXN_SUFFIX}, {SNAPSHOT_SUFFIX}, {CHECKPOINT_NAME})."
        )
    try:
        data = files.map(path)
    except OSError as error:
        raise DumpError(f"{path} cannot be read: {error.strerror or error}.") from error
    return reader(data)


def as_text(entry: Entry) -> str:
    """`name: value name: value …`; records are indented, as Kafka's tool does it."""
    text = " ".join(f"{name}: {_plain(value)}" for name, value in entry.items())
    return f"| {text}" if "keySize" in entry else text


def as_json(entry: Entry) -> str:
    return json.dumps({name: _jsonable(value) for name, value in entry.items()})


def _reader_for(name: str, records: bool) -> Callable[[Buffer], Iterator[Entry]] | None:
    if name == CHECKPOINT_NAME:
        return _epochs
    stem, dot, rest = name.partition(".")
    if not dot or not stem.isascii() or not stem.isdigit():
        return None
    base = int(stem)
    readers: dict[str, Callable[[Buffer], Iterator[Entry]]] = {
        LOG_SUFFIX: lambda data: _segment(data, records),
        OFFSET_SUFFIX: lambda data: _offset_index(data, base),
        TIME_SUFFIX: lambda data: _time_index(data, base),
        TXN_SUFFIX: _txn_index,
        SNAPSHOT_SUFFIX: _snapshot,
    }
    return readers.get("." + rest.partition(".")[0])  # also what is called .log.deleted or .log.damaged


# ---- segments


def _segment(data: Buffer, records: bool) -> Iterator[Entry]:
    position, size = 0, len(data)
    while position < size:
        if size - position < header_bytes:
            yield _damage(position, f"{size - position} bytes at the end are too few for a batch")
            return
        try:
            header = read_header(data, position)
        except BatchError as error:
            yield _damage(position, f"{error}; what follows cannot be told apart")
            return
        if position + header.size > size:
            yield _damage(position, f"a batch of {header.size} bytes where {size - position} are left")
            return
        entry = _batch(header, position)
        try:
            check(data, position, header)
        except BatchError as error:
            yield entry | {"isvalid": False, "error": str(error)}
        else:
            yield entry | {"isvalid": True}
            if records:
                yield from _records(data, position, header)
        position += header.size


def _batch(header: BatchHeader, position: int) -> Entry:
    codec = header.codec
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": position,
        "LogAppendTime" if header.is_log_append_time else "CreateTime": header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": _CODECS[codec] if codec < len(_CODECS) else str(codec),
        "crc": header.crc,
    }


def _records(data: Buffer, position: int, header: BatchHeader) -> Iterator[Entry]:
    from klamm.records.record import decode_control, decode_records  # brings the codecs

    try:
        decoded = decode_records(data, position)
        markers = [decode_control(record) if header.is_control else None for record in decoded]
    except BatchError as error:
        yield _damage(position, str(error))
        return
    time_name = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    for record, marker in zip(decoded, markers, strict=True):
        entry: Entry = {
            "offset": record.offset,
            time_name: record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
        }
        if header.base_sequence >= 0:
            entry["sequence"] = header.base_sequence + record.offset - header.base_offset & 0x7FFF_FFFF
        if marker is not None:
            entry |= {"endTxnMarker": marker.type.name, "coordinatorEpoch": marker.coordinator_epoch}
        else:
            entry |= {"headers": list(record.headers), "key": record.key, "payload": record.value}
        yield entry


# ---- the small files


def _offset_index(data: Buffer, base: int) -> Iterator[Entry]:
    whole = len(data) - len(data) % _OFFSET_ENTRY.size
    for number, (relative, position) in enumerate(_OFFSET_ENTRY.iter_unpack(memoryview(data)[:whole])):
        if number and not relative and not position:
            return  # Kafka makes the file of an active segment larger than its content
        yield {"offset": base + relative, "position": position}
    yield from _torn(data, _OFFSET_ENTRY.size)


def _time_index(data: Buffer, base: int) -> Iterator[Entry]:
    whole = len(data) - len(data) % _TIME_ENTRY.size
    for number, (timestamp, relative) in enumerate(_TIME_ENTRY.iter_unpack(memoryview(data)[:whole])):
        if number and not relative and not timestamp:
            return
        yield {"timestamp": timestamp, "offset": base + relative}
    yield from _torn(data, _TIME_ENTRY.size)


def _txn_index(data: Buffer) -> Iterator[Entry]:
    try:
        for entry in decode_entries(data):
            yield {
                "version": 0,
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            }
    except ValueError as error:
        yield {"error": str(error)}
        return
    yield from _torn(data, TXN_ENTRY_BYTES)


def _epochs(data: Buffer) -> Iterator[Entry]:
    try:
        for epoch, start in LeaderEpochs.load(bytes(data)).entries():
            yield {"epoch": epoch, "startOffset": start}
    except ValueError as error:
        yield {"error": str(error)}


def _snapshot(data: Buffer) -> Iterator[Entry]:
    states = ProducerStates()
    try:
        offset = states.load(bytes(data))
    except ValueError as error:
        yield {"error": str(error)}
        return
    yield {"snapshotOffset": offset, "producers": len(states)}
    for producer_id, producer in states.items():
        yield {
            "producerId": producer_id,
            "producerEpoch": producer.epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": producer.txn_first_offset,
            "lastSeenMs": producer.seen_ms,
            "nextSequence": producer.next_sequence,
            "batches": [batch._asdict() for batch in producer.batches()],
        }


def _torn(data: Buffer, entry_bytes: int) -> Iterator[Entry]:
    if rest := len(data) % entry_bytes:
        yield _damage(len(data) - rest, f"{rest} bytes at the end are no whole entry")


def _damage(position: int, error: str) -> Entry:
    return {"position": position, "error": error}


# ---- showing values


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
        if text.isprintable():
            return text
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if isinstance(value, dict):
        return "(" + " ".join(f"{name}: {_plain(item)}" for name, item in value.items()) + ")"
    if isinstance(value, tuple):  # a header
        return "=".join(map(_plain, value))
    if isinstance(value, list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return "null" if value is None else str(value)


def _jsonable(value: object) -> object:
    """Bytes that are no text go as base64, in an object that says so."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return value
