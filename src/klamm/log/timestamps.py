"""Finding records by their time, through the time index.

Timestamps are the producers' and go up and down, so the answer is the first record, in the order of offsets, that is
at least as late as the one asked for. Here, and only here, the log looks inside of a batch: to tell which of its
records it is. What cannot be decoded is answered with the batch's first offset rather than not at all.
"""

from __future__ import annotations

from klamm.log.results import TimestampOffset
from klamm.log.scan import headers
from klamm.log.segment import Segment
from klamm.log.segments import Segments
from klamm.records.batch import BatchError, BatchHeader, CorruptBatch
from klamm.records.record import Record, decode_records


def first_at_or_after(segments: Segments, timestamp: int, start_offset: int, limit: int) -> TimestampOffset | None:
    """The first record at or after the timestamp, among those from `start_offset` and below `limit`."""
    for segment in segments.items:
        if segment.base_offset >= limit:
            return None
        if segment.next_offset is not None and segment.next_offset <= start_offset:
            continue
        if segment.largest_timestamp() >= timestamp:
            found = _search(segment, timestamp, start_offset, limit)
            if found is not None:
                return found
    return None


def latest(segments: Segments, start_offset: int, limit: int) -> TimestampOffset | None:
    """The record with the largest timestamp, the first of them where several have it."""
    alive = [s for s in segments.items if s.next_offset is None or s.next_offset > start_offset]
    best = max((segment.largest_timestamp() for segment in alive), default=-1)
    return first_at_or_after(segments, best, start_offset, limit) if best >= 0 else None


def _search(segment: Segment, timestamp: int, start_offset: int, limit: int) -> TimestampOffset | None:
    file = segment.open_file()
    for position, header in headers(file, _start(segment, timestamp, start_offset), segment.size):
        if header.base_offset >= limit:
            return None
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        try:
            records = decode_records(file.pread(header.size, position))
        except BatchError:
            return _first_of(header, start_offset)
        found = _first_record(records, timestamp, start_offset)
        if found is not None:
            if found.offset >= limit:
                return None
            return TimestampOffset(found.offset, found.timestamp, header.leader_epoch)
    return None


def _first_record(records: list[Record], timestamp: int, start_offset: int) -> Record | None:
    for record in records:
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return record
    return None  # the header promises more than its records hold


def _first_of(header: BatchHeader, start_offset: int) -> TimestampOffset:
    return TimestampOffset(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)


def _start(segment: Segment, timestamp: int, start_offset: int) -> int:
    """From where to walk: all before it is older. An entry counts only if its batch has the timestamp it names."""
    _, times = segment.indexes()
    i = times.floor(timestamp)
    if i >= 0:
        known, offset = times.entry(i)
        position, header = segment.locate(offset)
        if header is None or header.max_timestamp != known or header.last_offset != offset:
            if segment.growing:
                raise CorruptBatch(f"{segment.path} and its time index do not agree")
            _, times = segment.rebuild_indexes()
            i = times.floor(timestamp)
            position, _ = segment.locate(times.entry(i)[1]) if i >= 0 else (0, None)
        if offset >= start_offset:
            return position
    return segment.locate(start_offset)[0] if segment.base_offset < start_offset else 0
