"""How dirty a log is, and which of its segments may be compacted. Decisions only, by Kafka's rules.

A log's clean part has been compacted before: in it each key is there once. Behind it comes the dirty part. A round
notes the last offset of every key in the dirty part and then goes through both. It takes whole segments, and never the
active one, nor one that reaches past the high watermark or the last stable offset, that is not durable, or that is
younger than `min.compaction.lag.ms`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.log.config import UNLIMITED, LogConfig
from klamm.log.scan import header_at
from klamm.log.segment import Segment
from klamm.log.segments import Segments

NO_LIMIT_PER_SECOND: Final = 1e15  # what is above it is nobody's limit
MIN_BACKOFF_MS: Final = 10
MIN_MAP_BYTES: Final = 1 << 20  # for each child, as with Kafka
MIN_BUFFER_BYTES: Final = 64 << 10
MAX_BUFFER_BYTES: Final = 16 << 20


class Settings(NamedTuple):
    """The broker's options for compaction: `log.cleaner.*`, with Kafka's defaults."""

    enabled: bool = True
    children: int = 1  # log.cleaner.threads; ours are processes
    backoff_ms: int = 15_000
    map_bytes: int = 128 << 20  # log.cleaner.dedupe.buffer.size, for all children together
    load_factor: float = 0.9
    buffer_bytes: int = 512 << 10
    bytes_per_second: float = NO_LIMIT_PER_SECOND

    def for_each_map(self) -> int:
        return max(MIN_MAP_BYTES, int(self.map_bytes / max(1, self.children) * min(max(self.load_factor, 0.1), 1.0)))

    def for_each_buffer(self) -> int:
        return min(max(MIN_BUFFER_BYTES, self.buffer_bytes // max(1, self.children) // 2), MAX_BUFFER_BYTES)


class Dirt(NamedTuple):
    """What a round through a log would find."""

    first_dirty: int
    segments: list[Segment]  # from the log's first one on, all that may be compacted
    following: list[int]  # where those behind them start
    dirty_bytes: int
    ratio: float  # how much of these is dirty
    overdue: bool  # something dirty is older than max.compaction.lag.ms

    def is_due(self, config: LogConfig) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_ratio)


def assess(
    segments: Segments, config: LogConfig, clean_offset: int, start_offset: int, limit_offset: int, now_ms: int
) -> Dirt:
    """Nothing at or above the limit may be compacted. May read the ends of some segments: OSError, CorruptBatch."""
    items = segments.items
    if len(items) < 2:
        return Dirt(start_offset, [], [], 0, 0.0, False)
    first_dirty = clean_offset if start_offset <= clean_offset <= items[-1].base_offset else start_offset
    chosen: list[Segment] = []
    clean_bytes = dirty_bytes = 0
    for segment in items[:-1]:
        if not _is_settled(segment, limit_offset) or _is_young(segment, config, now_ms, first_dirty):
            break
        chosen.append(segment)
        assert segment.next_offset is not None
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
    ratio = dirty_bytes / (clean_bytes + dirty_bytes) if dirty_bytes else 0.0
    following = [segment.base_offset for segment in items[len(chosen) :]]
    overdue = _is_overdue(chosen, config, first_dirty, now_ms)
    return Dirt(first_dirty, chosen, following, dirty_bytes, ratio, overdue)


def _is_settled(segment: Segment, limit_offset: int) -> bool:
    return segment.next_offset is not None and segment.next_offset <= limit_offset and not segment.growing


def _is_young(segment: Segment, config: LogConfig, now_ms: int, first_dirty: int) -> bool:
    assert segment.next_offset is not None
    if config.min_compaction_lag_ms <= 0 or segment.next_offset <= first_dirty:
        return False
    return segment.largest_timestamp() > now_ms - config.min_compaction_lag_ms


def _is_overdue(chosen: list[Segment], config: LogConfig, first_dirty: int, now_ms: int) -> bool:
    """A segment is as old as its first batch."""
    lag_ms = max(config.max_compaction_lag_ms, config.min_compaction_lag_ms)
    if lag_ms >= UNLIMITED:
        return False
    for segment in chosen:
        assert segment.next_offset is not None
        if segment.next_offset > first_dirty and segment.size:
            if segment.first_timestamp < 0:
                segment.first_timestamp = header_at(segment.open_file(), 0).max_timestamp
            if 0 < segment.first_timestamp < now_ms - lag_ms:
                return True
    return False
