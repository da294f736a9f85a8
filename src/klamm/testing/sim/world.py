"""The simulated world: clock, network, machines with their disks, and the trace of what happened. All from one seed.

    with World(seed=7) as world:
        world.run(scenario(world))

`world.node(name)` starts a process on the machine of that name (its disk stays when the process dies) and gives it an
`Env`; `world.kill` and `world.power_loss` end it. Nothing in a world may depend on anything but the seed.
"""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random  # noqa: TID251 - made from the seed alone
from types import TracebackType
from typing import Any, TypeVar

from klamm.core.env import Buffer, Env
from klamm.testing.sim.disk import SimDisk
from klamm.testing.sim.executor import SimExecutor
from klamm.testing.sim.incarnation import Incarnation
from klamm.testing.sim.loop import SimLoop
from klamm.testing.sim.network import SimNetwork
from klamm.testing.sim.trace import Trace

T = TypeVar("T")

EPOCH_MS = 1_800_000_000_000  # where the wall clocks stand when a world begins


class SimFailure(Exception):
    """Something raised in a callback or a task and nobody handled it."""


class SimClock:
    """The clock of one machine. Its wall clock can be set, as administrators and NTP do."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._wall_offset_ms = EPOCH_MS

    def time_ms(self) -> int:
        return int(self._loop.time() * 1000) + self._wall_offset_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def jump_ms(self, delta_ms: int) -> None:
        self._wall_offset_ms += delta_ms


class Machine:
    """What outlives a process: the disk and the clock."""

    def __init__(self, name: str, disk: SimDisk, clock: SimClock) -> None:
        self.name = name
        self.disk = disk
        self.clock = clock
        self.boots = 0
        self.process: SimNode | None = None


class SimNode:
    """One process, with the environment that it sees."""

    def __init__(self, machine: Machine, incarnation: Incarnation, env: Env) -> None:
        self.machine = machine
        self.incarnation = incarnation
        self.env = env

    @property
    def alive(self) -> bool:
        return self.incarnation.alive

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as this process does; `Killed` if it dies meanwhile."""
        return await self.incarnation.run(coroutine)


class World:
    def __init__(self, seed: int, *, trace_into: list[str] | None = None) -> None:
        self.seed = seed
        self.rng = self.random("world")
        self.loop = SimLoop(self.random("loop"))
        self.trace = Trace(self.loop.time, lines=trace_into)
        self.network = SimNetwork(self.loop, self.random("network"), self.trace.note)
        self.machines: dict[str, Machine] = {}
        self._incarnations: list[Incarnation] = []

    def random(self, purpose: str) -> Random:
        """A source of its own for every purpose, so that more use of one does not change the others."""
        return Random(f"{self.seed}/{purpose}")  # seeded with a string: by its SHA-512, not by its hash()

    def machine(self, name: str) -> Machine:
        if name not in self.machines:

            def observe(operation: str, path: str, data: Buffer) -> None:
                self.trace.note(name, operation, path, data)

            disk = SimDisk(self.random(f"disk/{name}"), observe=observe, advance=self.loop.advance)
            self.machines[name] = Machine(name, disk, SimClock(self.loop))
        return self.machines[name]

    def node(self, name: str) -> SimNode:
        """Start a process on the machine. One at a time."""
        machine = self.machine(name)
        assert machine.process is None or not machine.process.alive, f"{name} is running"
        machine.boots += 1
        life = f"{name}.{machine.boots}"
        incarnation = Incarnation(life)
        self._incarnations.append(incarnation)
        env = Env(
            clock=machine.clock,
            rng=self.random(f"node/{life}"),
            files=machine.disk.mount(),
            executor=SimExecutor(self.loop, self.random(f"executor/{life}")),
            network=self.network.view(name, incarnation),
        )
        machine.process = SimNode(machine, incarnation, env)
        self.trace.note(life, "start", "")
        return machine.process

    def kill(self, node: SimNode) -> None:
        """`kill -9`: what the kernel has stays, what the process had in mind is gone."""
        self._end(node, power=False)
        node.machine.disk.kill()

    def power_loss(self, node: SimNode) -> None:
        self._end(node, power=True)
        node.machine.disk.power_loss()

    def _end(self, node: SimNode, *, power: bool) -> None:
        if node.alive:
            self.network.process_died(node.incarnation, power=power)
            node.incarnation.die()

    def run(self, main: Coroutine[Any, Any, T], *, limit_s: float = 24 * 3600.0) -> T:
        """Run to the end of `main`. What went wrong unnoticed in any process that was alive is raised here."""
        result = self.loop.run(main, limit_s=limit_s)
        if self.loop.failures:
            failure = self.loop.failures[0]
            raise SimFailure(failure.get("message")) from failure.get("exception")
        return result

    def close(self) -> None:
        for node in [machine.process for machine in self.machines.values()]:
            if node is not None:
                node.incarnation.die()
                node.machine.disk.kill()
        with self.loop.standing_still():
            for incarnation in [*self._incarnations, self.loop.outside]:
                incarnation.bury()
        self.loop.close()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
