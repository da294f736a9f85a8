"""What is left of one batch: the same bytes, a batch with fewer records, an empty one, or nothing.

A batch keeps its base offset, its last offset and its sequence, whatever it loses. The last batch of a producer that is
still known stays, empty if need be: it has the sequence that the next one must follow. A tombstone, or a marker that
nobody needs any more, stays for `delete.retention.ms` after a round first meets it; until when is written in the
batch's header, in place of the base timestamp (KIP-534). This module must never drop a record that is the last of its
key, other than such a tombstone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.core.env import Buffer
from klamm.log.compaction.transactions import Transactions, read_marker
from klamm.log.txn_index import AbortedTxn
from klamm.records.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    header_bytes,
    seal,
)
from klamm.records.compression import Codec, Compression, compress, decompress
from klamm.records.kernel import Filtered, KeyMap, filter_records

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
_KEPT_WHEN_EMPTY: Final = TRANSACTIONAL | CONTROL


class LastBatch(NamedTuple):
    """The last that a producer has written."""

    last_offset: int  # -1: there is only a marker of this epoch
    epoch: int


class BatchFilter:
    """Asked once for each batch, in the order of offsets. `aborted` has the entry for the transaction index that the
    last batch brought, if it was a marker that brought one."""

    __slots__ = (
        "_compression", "_delete_retention_ms", "_end_offset", "_keys", "_last_markers", "_now_ms", "_producers",
        "_transactions", "aborted", "keyless", "records_kept",
    )  # fmt: skip

    def __init__(
        self,
        keys: KeyMap,
        end_offset: int,
        transactions: Transactions,
        producers: dict[int, LastBatch],
        last_markers: dict[int, int],
        *,
        now_ms: int,
        delete_retention_ms: int,
        compression: Compression | None,
    ) -> None:
        """`keys` knows all below `end_offset`. `last_markers` are offsets, as far as they are known: an earlier marker
        is not its producer's last. `compression` is the topic's, for its level."""
        self._keys = keys
        self._end_offset = end_offset
        self._transactions = transactions
        self._producers = producers
        self._last_markers = last_markers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._compression = compression
        self.aborted: AbortedTxn | None = None
        self.records_kept = 0
        self.keyless = 0  # records that were dropped because they have no key

    def keep(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """What stays of the batch: if it is `batch` itself, all of it. BatchError if it cannot be read."""
        self.aborted = None
        if header.attributes & CONTROL:
            kept = self._keep_marker(header, batch)
            self.records_kept += kept is not None
            return kept
        aborted = self._transactions.is_aborted(header)
        kept = None if aborted or not header.record_count else self._keep_records(header, batch)
        if kept is None and self._is_last_of_producer(header):
            return empty(header) if header.record_count else batch
        return kept

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        known = self._producers.get(header.producer_id)
        if known is None:
            return False
        if known.last_offset >= 0:
            return known.last_offset == header.last_offset
        return (
            header.is_control
            and known.epoch == header.producer_epoch
            and header.base_offset >= self._last_markers.get(header.producer_id, 0)
        )

    # ---- data

    def _keep_records(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        payload = decompress(header.codec, memoryview(batch)[header_bytes:])
        left = self._filter(header, payload, drop_tombstones=self._is_past_horizon(header))
        self.keyless += left.keyless
        self.records_kept += left.kept
        if not left.kept:
            return None
        if left.tombstones and not header.attributes & DELETE_HORIZON:
            return self._with_horizon(header, payload) or self._rebuilt(header, batch, left)
        return self._rebuilt(header, batch, left)

    def _rebuilt(self, header: BatchHeader, batch: Buffer, left: Filtered) -> Buffer:
        if left.kept == header.record_count:
            return batch
        return self._sealed(header, left)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return bool(header.attributes & DELETE_HORIZON) and header.base_timestamp <= self._now_ms

    def _with_horizon(self, header: BatchHeader, payload: bytes) -> bytes | None:
        """None if a client has given timestamps from which there is no way to the horizon: its tombstones stay."""
        horizon = min(self._now_ms + self._delete_retention_ms, _MAX_INT64)
        shift = header.base_timestamp - horizon
        if shift < _MIN_INT64:
            return None
        try:
            left = self._filter(header, payload, timestamp_shift=shift)
        except CorruptBatch:
            return None
        return self._sealed(header, left, horizon)

    def _filter(
        self, header: BatchHeader, payload: bytes, *, drop_tombstones: bool = False, timestamp_shift: int = 0
    ) -> Filtered:
        return filter_records(
            self._keys,
            payload,
            header.record_count,
            base_offset=header.base_offset,
            last_delta=header.last_offset_delta,
            end_offset=0 if header.attributes & CONTROL else self._end_offset,
            drop_tombstones=drop_tombstones,
            timestamp_shift=timestamp_shift,
        )

    def _sealed(self, header: BatchHeader, left: Filtered, horizon: int | None = None) -> bytes:
        codec = Codec(header.codec)
        wanted = self._compression
        payload = compress(codec, left.payload, wanted.level if wanted and wanted.codec == codec else None)
        new = header._replace(record_count=left.kept)
        if not header.attributes & LOG_APPEND_TIME:
            new = new._replace(max_timestamp=header.base_timestamp + left.max_timestamp_delta)
        if horizon is not None:
            new = new._replace(base_timestamp=horizon, attributes=header.attributes | DELETE_HORIZON)
        return seal(new, payload)

    # ---- markers

    def _keep_marker(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        marker = read_marker(header, batch)
        if marker is None:
            return batch if header.record_count else None  # no end of a transaction, or one that Kafka has emptied
        pointless, self.aborted = self._transactions.end(header, marker)
        if not pointless or self._is_last_of_producer(header):
            return batch
        if header.attributes & DELETE_HORIZON:
            return None if self._is_past_horizon(header) else batch
        payload = decompress(header.codec, memoryview(batch)[header_bytes:])
        return self._with_horizon(header, payload) or batch


def empty(header: BatchHeader) -> bytes:
    """The batch without its records: offsets, epochs and sequence only. It has no time: there is nothing to find."""
    attributes = header.attributes & _KEPT_WHEN_EMPTY & ~CODEC_MASK
    return seal(header._replace(attributes=attributes, record_count=0, base_timestamp=-1, max_timestamp=-1), b"")


def filler(base_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """A batch of nobody that holds the place of lost offsets, at the end of a segment: the next one starts behind it,
    so that a missing end is still a sign of damage."""
    delta = last_offset - base_offset
    return seal(BatchHeader(base_offset, 0, leader_epoch, MAGIC, 0, 0, delta, -1, -1, -1, -1, -1, 0), b"")
