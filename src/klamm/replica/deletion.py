"""Deleting the oldest records of partitions, because a client asks for it: the log's start moves, and stays moved.

What lies below the new start is made durable first, though it is to go: were it lost with the power, the log would end
below its own start and give out offsets again that somebody has read. Then the state file says where the log starts,
then the log does, and last the segments go that are below it as a whole. So nobody ever sees a start that goes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.core.errors import ErrorCode
from klamm.replica.partition import Partition

if TYPE_CHECKING:
    from klamm.log.log import Log
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
    targets: list[tuple[Log, int] | ErrorCode] = []
    for start in range(0, len(asked), MAX_FLUSHES):
        targets += await asyncio.gather(*(_prepare(*one) for one in asked[start : start + MAX_FLUSHES]))
    moving = _farthest(targets)
    if moving:
        try:
            await logs.move_starts(list(moving.items()))
        except OSError:
            targets = [one if isinstance(one, ErrorCode) else ErrorCode.KAFKA_STORAGE_ERROR for one in targets]
    results = [_result(partition, target) for (partition, _), target in zip(asked, targets, strict=True)]
    now_ms = logs.env.clock.time_ms()
    for log in moving:
        logs.delete_old_segments(log, now_ms)
    return results


async def _prepare(partition: Partition, offset: int) -> tuple[Log, int] | ErrorCode:
    """The log, and where it is to start, once what lies below that is durable; or why not."""
    if error := partition.available():
        return error
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= partition.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    log = partition.log
    assert log is not None
    if log.start_offset < target and log.recovery_point < target:
        refused = await log.flush()
        if refused is not None:
            return refused.code
    return log, target


def _farthest(targets: Sequence[tuple[Log, int] | ErrorCode]) -> dict[Log, int]:
    """The logs that have to move, and where to."""
    moving: dict[Log, int] = {}
    for one in targets:
        if not isinstance(one, ErrorCode):
            log, target = one
            if target > moving.get(log, log.start_offset):
                moving[log] = target
    return moving


def _result(partition: Partition, target: tuple[Log, int] | ErrorCode) -> DeletedBelow:
    if isinstance(target, ErrorCode):
        return DeletedBelow(error=target)
    if error := partition.available():  # anything may have happened meanwhile
        return DeletedBelow(error=error)
    return DeletedBelow(target[0].start_offset)
