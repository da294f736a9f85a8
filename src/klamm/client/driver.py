"""What drives a sender or a fetcher: a `pump` that takes all decisions and never waits, called again and again.

It runs after every `wake`, in the next turn of the loop, and after at most as many seconds as it last returned. What
has to wait (a connection, metadata) is a task with a purpose, one for each purpose at a time, and ends with a `wake`.
So one broker that is down holds up nothing but what depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from klamm.client.errors import ClientError


class Driver:
    """`on_failure` hears of an error that ended a task, or the pump itself: nothing fails in silence."""

    def __init__(self, pump: Callable[[], float], on_failure: Callable[[ClientError], None]) -> None:
        self._pump = pump
        self._on_failure = on_failure
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle | None = None  # the turn that is coming
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.wake()

    def wake(self) -> None:
        if self._next is None and not self._closed:
            self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._next = None
        try:
            nap_s = self._pump()
        except ClientError as error:
            self._on_failure(error)
        except Exception as error:
            self._on_failure(ClientError(f"The client broke: {error!r}."))
            raise  # to the loop's handler: this is a bug of ours
        else:
            self._wake_at(self._loop.time() + nap_s)

    def _wake_at(self, due: float) -> None:
        """A timer that is there already and goes off earlier is left alone: it only costs a turn too many."""
        if self._closed or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._alarm)

    def _alarm(self) -> None:
        self._timer = None
        self.wake()

    def is_busy(self, purpose: Hashable) -> bool:
        return purpose in self._tasks

    def start(self, purpose: Hashable, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Begin this work, unless something with the same purpose is under way."""
        if purpose in self._tasks or self._closed:
            return
        task = self._tasks[purpose] = asyncio.ensure_future(work(*args))

        def ended(done: asyncio.Task[None]) -> None:
            del self._tasks[purpose]
            self.wake()
            self._ended(done)

        task.add_done_callback(ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, ClientError):
                self._on_failure(error)
            else:
                self._on_failure(ClientError(f"The client broke: {error!r}."))
                raise error  # to the loop's handler: this is a bug of ours

    async def close(self) -> None:
        self._closed = True
        for handle in (self._next, self._timer):
            if handle is not None:
                handle.cancel()
        self._next = self._timer = None
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
