"""A number of bytes that may be in use at a time; whoever wants more waits until others have given theirs back."""

from __future__ import annotations

import asyncio

from klamm.client.errors import TimedOut
from klamm.core.env import Env


class Budget:
    """A request above the whole limit is granted when nothing else is in use: it could never fit otherwise."""

    __slots__ = ("_env", "_limit", "_name", "_room", "used")

    def __init__(self, env: Env, name: str, limit: int) -> None:
        self._env = env
        self._name = name
        self._limit = limit
        self._room: asyncio.Future[None] | None = None
        self.used = 0

    def fits(self, size: int) -> bool:
        return self.used + size <= self._limit or not self.used

    async def wait(self, size: int, timeout_s: float) -> None:
        """Until `size` fits. Nothing is taken yet: that is for the caller to do, without waiting in between."""
        deadline = self._env.clock.monotonic() + timeout_s
        while not self.fits(size):
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            left_s = deadline - self._env.clock.monotonic()
            done, _ = await asyncio.wait((self._room,), timeout=max(0.0, left_s))
            if not done:
                raise TimedOut(f"No room for {size} bytes within {timeout_s:g} s: {self.used} of {self._name} in use.")

    def give_back(self, size: int) -> None:
        self.used -= size
        if self._room is not None:
            self._room.set_result(None)
            self._room = None
