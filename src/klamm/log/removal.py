"""Files and folders that are to be removed, later and off the loop.

What is deleted is first renamed to `*.deleted` and really removed after `file.delete.delay.ms`: answers that are on
their way may still be sent from it. Removing a large file blocks for as long as the file system likes, so it happens in
the executor, one slice after another. Nothing depends on it having happened: what is left after a crash is found by its
name and removed at the next start.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import Final

from klamm.core.env import Env, Files

SLICE: Final = 64  # paths in one job of the executor

logger = logging.getLogger("klamm.log")


class Remover:
    """All calls on the loop."""

    __slots__ = ("_busy", "_env", "_queue", "_serial", "_stopped", "_timer")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._queue: list[tuple[float, int, str, bool]] = []  # when (loop time), a serial number, path, folder?
        self._serial = 0
        self._timer: asyncio.TimerHandle | None = None
        self._busy: asyncio.Future[list[str]] | None = None
        self._stopped = False

    def __len__(self) -> int:
        return len(self._queue)

    def later(self, path: str, delay_ms: int, *, folder: bool = False) -> None:
        """Remove the file, or the folder with all in it, after so long."""
        self._serial += 1
        due = asyncio.get_running_loop().time() + delay_ms / 1000
        heapq.heappush(self._queue, (due, self._serial, path, folder))
        self._arm()

    async def stop(self) -> None:
        """Leave the rest to the next start."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._busy is not None:
            await asyncio.wait([self._busy])

    def _arm(self) -> None:
        if self._busy is not None or self._stopped or not self._queue:
            return
        due = self._queue[0][0]
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._work)

    def _work(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        paths: list[tuple[str, bool]] = []
        while self._queue and len(paths) < SLICE and self._queue[0][0] <= now:
            _, _, path, folder = heapq.heappop(self._queue)
            paths.append((path, folder))
        if paths:
            self._busy = self._env.executor.submit(remove_all, self._env.files, paths)
            self._busy.add_done_callback(self._done)
        else:
            self._arm()

    def _done(self, job: asyncio.Future[list[str]]) -> None:
        self._busy = None
        if not job.cancelled():
            error = job.exception()
            for failure in [str(error)] if error else job.result():
                logger.warning("Removing deleted files failed, the next start tries again: %s", failure)
        self._arm()


def remove_all(files: Files, paths: list[tuple[str, bool]]) -> list[str]:
    """Blocks. What went wrong, if anything; one failure does not keep the others."""
    failures = []
    for path, folder in paths:
        try:
            files.remove_tree(path) if folder else files.remove(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            failures.append(f"{path}: {error.strerror or error}")
    return failures
