"""What waits for the application to come back for records: rebalances with their callbacks, automatic commits.

The background asks for a turn and waits; the consumer, called by the application, runs what is there. So nothing is
taken away from an application in the middle of its work, and what it was given before counts as done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

Work: TypeAlias = Callable[[], Awaitable[None]]


class _Job(NamedTuple):
    work: Work
    done: asyncio.Future[None]


class Turns:
    """`tell` hears whether there is something to do, whenever that has changed."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._waiting: deque[_Job] = deque()
        self.taken = 0
        """Goes up with every turn: a sign of life."""

    async def ask(self, work: Work) -> None:
        """Have this done by the application's next turn. Returns when it is; what it raises is the application's."""
        job = _Job(work, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._tell(True)
        try:
            await job.done
        finally:
            if job in self._waiting:  # given up before its turn
                self._waiting.remove(job)
                self._tell(bool(self._waiting))

    async def run(self) -> None:
        """The application is here."""
        self.taken += 1
        while self._waiting:
            job = self._waiting.popleft()
            self._tell(bool(self._waiting))
            try:
                await job.work()
            finally:
                if not job.done.done():
                    job.done.set_result(None)
