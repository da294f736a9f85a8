from __future__ import annotations

import asyncio

from klamm.server.lag import LoopLag


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def time_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.now


async def test_lag_is_how_much_later_than_asked_the_timer_came() -> None:
    clock = Clock()
    lag = LoopLag(clock)
    lag.start()
    for late_s in (0.0, 0.25, 0.01):
        clock.now += 0.1 + late_s
        lag._tick()
    lag.stop()
    assert abs(lag.max_s - 0.25) < 1e-9
    assert abs(lag.recent_s - 0.25) < 1e-9


async def test_recent_lag_forgets_max_lag_does_not() -> None:
    clock = Clock()
    lag = LoopLag(clock)
    lag.start()
    clock.now += 1.1
    lag._tick()
    for _ in range(250):
        clock.now += 0.1
        lag._tick()
    assert lag.recent_s < 1e-6
    assert abs(lag.max_s - 1.0) < 1e-9
    lag.reset()
    assert lag.max_s == 0.0
    lag.stop()


async def test_it_ticks_by_itself_until_it_is_stopped() -> None:
    class Counting(Clock):
        calls = 0
        called = asyncio.Event()

        def monotonic(self) -> float:
            self.calls += 1
            if self.calls == 3:
                self.called.set()
            return self.now

    clock = Counting()
    lag = LoopLag(clock)
    lag.start()
    await clock.called.wait()
    lag.stop()
