"""Deleting the oldest records of partitions, because a client asks for it: the log's start moves, and stays moved.

What lies below the new start is made durable first, though it is to go: were it lost with the power, the log would end
below its own start and give out offsets again that somebody has read. Then the start moves, the state file says so,
and the segments that are below it as a whole go. Only when all of that is done does anybody hear of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.core.errors import ErrorCode
from klamm.replica.partition import Partition

if TYPE_CHECKING:
    from klamm.log.manager import LogManager

HIGH_WATERMARK = -1
"""In place of an offset: everything that consumers can see."""
MAX_FLUSHES = 16
"""Logs that are flushed at a time."""


class DeletedBelow(NamedTuple):
    """What came of it: the log's start, or -1 and why not."""

    low_watermark: int = -1
    error: ErrorCode = ErrorCode.NONE


async def delete_records(logs: LogManager, asked: Sequence[tuple[Partition, int]]) -> list[DeletedBelow]:
    """Delete the records of each partition below an offset. One result for each, in the same order."""
    results: list[DeletedBelow] = []
    for start in range(0, len(asked), MAX_FLUSHES):
        results += await asyncio.gather(*(_move_start(*one) for one in asked[start : start + MAX_FLUSHES]))
    try:
        await logs.save_state()
    except OSError:
        return [DeletedBelow(error=one.error or ErrorCode.KAFKA_STORAGE_ERROR) for one in results]
    now_ms = logs.env.clock.time_ms()
    for (partition, _), result in zip(asked, results, strict=True):
        if partition.log is not None and not result.error:
            logs.delete_old_segments(partition.log, now_ms)
    return results


async def _move_start(partition: Partition, offset: int) -> DeletedBelow:
    if error := partition.available():
        return DeletedBelow(error=error)
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= partition.high_watermark:
        return DeletedBelow(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    log = partition.log
    assert log is not None
    if log.start_offset < target and log.recovery_point < target:
        refused = await log.flush()
        if refused is not None:
            return DeletedBelow(error=refused.code)
        if error := partition.available():  # anything may have happened meanwhile
            return DeletedBelow(error=error)
    refused = log.advance_start_offset(target)
    if refused is not None or log.failure is not None:
        return DeletedBelow(error=ErrorCode.KAFKA_STORAGE_ERROR if refused is None else refused.code)
    return DeletedBelow(log.start_offset)
