"""Which log is compacted next, and all of it that happens on the loop.

Every `log.cleaner.backoff.ms` the logs that are dirty enough are compacted, the dirtiest first, as many at a time as
there may be children (`log.cleaner.threads`). The reading and writing is the child's (`work`); here are the swaps, the
brake (`log.cleaner.io.max.bytes.per.second`) and what to do when something goes wrong: the log itself stays in service,
and is tried again later, or set aside if that makes no sense. This module must never decide what is kept of a log.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from klamm.core.env import Child, ChildFailed, Files
from klamm.log.compaction import swap as swaps
from klamm.log.compaction.plan import MIN_BACKOFF_MS, NO_LIMIT_PER_SECOND, Dirt, Settings
from klamm.log.compaction.swap import Swap
from klamm.log.config import LogConfig
from klamm.log.housekeeping import Periodic, sliced
from klamm.log.segment import PASSING, Segment
from klamm.records.batch import BatchError

if TYPE_CHECKING:
    from klamm.log.compaction.batches import LastBatch
    from klamm.log.compaction.work import Cleaned, Finished, Noted, Task
    from klamm.log.log import Log
    from klamm.log.manager import LogManager

SLICE: Final = 100  # logs looked at before the loop gets its turn
PRODUCERS_SLICE: Final = 5_000
LOOK_AGAIN_MS: Final = 3_600_000  # at logs that nobody has used since the start: they only grow older
MAX_ATTEMPTS: Final = 3  # that fail one after another, for reasons that may pass or may not

_PASSES: Final = PASSING | {errno.ENOENT}  # retention has taken a segment away meanwhile

_logger = logging.getLogger("klamm.log")


class Counters:
    """For metrics; since the start."""

    __slots__ = ("bytes_read_and_written", "failures", "rounds", "seconds", "segments_in", "segments_out")

    def __init__(self) -> None:
        self.rounds = 0
        self.failures = 0
        self.seconds = 0.0
        self.bytes_read_and_written = 0
        self.segments_in = 0
        self.segments_out = 0


class Cleaner:
    __slots__ = (
        "_attempts", "_children", "_looked_at_ms", "_manager", "_periodic", "_stopped", "counters", "max_dirty_ratio",
        "uncleanable",
    )  # fmt: skip

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._periodic = Periodic("compaction", self.settings.backoff_ms, self.run)
        self._stopped = asyncio.Event()
        self._children: set[Child] = set()
        self._attempts: dict[Log, int] = {}  # failed ones in a row
        self._looked_at_ms = -LOOK_AGAIN_MS  # at the logs that nobody uses
        self.uncleanable: set[Log] = set()
        self.max_dirty_ratio = 0.0  # of the last look at all logs
        self.counters = Counters()

    @property
    def settings(self) -> Settings:
        return self._manager.cleaning

    def start(self) -> None:
        self._periodic.start(self._pause_ms())

    async def stop(self) -> None:
        """A round that runs is given up; a swap that has begun is finished."""
        self._stopped.set()
        for child in list(self._children):
            await child.stop()
        await self._periodic.stop()

    async def run(self) -> int:
        """Compact what is dirty enough now; returns when to look again."""
        settings = self.settings
        if settings.enabled and settings.children > 0:
            queue = deque(await self._dirtiest())
            workers = [self._work(queue) for _ in range(min(settings.children, len(queue)))]
            for outcome in await asyncio.gather(*workers, return_exceptions=True):
                if outcome is not None:
                    raise outcome  # now that nobody is left behind with a log
        return self._pause_ms()

    def _pause_ms(self) -> int:
        return max(self.settings.backoff_ms, MIN_BACKOFF_MS)

    async def _work(self, queue: deque[Log]) -> None:
        while queue and not self._stopped.is_set():
            log = queue.popleft()
            if await self.compact(log):
                queue.append(log)  # the map was too small for all keys: another round, when it is its turn

    # ---- looking

    async def _dirtiest(self) -> list[Log]:
        manager = self._manager
        now_ms = manager.env.clock.time_ms()
        unused = now_ms - self._looked_at_ms >= LOOK_AGAIN_MS
        if unused:
            self._looked_at_ms = now_ms
            await manager.visit_unopened(_is_compacted, lambda log: self._due(log, now_ms) is not None)
        found: list[tuple[float, Log]] = []
        ratios = [0.0]
        for some in sliced(manager.logs(), SLICE):
            for log in some:
                if log.config.compact and (log.touched or unused) and (dirt := self._dirt(log, now_ms)) is not None:
                    ratios.append(dirt.ratio)
                    if dirt.is_due(log.config):
                        found.append((dirt.ratio, log))
            await asyncio.sleep(0)
        self.max_dirty_ratio = max(ratios)
        known = set(manager.logs())
        self.uncleanable &= known
        self._attempts = {log: count for log, count in self._attempts.items() if log in known}
        found.sort(key=lambda entry: -entry[0])
        return [log for _, log in found]

    def _dirt(self, log: Log, now_ms: int) -> Dirt | None:
        if log.failure is not None or log in self.uncleanable:
            return None
        try:
            return log.dirt(self._manager.watermark(log), now_ms)
        except (OSError, BatchError) as error:
            self._failed(log, f"its segments cannot be looked at: {error}")
            return None

    def _due(self, log: Log, now_ms: int) -> Dirt | None:
        dirt = self._dirt(log, now_ms)
        return dirt if dirt is not None and dirt.is_due(log.config) else None

    # ---- one round through one log

    async def compact(self, log: Log) -> bool:
        """Whether there is more to do at once."""
        manager = self._manager
        env = manager.env
        dirt = self._due(log, env.clock.time_ms())
        if dirt is None or not manager.in_use(log):
            return False
        begun = env.clock.monotonic()
        task = await self._task(log, dirt)
        try:
            # what is compacted must not be read again after a crash: producers and epochs are not all in there any more
            await manager.save_state()
            return await self._run(log, dirt, task)
        except (ChildFailed, OSError) as error:
            if not self._stopped.is_set() and manager.in_use(log):
                self._failed(log, str(error), passes=error.errno in _PASSES)
            return False
        finally:
            self.counters.seconds += env.clock.monotonic() - begun
            await env.executor.submit(_tidy, env.files, log.path, task.token)

    async def _task(self, log: Log, dirt: Dirt) -> Task:
        from klamm.log.compaction.batches import LastBatch
        from klamm.log.compaction.work import Source, Task

        env, config, settings = self._manager.env, log.config, self.settings
        sources = [Source(s.base_offset, s.next_offset or 0, s.size) for s in dirt.segments]
        producers: dict[int, LastBatch] = {}
        for some in sliced(list(log.producers.items()), PRODUCERS_SLICE):
            for producer_id, producer in some:
                producers[producer_id] = LastBatch(producer.last_data_offset(), producer.epoch)
            await asyncio.sleep(0)
        return Task(
            folder=log.path,
            token=env.uuid().hex(),
            sources=sources,
            following=dirt.following,
            first_dirty=dirt.first_dirty,
            producers=producers,
            seed=env.rng.randbytes(16),
            now_ms=env.clock.time_ms(),
            map_bytes=settings.for_each_map(),
            buffer_bytes=settings.for_each_buffer(),
            segment_bytes=config.segment_bytes,
            max_index_bytes=config.max_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            delete_retention_ms=config.delete_retention_ms,
            compression=config.compression,
        )

    async def _run(self, log: Log, dirt: Dirt, task: Task) -> bool:
        from klamm.log.compaction import work

        env = self._manager.env
        child = await env.processes.start(work.compact, env.files, task)
        self._children.add(child)
        brake = _Brake(self)
        noted = work.Noted(dirt.first_dirty, 0)
        try:
            while not self._stopped.is_set() and (step := await child.next()) is not None:
                if self._stopped.is_set() or not self._manager.in_use(log):
                    return False
                if isinstance(step, work.Progress):
                    self.counters.bytes_read_and_written += step.size
                    await brake.after(step.size)
                elif isinstance(step, work.Noted):
                    noted = step
                elif isinstance(step, work.Cleaned):
                    if not await self._swap_in(log, dirt, step, task.token):
                        return False
                elif isinstance(step, work.Damaged):
                    self._set_aside(log, step.reason)
                    return False
                else:
                    return self._finished(log, dirt, noted, step)
        finally:
            self._children.discard(child)
            await child.stop()
        return False

    def _finished(self, log: Log, dirt: Dirt, noted: Noted, done: Finished) -> bool:
        self._attempts.pop(log, None)
        self.counters.rounds += 1
        log.clean_offset = noted.end_offset
        _logger.info(
            "Compacted %s up to offset %d: %d of %d records are left.",
            log.name, noted.end_offset, done.records_kept, done.records_read,
        )  # fmt: skip
        if done.keyless:
            _logger.warning("Compaction of %s has removed %d records that had no key.", log.name, done.keyless)
        whole = dirt.segments[-1].next_offset
        return whole is not None and dirt.first_dirty < noted.end_offset < whole

    # ---- swapping

    async def _swap_in(self, log: Log, dirt: Dirt, cleaned: Cleaned, token: str) -> bool:
        """Whether the round may go on: one whose segments could not be put in must not go further, since what comes
        later may be tombstones for what stays in these. What is below the log's start is nobody's concern any more."""
        self.counters.segments_in += len(cleaned.sources)
        self.counters.segments_out += 1
        if not cleaned.size or cleaned.sources[-1].next_offset <= log.start_offset:
            return True
        bases = [source.base_offset for source in cleaned.sources]
        old = [segment for segment in dirt.segments if bases[0] <= segment.base_offset <= bases[-1]]
        swap = Swap(token, bases, cleaned.size, cleaned.has_aborted)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        log.swapping = done
        try:
            return await self._swap(log, old, swap)
        finally:
            log.swapping = None
            done.set_result(None)

    async def _swap(self, log: Log, old: list[Segment], swap: Swap) -> bool:
        env, folder = self._manager.env, log.path
        submit = env.executor.submit
        # Held open until the swap is over, and closed in a thread: the kernel frees a large file with its last close.
        held = await submit(partial(env.files.open, old[0].path, readonly=True))
        try:
            try:
                await submit(swaps.decide, env.files, folder, swap, lambda: log.failure is not None)
                put_in_place = partial(swaps.put_in_place, env.files, folder, swap)
                replaced = self._manager.in_use(log) and log.replace(old, swap.size, put_in_place)
            except OSError:
                if log.failure is None:
                    await self._revoke(log, swap)
                raise
            if not replaced:
                await self._revoke(log, swap)
                return False
            await submit(swaps.clear_up, env.files, folder, swap, lambda: log.failure is not None)
        finally:
            await submit(held.close)
        return True

    async def _revoke(self, log: Log, swap: Swap) -> None:
        """A note that cannot be taken back would be carried out by the next start, whatever the log is then."""
        env = self._manager.env
        try:
            await env.executor.submit(swaps.revoke, env.files, log.path, swap)
        except FileNotFoundError:
            pass  # the folder is gone
        except OSError as error:
            log.fail(f"compaction cannot be called off: {error}")

    # ---- failing

    def _failed(self, log: Log, reason: str, *, passes: bool = False) -> None:
        attempts = self._attempts[log] = self._attempts.get(log, 0) + 1
        self.counters.failures += 1
        if attempts >= MAX_ATTEMPTS and not passes:
            self._set_aside(log, reason)
        else:
            _logger.warning("Compaction of %s has failed and is tried again: %s", log.name, reason)

    def _set_aside(self, log: Log, reason: str) -> None:
        self.uncleanable.add(log)
        _logger.error("The log %s cannot be compacted and is left as it is until the next start: %s", log.name, reason)


class _Brake:
    """Keeps a child below its share of the bytes a second that compaction may read and write."""

    __slots__ = ("_begun", "_cleaner", "_clock", "_size")

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        self._clock = cleaner._manager.env.clock
        self._begun = self._clock.monotonic()
        self._size = 0

    async def after(self, size: int) -> None:
        settings = self._cleaner.settings
        if settings.bytes_per_second >= NO_LIMIT_PER_SECOND:
            return
        self._size += size
        allowed = max(settings.bytes_per_second / max(1, settings.children), 1.0)
        wait_s = self._size / allowed - (self._clock.monotonic() - self._begun)
        if wait_s > 0:
            try:
                await asyncio.wait_for(self._cleaner._stopped.wait(), wait_s)
            except TimeoutError:
                pass


def _is_compacted(config: LogConfig) -> bool:
    return config.compact


def _tidy(files: Files, folder: str, token: str) -> None:
    """What a child has left; what cannot be removed now, the next start removes."""
    try:
        swaps.remove_cleaned(files, folder, token)
    except OSError:
        pass
