"""How late the loop is: the measure of everything that stalls it.

A timer that asks to be woken every tenth of a second and looks how much later it was. Costs a few microseconds a
second. It must never do anything but count.
"""

from __future__ import annotations

import asyncio

from klamm.core.env import Clock
from klamm.server.histogram import Histogram

_PERIOD_S = 0.1
_WINDOW_TICKS = 100


class LoopLag:
    """`max_s` since the start (or the last `reset`); `recent_s`: the worst of about the last ten seconds; `delays`:
    every one of them."""

    __slots__ = ("_clock", "_due", "_loop", "_previous_s", "_ticks", "_timer", "_window_s", "delays", "max_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._ticks = 0
        self._window_s = 0.0
        self._previous_s = 0.0
        self.max_s = 0.0
        self.delays = Histogram()

    @property
    def recent_s(self) -> float:
        return max(self._window_s, self._previous_s)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        self.max_s = self._window_s = self._previous_s = 0.0

    def _arm(self) -> None:
        assert self._loop is not None
        self._due = self._clock.monotonic() + _PERIOD_S
        self._timer = self._loop.call_later(_PERIOD_S, self._tick)

    def _tick(self) -> None:
        late_s = max(0.0, self._clock.monotonic() - self._due)
        self.delays.add(late_s)
        if late_s > self._window_s:
            self._window_s = late_s
            if late_s > self.max_s:
                self.max_s = late_s
        self._ticks += 1
        if self._ticks == _WINDOW_TICKS:
            self._ticks = 0
            self._previous_s, self._window_s = self._window_s, 0.0
        self._arm()
