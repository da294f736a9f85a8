"""A log in memory that does what a test tells it to, where the real one would need a slow or a broken disk."""

from __future__ import annotations

from collections.abc import Callable

from klamm.core.env import FileRange
from klamm.core.errors import ErrorCode
from klamm.log.epochs import LeaderEpochs
from klamm.log.results import Appended, Rejected


class FakeLog:
    """Each append is one record of `len(records)` bytes. With `queueing`, `end_offset` waits for `write`."""

    def __init__(self, queueing: bool = False) -> None:
        self.queueing = queueing
        self.sizes: list[int] = []
        self.start_offset = 0
        self.end_offset = 0
        self.failure: str | None = None
        self.listener: Callable[[FakeLog], None] | None = None
        self.epochs = LeaderEpochs()
        self.stable: int | None = None
        self.reads = 0

    def append(self, records: bytes, *, leader_epoch: int) -> Appended | Rejected:
        if self.failure:
            return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        offset = len(self.sizes)
        self.sizes.append(len(records))
        self.epochs.assign(leader_epoch, offset)
        if not self.queueing:
            self.end_offset = len(self.sizes)
        return Appended(offset, offset, -1)

    def write(self, count: int = 1) -> None:
        """The disk has caught up by some records."""
        self.end_offset += count
        assert self.listener is not None
        self.listener(self)

    def fail(self) -> None:
        self.failure = "the disk is gone"
        assert self.listener is not None
        self.listener(self)

    def read(self, offset: int, max_bytes: int, *, limit: int, min_one: bool = True) -> FileRange | Rejected | None:
        self.reads += 1
        if not self.start_offset <= offset <= self.end_offset:
            return Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, "")
        if offset >= limit:
            return None
        size = sum(self.sizes[offset:limit])
        if size > max_bytes:
            size = max(max_bytes, self.sizes[offset] if min_one else 0)
        return FileRange(None, sum(self.sizes[:offset]), size)  # type: ignore[arg-type]

    def last_stable_offset(self, high_watermark: int) -> int:
        return high_watermark if self.stable is None else min(self.stable, high_watermark)

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        return []
