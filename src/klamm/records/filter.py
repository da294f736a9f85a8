"""What compaction does inside a batch: note the last offset of every key, then keep only the records that count.

This is the pure twin of `klamm.records._native`; `klamm.records.kernel` picks one of the two, and everybody imports
from there. Both pass the same tests: what this module does is what the native one has to do.

All functions work on a batch's payload: the bytes behind its header, uncompressed. With it go three fields of the
header: `count` (record_count), `last_delta` (last_offset_delta) and mostly `base_offset`. Payloads are trusted in
nothing; what is no sequence of exactly `count` records with growing offsets raises CorruptBatch. Headers of records are
carried along unread. Nothing here does I/O, reads a clock or makes up a seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from klamm.core.env import Buffer
from klamm.records import batch
from klamm.records.batch import CorruptBatch
from klamm.records.varint import read_varint, read_varlong, write_varint

MAX_PAYLOAD_BYTES = 1 << 30
"""So that positions and lengths fit into 32 bits, also after timestamps have been written anew."""
SEED_BYTES = 16

_MIN_BODY_BYTES = batch.min_record_bytes - 1  # a record without its own length
_HASH_BYTES = 16
_MIN_INT64 = -(1 << 63)
_MAX_INT64 = (1 << 63) - 1


class KeyMap:
    """The last offset of each key, in a memory that is bounded: keys are kept as 16-byte hashes, never themselves.

    Two keys with one hash would be taken for the same and a record lost. That takes 2^64 keys by chance; and as the
    hash is keyed with `seed`, which should be random and secret, nobody can make a pair on purpose."""

    __slots__ = ("_hash", "_offsets", "capacity")

    bytes_per_key: Final = 192
    """A hash, an offset and their share of a dict at its worst moment, which is when it grows."""

    capacity: int
    """How many keys there is room for."""

    def __init__(self, memory_bytes: int, seed: bytes) -> None:
        from hashlib import blake2b  # brings OpenSSL along, and a broker without compacted topics needs it for nothing

        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed of {len(seed)} bytes instead of {SEED_BYTES}")
        self.capacity = memory_bytes // self.bytes_per_key
        if self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes hold no key")
        self._hash = partial(blake2b, digest_size=_HASH_BYTES, key=bytes(seed))
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        """Whether no further key has room. Those that are there still take newer offsets."""
        return len(self._offsets) >= self.capacity

    def put(self, key: Buffer, offset: int) -> bool:
        """Note an offset of 0 or more, unless a higher one is there; False if the key is new and has no room."""
        if offset < 0:
            raise ValueError(f"offset {offset}")
        digest = self._hash(key).digest()
        before = self._offsets.get(digest)
        if before is None:
            if self.full:
                return False
        elif before >= offset:
            return True
        self._offsets[digest] = offset
        return True

    def get(self, key: Buffer) -> int:
        """The last offset of a key, -1 if it has none."""
        return self._offsets.get(self._hash(key).digest(), -1)

    def clear(self) -> None:
        self._offsets.clear()


class Entry(NamedTuple):
    """A record as compaction sees it."""

    start: int  # where it begins in the payload, with its length
    body: int  # where it begins behind its length
    end: int
    timestamp_end: int  # where the timestamp delta ends; it begins at body + 1
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool


class Filtered(NamedTuple):
    """What is left of a batch."""

    payload: bytes
    kept: int
    tombstones: int
    """How many of the records kept have no value."""
    keyless: int
    """How many records were dropped because they have no key."""
    max_timestamp_delta: int
    """The highest timestamp delta of the records kept, before any shift; 0 if there are none."""
    max_timestamp_offset_delta: int
    """The offset delta of the first record that has it; -1 if there is none."""


def check_base(base_offset: int, last_delta: int) -> None:
    if not 0 <= base_offset < _MAX_INT64 - last_delta:  # the checksum does not cover it
        raise CorruptBatch(f"a batch at offset {base_offset} with {last_delta} more")


def check_count(size: int, count: int, last_delta: int) -> None:
    if size > MAX_PAYLOAD_BYTES:
        raise CorruptBatch(f"{size} bytes of records are too many")
    if last_delta < 0:
        raise CorruptBatch(f"a last offset delta of {last_delta}")
    if count < 0 or count * batch.min_record_bytes > size:
        raise CorruptBatch(f"{size} bytes cannot hold {count} records")


def entries(payload: Buffer, count: int, last_delta: int) -> Iterator[Entry]:
    """All records of a payload. CorruptBatch may come after some of them have been handed out."""
    body, size = bytes(payload), len(payload)
    check_count(size, count, last_delta)
    pos, last = 0, -1
    try:
        for _ in range(count):
            entry = _entry(body, pos)
            if not last < entry.offset_delta <= last_delta:
                raise CorruptBatch(f"offset delta {entry.offset_delta} after {last}, of {last_delta}")
            pos, last = entry.end, entry.offset_delta
            yield entry
    except IndexError:
        raise CorruptBatch("a record ends too early") from None
    except ValueError as error:
        raise CorruptBatch(f"a record is malformed: {error}") from None
    if pos != size:
        raise CorruptBatch(f"{size - pos} bytes are left after the last record")


def _entry(data: bytes, start: int) -> Entry:
    length, body = read_varint(data, start)
    end = body + length
    if length < _MIN_BODY_BYTES or end > len(data):
        raise CorruptBatch(f"a record of {length} bytes where {len(data) - body} are left")
    timestamp_delta, timestamp_end = read_varlong(data, body + 1)
    offset_delta, pos = read_varint(data, timestamp_end)
    key_bytes, pos = read_varint(data, pos)
    key = None
    if key_bytes >= 0:
        key = data[pos : pos + key_bytes]
        pos += key_bytes
    value_bytes, pos = read_varint(data, pos)
    if key_bytes < -1 or value_bytes < -1 or pos + max(value_bytes, 0) >= end:  # the number of headers is behind it
        raise CorruptBatch(f"a key of {key_bytes} and a value of {value_bytes} bytes in a record of {length}")
    fields = (start, body, end, timestamp_end, offset_delta, timestamp_delta, key, value_bytes >= 0)
    return tuple.__new__(Entry, fields)  # the constructor of a NamedTuple costs three times as much


def add_keys(
    keys: KeyMap, payload: Buffer, count: int, *, base_offset: int, last_delta: int, start_offset: int = 0
) -> int:
    """Note the offsets of all records with keys, from `start_offset` on. Returns the offset up to which everything of
    this batch is in the map: that behind the batch or, if the map is full, that of the first record with no room.

    After CorruptBatch the map has some of the batch's keys and is of no use any more."""
    check_base(base_offset, last_delta)
    for entry in entries(payload, count, last_delta):
        offset = base_offset + entry.offset_delta
        if entry.key is not None and offset >= start_offset and not keys.put(entry.key, offset):
            return offset
    return base_offset + last_delta + 1


def filter_records(
    keys: KeyMap,
    payload: Buffer,
    count: int,
    *,
    base_offset: int,
    last_delta: int,
    end_offset: int,
    drop_tombstones: bool = False,
    timestamp_shift: int = 0,
) -> Filtered:
    """The records that survive compaction, each as it was, byte for byte.

    From `end_offset` on, where the map knows nothing, all do. Before it those do that have a key of which the map has
    no higher offset; and if `drop_tombstones`, a value. `timestamp_shift` is added to every timestamp delta: a batch
    that gets a delete horizon keeps it where its base timestamp was, and moves its timestamps by old minus new base.
    """
    check_base(base_offset, last_delta)
    data = bytes(payload)
    out = bytearray()
    kept = tombstones = keyless = top = 0
    top_offset_delta = -1
    for entry in entries(data, count, last_delta):
        offset = base_offset + entry.offset_delta
        if offset < end_offset:
            if entry.key is None:
                keyless += 1
                continue
            if keys.get(entry.key) > offset or (drop_tombstones and not entry.has_value):
                continue
        kept += 1
        tombstones += not entry.has_value
        if entry.timestamp_delta > top or top_offset_delta < 0:
            top, top_offset_delta = entry.timestamp_delta, entry.offset_delta
        if timestamp_shift:
            _write_shifted(out, data, entry, entry.timestamp_delta + timestamp_shift)
        else:
            out += data[entry.start : entry.end]
    return Filtered(bytes(out), kept, tombstones, keyless, top, top_offset_delta)


def _write_shifted(out: bytearray, data: bytes, entry: Entry, timestamp_delta: int) -> None:
    if not _MIN_INT64 <= timestamp_delta <= _MAX_INT64:
        raise CorruptBatch("a timestamp of more than 64 bits")
    head = bytearray(data[entry.body : entry.body + 1])  # attributes
    write_varint(head, timestamp_delta)
    write_varint(out, len(head) + entry.end - entry.timestamp_end)
    out += head
    out += data[entry.timestamp_end : entry.end]


def keyless(payload: Buffer, count: int, last_delta: int) -> list[int]:
    """Which records, counted from 0, have no key: what a compacted topic refuses."""
    return [index for index, entry in enumerate(entries(payload, count, last_delta)) if entry.key is None]
