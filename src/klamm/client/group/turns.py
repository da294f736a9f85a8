"""What waits for the application to come back for records: rebalances with their callbacks, automatic commits.

The background asks for a turn and waits; the consumer, called by the application, runs what is there. So nothing is
taken away from an application in the middle of its work, and what it was given before counts as done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeAlias

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class _Job(NamedTuple):
    work: Work
    done: asyncio.Future[None]


class Turns:
    """`tell` hears whether there is something to do, whenever that may have changed."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._waiting: deque[_Job] = deque()
        self._running: asyncio.Task[None] | None = None
        self.taken = 0
        """Goes up with every turn: a sign of life."""

    async def ask(self, work: Work) -> None:
        """Have this done in the application's next turn. Returns when it is; what it raises is the application's."""
        job = _Job(work, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._tell(True)
        try:
            await job.done
        finally:
            if job in self._waiting:  # given up before its turn
                self._waiting.remove(job)
                self._told()

    async def run(self) -> None:
        """The application is here. If it goes away in the middle (a time limit of its own, say), what has begun goes on
        to its end, and its next turn waits for that first: nothing is done by halves."""
        self.taken += 1
        while self._waiting or self._running is not None:
            if self._running is None:
                self._running = asyncio.ensure_future(_do(self._waiting.popleft()))
            try:
                await asyncio.shield(self._running)
            finally:
                if self._running.done():
                    self._running = None
                self._told()

    async def settle(self, limit_s: float | None = None) -> None:
        """Wait for what has begun, unless it is that which asks."""
        if self._running is not None and self._running is not asyncio.current_task():
            await asyncio.wait((self._running,), timeout=limit_s)

    def _told(self) -> None:
        self._tell(bool(self._waiting) or self._running is not None)


async def _do(job: _Job) -> None:
    try:
        await job.work()
    finally:
        if not job.done.done():
            job.done.set_result(None)
