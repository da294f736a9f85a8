"""Entries and snapshots as bytes: record batches in Kafka's format v2, so that `klamm log dump` shows them.

The batch's leader epoch is the controller's epoch. The first record of an entry has a header `entry` with its offset
and epoch again (the batch's checksum covers neither) and the offset below which everything was durable when the entry
was written. After a crash that tells a torn tail (nobody was told of it: cut it) from damage to what was safe (stop
and say so).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple

from klamm.core.env import Buffer
from klamm.core.slices import Sliced, at_once
from klamm.metadata.image import EMPTY, Image, to_records
from klamm.metadata.records import MetadataRecord, SnapshotRecord, UnreadableRecord, decode_record, encode_record
from klamm.metadata.replay import replay
from klamm.metadata.store import Entry
from klamm.records import batch
from klamm.records.batch import CorruptBatch
from klamm.records.record import Record, decode_records, encode_batch

SNAPSHOT_SLICE_RECORDS = 500
"""Records in one batch of a snapshot: some 3 ms of work, after which the loop gets a turn."""

ENCODING_SLICE_RECORDS = 500
"""The same for the records of an entry, before they become one batch."""

_ENTRY = "entry"
_entry_header = Struct(">qqi")  # base offset, committed, epoch


class StoredEntry(NamedTuple):
    entry: Entry
    committed: int


def encode_entry(entry: Entry, *, committed: int, now_ms: int) -> bytes:
    header = (_ENTRY, _entry_header.pack(entry.base_offset, committed, entry.epoch))
    encoded = entry.encoded or at_once(encoding_records(entry.records))
    records = [Record(0, now_ms, None, value) for value in encoded]
    records[0] = records[0]._replace(headers=(header,))
    return encode_batch(records, base_offset=entry.base_offset, leader_epoch=entry.epoch)


def encoding_records(records: Sequence[MetadataRecord]) -> Sliced[list[bytes]]:
    encoded: list[bytes] = []
    for start in range(0, len(records), ENCODING_SLICE_RECORDS):
        if start:
            yield
        encoded += [encode_record(record) for record in records[start : start + ENCODING_SLICE_RECORDS]]
    return encoded


def decode_entry(data: Buffer, pos: int) -> StoredEntry:
    """The entry in the batch at `pos`. BatchError if there is none, UnreadableRecord if we cannot understand it."""
    header = batch.read_header(data, pos)
    records = decode_records(data, pos)
    own = dict(records[0].headers).get(_ENTRY) if records else None
    if own is None or len(own) != _entry_header.size:
        raise UnreadableRecord("a batch in the metadata log that is no entry of it")
    base_offset, committed, epoch = _entry_header.unpack(own)
    if (base_offset, epoch) != (header.base_offset, header.leader_epoch):
        raise CorruptBatch(f"offset or epoch of the entry at offset {base_offset} is damaged")
    return StoredEntry(Entry(base_offset, epoch, tuple(_decode(record) for record in records)), committed)


def _decode(record: Record) -> MetadataRecord:
    if record.value is None:
        raise UnreadableRecord(f"the record at offset {record.offset} is empty")
    return decode_record(record.value)


def encode_snapshot(image: Image, now_ms: int) -> Iterator[bytes]:
    """A snapshot in slices; whoever joins them may pause in between, because an image does not change."""
    head = SnapshotRecord(offset=image.offset, epoch=image.epoch, record_count=record_count(image))
    yield encode_batch([Record(0, now_ms, None, encode_record(head))], leader_epoch=image.epoch)
    records = to_records(image)
    base_offset = 1
    while values := [encode_record(record) for record in islice(records, SNAPSHOT_SLICE_RECORDS)]:
        batch_records = [Record(0, now_ms, None, value) for value in values]
        yield encode_batch(batch_records, base_offset=base_offset, leader_epoch=image.epoch)
        base_offset += len(values)


def record_count(image: Image) -> int:
    """How many records `to_records` makes."""
    return (
        (image.controller_id != -1)
        + (image.next_producer_id != 0)
        + len(image.features)
        + len(image.brokers)
        + sum(1 + len(topic.partitions) for topic in image.topics.values())
        + sum(len(configs) for configs in image.configs.values())
        + len(image.acls)
        + sum(len(quotas) for quotas in image.quotas.values())
    )


def decode_snapshot(data: Buffer) -> Image:
    """The image in a snapshot. BatchError or UnreadableRecord if it is not whole."""
    records: list[MetadataRecord] = []
    pos = 0
    while pos < len(data):
        header = batch.read_header(data, pos)
        records.extend(_decode(record) for record in decode_records(data, pos))
        pos += header.size
    head = records[0] if records else None
    if not isinstance(head, SnapshotRecord) or len(records) != head.record_count + 1:
        raise UnreadableRecord("the snapshot is not complete")
    return replay(EMPTY, records[1:], offset=head.offset, epoch=head.epoch)[0]
