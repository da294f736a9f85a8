"""Closing all logs of a broker, for a clean stop.

A log that is closed by itself syncs half a dozen small files and folders, one after another; ten thousand of them take
half a minute that way. Together they need two syncs of the whole file system (see `core.env.Volume`): one for what all
of them have written, then one for the names that may only change once the content is durable. If such a sync fails,
nobody can say whose write it was; then every log is closed by itself after all, and those that are damaged find out.

Nothing here is noted as clean: that is the manager's to do, when all of this is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from klamm.core.env import Env, Volume
from klamm.log.housekeeping import SLICE, sliced
from klamm.log.log import Log
from klamm.log.results import LogState

MANY_LOGS: Final = 50  # fewer are closed one by one: a sync of the file system also waits for everybody else's writes
SYNCING_THREADS: Final = 4  # slices of logs that are closed at a time, where each waits for its syncs
WRITING_THREADS: Final = 1  # where nothing waits: two take longer (1.8 s, 2.3 s for 10,000 logs)

T = TypeVar("T")

logger = logging.getLogger("klamm.log")


async def close_logs(env: Env, volume: Volume, logs: list[Log], many: int = MANY_LOGS) -> list[LogState | None]:
    """Close them all; for each its state, or None if it could not be closed cleanly and has to be recovered."""
    for some in sliced(logs, SLICE):
        for log in some:
            await log.settle()
        await asyncio.sleep(0)
    synced = False
    if sum(log.touched for log in logs) >= many and await env.executor.submit(volume.can_sync):
        synced = await _sync_together(env, volume, logs)
    if synced:
        states = await _each(env, Log.close_synced, logs, WRITING_THREADS)
    else:
        states = await _each(env, Log.close, logs, SYNCING_THREADS)
    for log, state in zip(logs, states, strict=True):
        if state is None:
            logger.error("The log %s was offline; the next start looks at it again: %s", log.name, log.failure)
    return states


async def _sync_together(env: Env, volume: Volume, logs: list[Log]) -> bool:
    """Whether all that the logs have written is durable. A log that fails on the way is out of it."""
    try:
        await _each(env, lambda log: log.write_down(volume), logs, WRITING_THREADS)
        await env.executor.submit(volume.sync)
        if any(await _each(env, Log.put_in_place, logs, WRITING_THREADS)):
            await env.executor.submit(volume.sync)
    except OSError as error:
        logger.warning("The file system cannot be synced as a whole, so each log is synced by itself: %s", error)
        return False
    return True


async def _each(env: Env, job: Callable[[Log], T], logs: list[Log], threads: int) -> list[T]:
    """Do something that blocks with every log, in so many threads; the results in the order of the logs."""
    slices = list(sliced(logs, SLICE))
    results: list[list[T]] = [[] for _ in slices]
    queue = iter(range(len(slices)))

    async def work() -> None:
        for i in queue:
            results[i] = await env.executor.submit(_all_of, job, slices[i])

    await asyncio.gather(*(work() for _ in range(threads)))
    return [result for some in results for result in some]


def _all_of(job: Callable[[Log], T], logs: list[Log]) -> list[T]:
    return [job(log) for log in logs]
