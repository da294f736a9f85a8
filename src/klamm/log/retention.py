"""Which segments have had their time. Decisions only; the log carries them out."""

from __future__ import annotations

from typing import Final

from klamm.log.config import LogConfig
from klamm.log.segment import Segment
from klamm.log.segments import Segments

MAX_SEGMENTS_AT_ONCE: Final = 100  # renaming takes some 50 us for each, on the loop; the rest waits for the next round


def is_expired(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    """Whether its newest record is older than the retention time. Without timestamps its age in this process counts."""
    if config.retention_ms < 0:
        return False
    newest = segment.largest_timestamp()
    return now_ms - (newest if newest >= 0 else segment.created_ms) > config.retention_ms


def deletable(segments: Segments, config: LogConfig, now_ms: int, start_offset: int, limit_offset: int) -> int:
    """How many of the oldest segments may go: past the retention time, above the retention size, or below the log's
    start. Never the active one, none that reaches above the limit, and none whose end is not flushed yet: until then
    nothing but its batches says where the producers are, and the name of the next segment may not be durable."""
    excess = segments.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else 0
    count = 0
    for segment in segments.items[: MAX_SEGMENTS_AT_ONCE + 1]:
        following = segment.next_offset
        if following is None or following > limit_offset or segment.growing or count == MAX_SEGMENTS_AT_ONCE:
            break
        if segment.size <= excess:
            excess -= segment.size
        elif following > start_offset and not is_expired(segment, config, now_ms):
            break
        count += 1
    return count
