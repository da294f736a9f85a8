"""The aborted transactions of one segment, in Kafka's `.txnindex` format.

An entry is written when an abort marker is, into the index of the segment that holds the marker. A consumer that reads
committed records gets the entries that overlap with what it fetched and drops those records itself. Most segments have
none: there is no file before the first entry, and no handle is kept. Entries must never go back in their last offset.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.core.env import Buffer, Files

SUFFIX: Final = ".txnindex"

_VERSION: Final = 0
_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">18xq")
ENTRY_BYTES: Final = _ENTRY.size


class IndexDamaged(ValueError):
    """The index has to be rebuilt from the log."""


class AbortedTxn(NamedTuple):
    """`last_offset` is the abort marker's; `last_stable_offset` the one that held just after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entry(entry: AbortedTxn) -> bytes:
    return _ENTRY.pack(_VERSION, *entry)


def decode_entries(data: Buffer) -> Iterator[AbortedTxn]:
    """The whole entries; a torn one at the end is left out."""
    whole = len(data) - len(data) % ENTRY_BYTES
    for version, *fields in _ENTRY.iter_unpack(memoryview(data)[:whole]):
        if version != _VERSION:
            raise IndexDamaged(f"a transaction index entry has version {version}; this broker reads {_VERSION}")
        yield AbortedTxn._make(fields)


class TxnIndex:
    """The entries are read at first use and then kept, packed: 34 bytes for each aborted transaction."""

    __slots__ = ("_data", "_dirty", "_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._data: bytearray | None = None
        self._dirty = False

    def _loaded(self) -> bytearray:
        if self._data is None:
            data = bytearray(self._files.read(self.path)) if self._files.exists(self.path) else bytearray()
            del data[len(data) - len(data) % ENTRY_BYTES :]  # a torn entry; the next write goes over it
            self._data = data
        return self._data

    def entries(self) -> list[AbortedTxn]:
        return list(decode_entries(self._loaded()))

    def append(self, entry: AbortedTxn) -> None:
        data = self._loaded()
        if data:
            last = _ENTRY.unpack_from(data, len(data) - ENTRY_BYTES)[3]
            assert entry.last_offset > last, f"aborted transactions out of order: {entry.last_offset} after {last}"
        encoded = encode_entry(entry)
        file = self._files.open(self.path, create=True)
        try:
            file.pwrite(encoded, len(data))
        finally:
            file.close()
        data += encoded
        self._dirty = True

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions that overlap with [fetch_offset, upper_bound), and whether that is all of them: once the
        last stable offset of an entry has passed the bound, no later one can have started below it."""
        data = self._loaded()
        found: list[AbortedTxn] = []
        if not data:
            return found, False
        for entry in decode_entries(memoryview(data)[self._first_at(fetch_offset) * ENTRY_BYTES :]):
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def _first_at(self, offset: int) -> int:
        """Number of the first entry whose marker is at or after the offset."""
        data = self._loaded()
        return bisect_left(
            range(len(data) // ENTRY_BYTES), offset, key=lambda i: _LAST_OFFSET.unpack_from(data, i * ENTRY_BYTES)[0]
        )

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose marker is at or after the offset."""
        data = self._loaded()
        kept = 0
        for entry in decode_entries(data):
            if entry.last_offset >= offset:
                break
            kept += ENTRY_BYTES
        if kept < len(data):
            self._cut(kept)

    def reset(self) -> None:
        if self._files.exists(self.path):
            self._cut(0)
        self._data = bytearray()

    def _cut(self, size: int) -> None:
        file = self._files.open(self.path)
        try:
            file.truncate(size)
        finally:
            file.close()
        self._dirty = True
        if self._data is not None:
            del self._data[size:]

    def check(self, base_offset: int) -> None:
        """IndexDamaged where the content cannot be right: it is cheap, so it is done for every segment of a recovery
        that is not rebuilt anyway."""
        if self._files.exists(self.path) and self._files.size(self.path) % ENTRY_BYTES:
            raise IndexDamaged("the transaction index ends in the middle of an entry")
        last = base_offset - 1
        for entry in decode_entries(self._loaded()):
            if entry.last_offset <= last or entry.first_offset > entry.last_offset:
                raise IndexDamaged(f"the transaction index is out of order at offset {entry.last_offset}")
            last = entry.last_offset

    def sync(self) -> None:
        """Blocks."""
        if self._dirty:
            file = self._files.open(self.path)
            try:
                file.sync()
            finally:
                file.close()
            self._dirty = False

    def moved_to(self, path: str) -> None:
        """The file was renamed (or would have been, if there were one)."""
        self.path = path

    def remove(self) -> None:
        try:
            self._files.remove(self.path)
        except FileNotFoundError:
            pass
        self._data = None
        self._dirty = False
