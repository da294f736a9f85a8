"""Threads without threads: a job runs in one go after a random while, and its result is known a while later.

The two waits are what matters: a crash may fall before the job, or between what it did and the moment anybody knows.
Jobs may overtake each other, as they may in a pool. Jobs of a dead incarnation never run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random  # noqa: TID251 - made from the seed alone
from typing import Any, TypeVar

from klamm.testing.sim.incarnation import current

T = TypeVar("T")


class SimExecutor:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: Random, *, max_delay_s: float = 0.002, max_jobs: int = 100_000
    ) -> None:
        self.max_delay_s = max_delay_s
        self._loop = loop
        self._rng = rng
        self._max_jobs = max_jobs
        self._waiting: dict[int, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        self._submitted = 0

    def submit(self, fn: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._submitted += 1
        number = self._submitted
        assert len(self._waiting) < self._max_jobs, "jobs are submitted faster than they are done, without a bound"

        def run() -> None:
            self._waiting.pop(number, None)
            if _alive() and not future.cancelled():
                self._run(future, fn, args)

        timer = self._loop.call_later(self._delay_s(), run)
        self._waiting[number] = (timer, run)
        return future

    def close(self) -> None:
        """As a pool's shutdown: all that was submitted is done before this returns."""
        for timer, run in list(self._waiting.values()):
            timer.cancel()
            run()

    def _run(self, future: asyncio.Future[T], fn: Callable[..., T], args: tuple[Any, ...]) -> None:
        try:
            result = fn(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to who waits for the job
            self._loop.call_later(self._delay_s(), _fail, future, error)
            return
        self._loop.call_later(self._delay_s(), _finish, future, result)

    def _delay_s(self) -> float:
        # Mostly short; now and then a disk that makes everybody wait.
        longest = self.max_delay_s if self._rng.random() < 0.95 else 50 * self.max_delay_s
        return self._rng.random() * longest


def _alive() -> bool:
    owner = current.get()
    return owner is None or owner.alive


def _finish(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
