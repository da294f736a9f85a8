"""A number of bytes that may be in use at a time; whoever wants more waits until others have given theirs back."""

from __future__ import annotations

import asyncio
import sys

from klamm.client.errors import TimedOut
from klamm.core.env import Env


class Budget:
    """The limit may be exceeded by one thing: its size is often known only when it is there, and one that is larger
    than everything could never be had otherwise."""

    __slots__ = ("_env", "_name", "_room", "limit", "used")

    def __init__(self, env: Env, name: str, limit: int) -> None:
        self._env = env
        self._name = name
        self.limit = limit
        self._room: asyncio.Future[None] | None = None
        self.used = 0

    @property
    def has_room(self) -> bool:
        return self.used < self.limit

    async def wait(self, timeout_s: float) -> None:
        """Until there is room. Nothing is taken yet: that is for the caller to do, without waiting in between."""
        deadline = self._env.clock.monotonic() + timeout_s
        while not self.has_room:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            left_s = deadline - self._env.clock.monotonic()
            done, _ = await asyncio.wait((self._room,), timeout=max(0.0, left_s))
            if not done:
                raise TimedOut(f"No room within {timeout_s:g} s: {self.used} bytes of {self._name} are in use.")

    def end(self) -> None:
        """Nobody waits any more: what they want to take will be refused anyway."""
        self.limit = sys.maxsize
        self.give_back(0)

    def give_back(self, size: int) -> None:
        self.used -= size
        if self._room is not None:
            self._room.set_result(None)
            self._room = None
