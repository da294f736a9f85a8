"""What a log answers. Plain values: nothing here does anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klamm.core.errors import ErrorCode


class Appended(NamedTuple):
    """The batch has its offsets. It is written once the log's `end_offset` is above `last_offset`."""

    base_offset: int
    last_offset: int
    append_time_ms: int  # -1 where the records keep the time their producer gave them
    duplicate: bool = False  # it was in the log already, at these offsets


class Rejected(NamedTuple):
    code: ErrorCode
    message: str
    records: Sequence[tuple[int, str]] = ()  # which records of the batch were the reason, from 0, and why


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


class LogState(NamedTuple):
    """What a log has to know of itself to open without looking at its files."""

    start_offset: int
    end_offset: int
    recovery_point: int
    high_watermark: int
    clean_offset: int = 0  # all below it has been compacted
