"""How long to wait before trying again: longer each time, up to a limit, and never the same for two clients."""

from __future__ import annotations

from random import Random  # noqa: TID251 - the type; instances come from the environment
from typing import Final

JITTER: Final = 0.2
MAX_DOUBLINGS: Final = 16


class Backoff:
    """Counts failures in a row. `next_s` is the wait after one more; `reset` after a success."""

    __slots__ = ("_first_ms", "_max_ms", "_rng", "failures")

    def __init__(self, first_ms: int, max_ms: int, rng: Random) -> None:
        self._first_ms = first_ms
        self._max_ms = max(first_ms, max_ms)
        self._rng = rng
        self.failures = 0

    def next_s(self) -> float:
        self.failures += 1
        return self.after(self.failures)

    def after(self, failures: int) -> float:
        """The wait after so many failures in a row, for those who count for themselves."""
        wait_ms = min(self._max_ms, self._first_ms << min(failures - 1, MAX_DOUBLINGS))
        return wait_ms / 1000 * self._rng.uniform(1 - JITTER, 1 + JITTER)

    def reset(self) -> None:
        self.failures = 0
