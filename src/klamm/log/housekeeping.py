"""What happens to logs by the clock: retention, flush.ms, expiry of producers, the state file.

Each job runs on the loop in slices and hands what blocks to the executor. A job that fails is logged and comes again;
a log that fails is that log's matter. Nothing here decides anything about a log: it only asks the log to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from klamm.log.log import Log
    from klamm.log.manager import LogManager

SLICE: Final = 100  # logs looked at before the loop gets its turn: about 0.3 ms
RETENTION_SLICE: Final = 20  # the same, where a log may have to look into its folder
MAX_FLUSHES: Final = 4  # fsyncs of flush.ms at a time: the executor has other work too
FLUSH_CHECK_MS: Final = 1_000
MIN_FLUSH_CHECK_MS: Final = 10

T = TypeVar("T")

logger = logging.getLogger("klamm.log")


class Intervals(NamedTuple):
    """How often each job runs. Kafka's defaults, and its names with dots for underscores."""

    log_retention_check_interval_ms: int = 300_000
    log_initial_task_delay_ms: int = 30_000
    producer_id_expiration_check_interval_ms: int = 600_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000


DEFAULT_INTERVALS: Final = Intervals()


class Periodic:
    """Runs a job again and again with a pause between; the job says how long, or gives None for the usual one."""

    __slots__ = ("_interval_ms", "_job", "_name", "_stopped", "_task", "_timer")

    def __init__(self, name: str, interval_ms: int, job: Callable[[], Awaitable[int | None]]) -> None:
        self._name = name
        self._interval_ms = interval_ms
        self._job = job
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self, delay_ms: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        pause = None
        try:
            pause = await self._job()
        except Exception:
            logger.exception("The background job %r failed; it is tried again.", self._name)
        if not self._stopped:
            self.start(self._interval_ms if pause is None else pause)

    async def stop(self) -> None:
        """The job is let finish: what it has in the executor cannot be called back."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task


class Housekeeping:
    __slots__ = ("_jobs", "_manager")

    def __init__(self, manager: LogManager, intervals: Intervals) -> None:
        self._manager = manager
        self._jobs = [
            (Periodic("retention", intervals.log_retention_check_interval_ms, self.retain),
             min(intervals.log_initial_task_delay_ms, intervals.log_retention_check_interval_ms)),
            (Periodic("flush.ms", FLUSH_CHECK_MS, self.flush), FLUSH_CHECK_MS),
            (Periodic("producer expiry", intervals.producer_id_expiration_check_interval_ms, self.expire),
             intervals.producer_id_expiration_check_interval_ms),
            (Periodic("state file", intervals.log_flush_offset_checkpoint_interval_ms, self.save),
             intervals.log_flush_offset_checkpoint_interval_ms),
        ]  # fmt: skip

    def start(self) -> None:
        for job, delay_ms in self._jobs:
            job.start(delay_ms)

    async def stop(self) -> None:
        for job, _ in self._jobs:
            await job.stop()

    async def retain(self) -> None:
        manager = self._manager
        now_ms = manager.env.clock.time_ms()
        for some in sliced(manager.logs(), RETENTION_SLICE):
            for log in some:
                _guarded(manager.delete_old_segments, log, now_ms)
            await asyncio.sleep(0)
        await manager.retain_unopened(now_ms)

    async def flush(self) -> int:
        """Flush what was written longer ago than flush.ms; returns when the next log is due."""
        pause = FLUSH_CHECK_MS
        due: list[Log] = []
        now_ms = self._manager.env.clock.time_ms()
        for some in sliced(self._manager.logs(), SLICE):
            for log in some:
                since = log.dirty_since_ms
                if since >= 0 and log.failure is None:
                    left = since + log.config.flush_ms - now_ms
                    if left <= 0:
                        due.append(log)
                    elif left < pause:
                        pause = left
            await asyncio.sleep(0)
        for group in sliced(due, MAX_FLUSHES):
            await asyncio.gather(*(log.flush() for log in group))
        return max(pause, MIN_FLUSH_CHECK_MS)

    async def expire(self) -> None:
        now_ms = self._manager.env.clock.time_ms()
        for some in sliced(self._manager.logs(), SLICE):
            while some:
                some = [log for log in some if log.expire_producers(now_ms)]
                await asyncio.sleep(0)

    async def save(self) -> None:
        await self._manager.save_state()


def _guarded(job: Callable[..., object], *args: object) -> None:
    """One log's trouble must not keep the others waiting."""
    try:
        job(*args)
    except Exception:
        logger.exception("A background job failed for one log; the others go on.")


def sliced(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some
