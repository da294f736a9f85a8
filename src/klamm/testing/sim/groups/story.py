"""The life and deaths of a broker under the members of a group, from one seed.

Members come, go, lead, restart and fall silent; the broker is killed at any moment, also in the middle of writing what
a leader has assigned. At the end all of them are in one generation and have every partition between them.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.broker.scenario import remarks
from klamm.testing.sim.groups.ledger import Ledger
from klamm.testing.sim.groups.member import PARTITIONS, TOPIC, Member
from klamm.testing.sim.mortal import MortalBroker
from klamm.testing.sim.world import World
from klamm.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest

OPTIONS: Final = {"group.initial.rebalance.delay.ms": "100", "offsets.topic.num.partitions": "2"}
LIMIT_S: Final = 3600.0
SETTLE_S: Final = 300.0
"""For the last rebalance, when nothing goes wrong any more but what members do."""


class Told(NamedTuple):
    """What a story was like, for those who want to know that it was not a dull one."""

    digest: str
    kills: int
    generations: int
    commits: int


class Story(MortalBroker):
    def __init__(self, world: World) -> None:
        super().__init__(world, OPTIONS)
        self.ledger = Ledger(PARTITIONS)

    async def run(self) -> None:
        await self.start()
        client = await self.connect("admin")
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        members = [
            Member(name, self.world.random(name), self.ledger, self.connect, lambda: self.over)
            for name in (f"m{i}" for i in range(self._rng.randint(1, 5)))
        ]
        for member in members:
            self.begin(member.run())
            await asyncio.sleep(self._rng.choice((0, 0.05, 1)))
        for _ in range(self._rng.randint(1, 5)):
            await self.live()
            await asyncio.sleep(self._rng.choice((0, 1, 10)))
        await self._settled(members)
        self.over = True
        await self.join()
        await self.stop()

    async def _settled(self, members: list[Member]) -> None:
        """Everybody has a part in one generation."""
        until = asyncio.get_running_loop().time() + SETTLE_S
        while not _covered(members):
            if asyncio.get_running_loop().time() > until:
                state = [(member.generation, member.partitions) for member in members]
                raise Violation(f"the members do not come together: {state}")
            self.raise_early()
            await asyncio.sleep(0.05)

    def told(self) -> Told:
        return Told(self.world.trace.digest(), self.kills, self.ledger.generations, self.ledger.commits)


def _covered(members: list[Member]) -> bool:
    held = sorted(partition for member in members for partition in member.partitions)
    return held == list(range(PARTITIONS)) and len({member.generation for member in members}) == 1


def run_seed(seed: int, *, trace_into: list[str] | None = None) -> Told:
    """Run one seed to its end; raises what went wrong."""
    with World(seed, trace_into=trace_into) as world:

        async def main() -> Story:
            story = Story(world)
            await story.run()
            return story

        with remarks(world.trace):
            return world.run(main(), limit_s=LIMIT_S).told()
