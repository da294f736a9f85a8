"""Finding an offset of a partition: by time, or by one of the names that negative timestamps stand for.

Nothing is tiered yet, so the earliest local offset is the log's start, and neither the last tiered one nor the next
to be uploaded exists: both are answered with -1, as Kafka does where tiering is off.
"""

from __future__ import annotations

from klamm.core.errors import ErrorCode
from klamm.log.results import Rejected, TimestampOffset
from klamm.replica.fetch import Limits
from klamm.replica.partition import UNREADABLE, Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_NOWHERE = TimestampOffset(-1, -1, -1)


def find_offset(partition: Partition, timestamp: int, limits: Limits) -> TimestampOffset | ErrorCode:
    """Offset, timestamp and leader epoch, with -1 for what there is not. The partition is `available`."""
    try:
        return _find(partition, timestamp, limits)
    except UNREADABLE:
        return ErrorCode.KAFKA_STORAGE_ERROR


def _find(partition: Partition, timestamp: int, limits: Limits) -> TimestampOffset | ErrorCode:
    log = partition.log
    assert log is not None
    limit = partition.limit(limits)
    if timestamp == LATEST:
        return TimestampOffset(limit, -1, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.start_offset
        # Where there is nothing, the leader's own epoch has begun, as it does for `end_of_epoch`.
        epoch = partition.leader_epoch if start == log.end_offset else log.epochs.epoch_for_offset(start)
        return TimestampOffset(start, -1, epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOWHERE
    found = log.max_timestamp_offset() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp, limit)
    if isinstance(found, Rejected):
        return found.code
    return _NOWHERE if found is None or found.offset >= limit else found
