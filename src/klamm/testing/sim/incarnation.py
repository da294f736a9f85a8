"""One life of one simulated process, from its start to its kill.

Whatever a process does on the loop carries its incarnation in a context variable, from which every later callback and
task inherits it. The loop drops callbacks of a dead incarnation. Its tasks are neither cancelled nor collected until
the world ends: both would run `finally` blocks, which a killed process does not do.
"""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_PRUNE_AT = 64
_CLOSE_ATTEMPTS = 10

current: contextvars.ContextVar[Incarnation | None] = contextvars.ContextVar("incarnation", default=None)


class Killed(Exception):
    """What those outside who waited for a process get when it is killed."""


class Incarnation:
    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.on_death: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = _PRUNE_AT
        self._waiters: list[asyncio.Future[Any]] = []

    def context(self) -> contextvars.Context:
        """A fresh context that belongs to this incarnation."""
        context = contextvars.copy_context()
        context.run(current.set, self)
        return context

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a part of the process. Do not await the task from outside: see `run`."""
        return asyncio.get_running_loop().create_task(coroutine, context=self.context())

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as a part of the process and wait for it from outside; `Killed` if the process dies."""
        if not self.alive:
            coroutine.close()
            raise Killed(self.name)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def finished(task: asyncio.Task[T]) -> None:
            if outcome.done():
                return
            if task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        self._waiters.append(outcome)
        task = self.spawn(coroutine)
        task.add_done_callback(finished)
        try:
            return await outcome
        finally:
            self._waiters.remove(outcome)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Keep the task from being collected while it is pending."""
        if len(self._tasks) >= self._prune_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._prune_at = max(_PRUNE_AT, 2 * len(self._tasks))
        self._tasks.append(task)

    def die(self) -> None:
        if not self.alive:
            return
        self.alive = False
        for action in self.on_death:
            action()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(Killed(self.name))

    def bury(self) -> None:
        """At the end of the world, where nothing has an effect any more: let go of the tasks without noise."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of tasks that dying tasks would have begun
            while self._tasks:  # closing one may have begun another
                tasks, self._tasks = self._tasks, []
                for task in tasks:
                    if not task.done():
                        _discard(task)


def _discard(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    for _ in range(_CLOSE_ATTEMPTS):  # more than once, for a `finally` block that awaits
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001 - whatever it says, it died long ago
            continue
        return
