"""What goes wrong around a broker while it lives, and how its life ends. All of it from the seed."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from enum import Enum
from random import Random  # noqa: TID251 - made from the seed alone

from klamm.testing.sim.broker.lab import BROKER, Lab, pause
from klamm.testing.sim.disk import SimDisk
from klamm.testing.sim.faults import READ, SYNC, WRITE

_MAX_CLOCK_SKEW_MS = 20 * 60_000  # below message.timestamp.after.max.ms, so that no record is refused for its time


class Ending(Enum):
    STOP = "stop"
    KILL = "kill"
    POWER_LOSS = "power loss"


class Chaos:
    """`run` makes trouble until it is cancelled; `calm` takes back all that would last."""

    def __init__(self, lab: Lab, rng: Random) -> None:
        self._lab = lab
        self._rng = rng
        self._skew_ms = 0
        self.disk_errors = False  # since the last `calm`: a clean stop may not be able to write everything
        self.sync_errors = False
        kinds: list[tuple[Callable[[], None], int]] = [
            (self._cut_connection, 5),
            (self._black_hole, 1),
            (self._slow_disk, 2),
            (self._full_disk, 2),
            (self._disk_error, 1),
            (self._cold_cache, 2),
            (self._clock_jump, 1),
            (self._stall, 1),
            (self._bad_weather, 1),
        ]
        self._kinds = [kind for kind, _ in kinds]
        self._weights = [weight for _, weight in kinds]

    @property
    def _disk(self) -> SimDisk:
        return self._lab.world.machine(BROKER).disk

    async def run(self) -> None:
        while True:
            await pause(self._rng, 0.4)
            kind = self._rng.choices(self._kinds, self._weights)[0]
            self._lab.note("chaos", kind.__name__)
            kind()

    def calm(self) -> None:
        self._disk.calm()
        self._lab.world.network.weather.spike_probability = 0.01
        self.disk_errors = self.sync_errors = False

    def _cut_connection(self) -> None:
        connections = self._lab.world.network.open_connections()
        if connections:
            self._rng.choice(connections).cut()

    def _black_hole(self) -> None:
        connections = self._lab.world.network.open_connections()
        if connections:
            there, back = self._rng.choice(((True, True), (True, False), (False, True)))
            self._rng.choice(connections).blackhole(to_server=there, to_client=back)

    def _slow_disk(self) -> None:
        faults = self._disk.faults
        faults.write_s = self._rng.choice((0.001, 0.03, 0.2))
        faults.sync_s = self._rng.choice((0.005, 0.5))
        self._later(1.0, self._fast_disk)

    def _fast_disk(self) -> None:
        self._disk.faults.write_s = self._disk.faults.sync_s = 0.0

    def _full_disk(self) -> None:
        self.disk_errors = True
        self._disk.fill(self._rng.choice((0, 100, 5000)))
        self._later(1.0, self._disk.make_room)

    def _disk_error(self) -> None:
        self.disk_errors = True
        kind = self._rng.choice((READ, WRITE, SYNC))
        self.sync_errors |= kind == SYNC
        code = self._rng.choice((errno.EIO, errno.EIO, errno.ENOSPC)) if kind == WRITE else errno.EIO
        self._disk.faults.fail(kind, after=self._rng.randrange(5), code=code, path=".log")

    def _cold_cache(self) -> None:
        self._disk.make_cold(self._rng.choice((0.1, 1.0)))

    def _clock_jump(self) -> None:
        target = self._rng.randint(-_MAX_CLOCK_SKEW_MS, _MAX_CLOCK_SKEW_MS)
        self._lab.world.machine(BROKER).clock.jump_ms(target - self._skew_ms)
        self._skew_ms = target

    def _stall(self) -> None:
        self._lab.world.loop.advance(self._rng.choice((0.05, 1.0, 4.0)))

    def _bad_weather(self) -> None:
        self._lab.world.network.weather.spike_probability = self._rng.choice((0.0, 0.1, 0.5))

    def _later(self, at_most_s: float, action: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(self._rng.random() * at_most_s, action)
