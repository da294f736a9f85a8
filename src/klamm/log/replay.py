"""Bringing the producers' state up to a log's end: a snapshot, then the batches after it. And epochs, likewise.

The same few lines apply a batch to the state wherever it comes from: written here, replicated, or read again after a
restart or a truncation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from klamm.core.env import Files
from klamm.log.epochs import CHECKPOINT_NAME, LeaderEpochs
from klamm.log.producer_state import ProducerStates
from klamm.log.scan import headers
from klamm.log.segment import Segment
from klamm.log.segments import Segments
from klamm.log.txn_index import AbortedTxn
from klamm.records.batch import CONTROL, BatchHeader
from klamm.records.record import ControlType, EndMarker, decode_control, decode_records


def end_marker(body: bytes | bytearray | memoryview) -> EndMarker | None:
    """What a control batch says; None if it is not about a transaction."""
    records = decode_records(body)
    return decode_control(records[0]) if records else None


def apply(producers: ProducerStates, header: BatchHeader, body: Callable[[], bytes], now_ms: int) -> AbortedTxn | None:
    """Take in a batch that has a producer id and is in the log; an entry for the transaction index if it aborts one."""
    if not header.attributes & CONTROL:
        producers.update(header, header.base_offset, header.last_offset, now_ms)
        return None
    marker = end_marker(body())
    if marker is None:
        return None
    return producers.end_transaction(
        header,
        header.base_offset,
        commit=marker.type == ControlType.COMMIT,
        coordinator_epoch=marker.coordinator_epoch,
        now_ms=now_ms,
    )


def newest_snapshot(files: Files, segments: Segments, offset: int) -> tuple[ProducerStates, int]:
    """The state of the newest sound snapshot at or below the offset, and where to replay from."""
    producers = ProducerStates()
    for snapshot in reversed(segments.snapshots):
        if snapshot > offset:
            continue
        try:
            return producers, producers.load(files.read(segments.snapshot_path(snapshot)))
        except (ValueError, FileNotFoundError):
            continue  # damaged: an older one and more batches give the same state
    return producers, segments.items[0].base_offset if segments.items else offset


def producers_at(files: Files, segments: Segments, end_offset: int, now_ms: int) -> ProducerStates:
    """The state of a log that ends at this offset. Blocks for as long as there are batches after the snapshot."""
    producers, offset = newest_snapshot(files, segments, end_offset)
    replay(segments, producers, offset, end_offset, now_ms)
    return producers


def replay(segments: Segments, producers: ProducerStates, start: int, end: int, now_ms: int) -> None:
    """Apply the batches from `start` and below `end`. The transaction index has them already."""
    for segment in segments.items[max(0, segments.at(start)) :]:
        if segment.base_offset >= end or start >= end:
            return
        position, _ = segment.locate(start)
        file = segment.open_file()
        for at, header in headers(file, position, segment.size):
            if header.base_offset >= end:
                return
            if header.producer_id >= 0 and header.base_offset >= start:
                apply(producers, header, partial(file.pread, header.size, at), now_ms)


def load_epochs(files: Files, folder: str, segments: Sequence[Segment]) -> tuple[LeaderEpochs, bool]:
    """The leader epochs from their checkpoint; from the batches of the segments if it is damaged or gone, and then
    it has to be written again (True)."""
    try:
        return LeaderEpochs.load(files.read(f"{folder}/{CHECKPOINT_NAME}")), False
    except (FileNotFoundError, ValueError):
        pass
    epochs = LeaderEpochs()
    for segment in segments:
        for _, header in headers(segment.open_file(), 0, segment.size):
            if header.leader_epoch >= 0:
                epochs.assign(header.leader_epoch, header.base_offset)
    return epochs, True
