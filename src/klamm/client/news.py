"""Waiting for something that others see first, without missing it and without taking it from anybody else who waits."""

from __future__ import annotations

import asyncio


class News:
    """Whoever waits remembers `count`, looks whether what it waits for is there, and if not waits for the count to go
    up: also if that happened while it was looking."""

    __slots__ = ("_next", "count")

    def __init__(self) -> None:
        self.count = 0
        self._next: asyncio.Future[None] | None = None

    def tell(self) -> None:
        self.count += 1
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    async def wait(self, seen: int, timeout_s: float | None) -> bool:
        """Until there is something newer than `seen`. False if there is not, in time."""
        if self.count != seen:
            return True
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait((self._next,), timeout=timeout_s)
        return bool(done)
