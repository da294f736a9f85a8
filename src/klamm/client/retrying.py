"""Trying again until it works or the time is up."""

from __future__ import annotations

import asyncio
from math import inf

from klamm.client.backoff import Backoff
from klamm.client.config import ClientConfig
from klamm.client.errors import ClientError, TimedOut
from klamm.core.env import Env


class Retrying:
    """One operation with a deadline. `pause` waits before the next attempt, or gives up with what went wrong last."""

    __slots__ = ("_backoff", "_deadline", "_env", "_what")

    def __init__(self, env: Env, config: ClientConfig, what: str, timeout_ms: int | None = None) -> None:
        limit_ms = config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._env = env
        self._what = what
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, env.rng)
        self._deadline = env.clock.monotonic() + limit_ms / 1000

    def left_s(self) -> float:
        return max(0.0, self._deadline - self._env.clock.monotonic())

    async def pause(self, error: ClientError, *, at_most_s: float = inf) -> None:
        """Raises `error` if it is not worth trying again, `TimedOut` if there is no time left for it."""
        if not error.retriable:
            raise error
        wait_s = min(self._backoff.next_s(), at_most_s)
        if wait_s >= self.left_s():
            raise TimedOut(f"{self._what} did not succeed in time. The last error: {error.text}", error.hint) from error
        await asyncio.sleep(wait_s)
