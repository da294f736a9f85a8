"""What drives a sender or a fetcher: a `pump` that takes all decisions and never waits, called again and again.

It runs after every `wake`, and after at most as many seconds as it last returned. What has to wait (a connection,
metadata) is a task with a purpose, one for each purpose at a time, and ends with a `wake`. So one broker that is down
holds up nothing but what depends on it.
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
        self._wake = asyncio.Event()
        self._closed = False
        self._main = asyncio.ensure_future(self._run())
        self._main.add_done_callback(self._ended)

    def wake(self) -> None:
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            nap_s = self._pump()
            try:
                async with asyncio.timeout(nap_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def is_busy(self, purpose: Hashable) -> bool:
        return purpose in self._tasks

    def start(self, purpose: Hashable, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Begin this work, unless something with the same purpose is under way."""
        if purpose in self._tasks or self._closed:
            return
        task = self._tasks[purpose] = asyncio.ensure_future(work(*args))

        def ended(done: asyncio.Task[None]) -> None:
            del self._tasks[purpose]
            self._ended(done)
            self._wake.set()

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
        tasks = [self._main, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
