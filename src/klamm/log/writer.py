"""The ordered writer of a log: takes its writes to the executor, one job at a time, in the order they came.

A log writes inline as long as that is quick (a write into the page cache takes microseconds). When the kernel makes
writers wait, because too much is dirty, the loop must not wait with them: the log queues its writes here until the
queue is empty and writes are quick again. Writes that must be synced before they count (flush.messages) come here as
well, and those that queue up meanwhile share one sync. The queue is bounded in bytes; who hits the bound is told to
come again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from klamm.core.env import Clock, Env, File
from klamm.log.flusher import Names
from klamm.log.segment import Segment

SLOW_WRITE_S: Final = 0.020  # a write that takes longer than this would be felt by every other connection
MAX_QUEUED_BYTES: Final = 32 << 20  # for each log
JOB_BYTES: Final = 4 << 20  # written in one job; the rest waits for the next, so that progress is seen


Placed: TypeAlias = tuple[int, int, int, int]
"""A batch that has its place in a segment: position, last offset, largest timestamp, size."""


class Write(NamedTuple):
    segment: Segment
    data: bytes
    batches: Sequence[Placed]


class Done(NamedTuple):
    """What a job has achieved. `error` stopped it in the middle of `writes`."""

    segment: Segment
    writes: list[Write]
    took_s: float
    synced: Names | None  # the names that were synced with the data; None if nothing was
    error: OSError | None


class Writer:
    """All calls on the loop. `report` is called there after each job and says whether the next one has to sync; after a
    failure the queue is the log's to `drop`. `new_names` says which names a synced write has to sync as well."""

    __slots__ = ("_env", "_job", "_new_names", "_queue", "_report", "queued_bytes")

    def __init__(self, env: Env, report: Callable[[Done], bool], new_names: Callable[[], Names]) -> None:
        self._env = env
        self._report = report
        self._new_names = new_names
        self._queue: deque[Write] = deque()
        self._job: asyncio.Future[tuple[float, OSError | None]] | None = None
        self.queued_bytes = 0

    @property
    def idle(self) -> bool:
        return self._job is None and not self._queue

    @property
    def job(self) -> asyncio.Future[tuple[float, OSError | None]] | None:
        """The running one, for whoever wants to wait."""
        return self._job

    def put(self, write: Write, *, sync: bool) -> None:
        self._queue.append(write)
        self.queued_bytes += len(write.data)
        if self._job is None:
            self._start(sync)

    def _start(self, sync: bool) -> None:
        """Start a job with the writes for one segment that are at the head of the queue."""
        segment = self._queue[0].segment
        writes: list[Write] = []
        size = 0
        while self._queue and self._queue[0].segment is segment and size < JOB_BYTES:
            write = self._queue.popleft()
            writes.append(write)
            size += len(write.data)
        try:
            file = segment.open_file()
        except OSError as error:
            self.queued_bytes -= size
            self._report(Done(segment, writes, 0.0, None, error))
            return
        file.pin()
        names = self._new_names() if sync else None
        data = writes[0].data if len(writes) == 1 else b"".join(write.data for write in writes)
        position = writes[0].batches[0][0]
        self._job = self._env.executor.submit(self._write, self._env, file, data, position, names)
        self._job.add_done_callback(lambda job: self._finished(job, segment, writes, size, file, names))

    @staticmethod
    def _write(env: Env, file: File, data: bytes, position: int, names: Names | None) -> tuple[float, OSError | None]:
        """In the executor."""
        clock: Clock = env.clock
        started = clock.monotonic()
        try:
            file.pwrite(data, position)
            took = clock.monotonic() - started
            if names is not None:
                file.sync()
                for folder in names.folders:
                    env.files.sync_dir(folder)
        except OSError as error:
            return clock.monotonic() - started, error
        return took, None

    def _finished(
        self,
        job: asyncio.Future[tuple[float, OSError | None]],
        segment: Segment,
        writes: list[Write],
        size: int,
        file: File,
        names: Names | None,
    ) -> None:
        self._job = None
        self.queued_bytes -= size
        file.unpin()
        if job.cancelled():
            return  # the loop is going down
        took_s, error = job.result()
        sync_next = self._report(Done(segment, writes, took_s, names, error))
        if error is None and self._queue and self._job is None:
            self._start(sync_next)

    def drop(self) -> None:
        """Throw away what is queued; a job that runs goes on."""
        self.queued_bytes -= sum(len(write.data) for write in self._queue)
        self._queue.clear()
