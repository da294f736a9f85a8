"""A simulated broker that is killed again and again, also in the middle of a change of its disk, and comes back.

Connections are cut, and the disk is slow or full for a while. Power stays on: what a kill keeps must be enough. A story
says what clients do meanwhile, and what must be true of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from klamm.core.options import Options
from klamm.replica.recoding import INLINE_BYTES
from klamm.server.node import Node
from klamm.testing.sim.broker.client import Client
from klamm.testing.sim.incarnation import Killed
from klamm.testing.sim.world import SimNode, World

BROKER: Final = "broker"
PORT: Final = 9092
DATA: Final = "/data"


class MortalBroker:
    """`over` tells the clients to come to an end."""

    def __init__(self, world: World, options: Mapping[str, str]) -> None:
        self.world = world
        self.over = False
        self.kills = 0
        self._options = {"listeners": f"PLAINTEXT://{BROKER}:{PORT}", **options}
        self._rng = world.random("story")
        self._recode_inline_bytes = self._rng.choice((0, INLINE_BYTES))  # through threads, or not
        self._process: SimNode | None = None
        self._node: Node | None = None
        self._gate = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: dict[str, Client] = {}

    # ---- clients

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """What a client does, for as long as the story is not over."""
        self._tasks.append(asyncio.get_running_loop().create_task(coroutine))

    async def join(self) -> None:
        for task in self._tasks:
            await task

    def raise_early(self) -> None:
        """What went wrong so far."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def connect(self, name: str) -> Client:
        """This client's connection, a new one if it was lost; `Lost` if there is none to be had."""
        known = self._clients.get(name)
        if known is None or known.lost is not None:
            await self._gate.wait()
            known = self._clients[name] = await Client.connect(self.world.network.view(name), name, BROKER, PORT)
        return known

    # ---- life and death

    async def start(self) -> None:
        for attempt in range(3):
            process = self._process = self.world.node(BROKER)
            if attempt < 2 and self.kills and self._rng.random() < 0.3:
                self.world.machine(BROKER).disk.faults.crash(self._rng.randint(1, 100), self._kill)
            try:
                self._node = await process.run(self._boot(process))
                break
            except Killed:
                self.world.machine(BROKER).disk.calm()
        self.world.machine(BROKER).disk.calm()
        self._gate.set()

    async def _boot(self, process: SimNode) -> Node:
        options = Options.from_mapping(self._options)
        node = Node(process.env, DATA, options, recode_inline_bytes=self._recode_inline_bytes)
        await node.start()
        return node

    async def stop(self) -> None:
        assert self._process is not None and self._node is not None
        await self._process.run(self._node.stop())

    async def live(self) -> None:
        """A while with some trouble in it, then a death; or a crash at the next change of the disk but so many. Then it
        comes back."""
        rng = self._rng
        faults = self.world.machine(BROKER).disk.faults
        if rng.random() < 0.6:
            faults.crash(rng.randint(1, rng.choice((20, 200, 1000))), self._kill)
        until = asyncio.get_running_loop().time() + rng.uniform(0.2, 3.0)
        while asyncio.get_running_loop().time() < until and self._process is not None and self._process.alive:
            await asyncio.sleep(rng.random() * 0.3)
            self._trouble()
            self.raise_early()
        self._kill()
        self.world.machine(BROKER).disk.calm()
        await asyncio.sleep(rng.random())
        await self.start()

    def _trouble(self) -> None:
        rng = self._rng
        disk = self.world.machine(BROKER).disk
        kind = rng.choice(("none", "none", "none", "cut", "cut", "slow", "full"))
        if kind == "cut":
            connections = self.world.network.open_connections()
            if connections:
                rng.choice(connections).cut()
        elif kind == "slow":
            disk.faults.write_s = rng.choice((0.001, 0.03, 0.1))
        elif kind == "full":
            disk.fill(rng.choice((0, 200, 3000)))
            asyncio.get_running_loop().call_later(rng.random(), disk.make_room)

    def _kill(self) -> None:
        if self._process is not None and self._process.alive:
            self._gate.clear()
            self.kills += 1
            self.world.kill(self._process)
