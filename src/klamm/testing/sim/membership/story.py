"""The life and deaths of a broker under consumer groups, from one seed.

Everything that may happen to a broker in `broker/scenario.py` happens here as well; its clients are members of groups
of both protocols. Whenever it is back, and before anybody else talks to it, the committed offsets are held against what
was acknowledged. When the faults are over, every group must find together, and nobody may be left waiting.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from klamm.testing.sim.broker.admin import Admin
from klamm.testing.sim.broker.client import Client
from klamm.testing.sim.broker.lab import Lab, error_code
from klamm.testing.sim.broker.model import PartitionModel, Violation
from klamm.testing.sim.broker.producer import IdempotentProducer
from klamm.testing.sim.broker.scenario import Scenario
from klamm.testing.sim.membership import classic, consumer
from klamm.testing.sim.membership.group import Group
from klamm.testing.sim.membership.member import AGAIN, PATIENCE_S, GroupMember
from klamm.testing.sim.membership.offsets import committed, fetch_request
from klamm.testing.sim.telling import tell
from klamm.testing.sim.world import World
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

OPTIONS: Final = {
    "offsets.topic.num.partitions": "2",
    "group.min.session.timeout.ms": str(classic.SESSION_MS),
    "group.initial.rebalance.delay.ms": "200",
    "group.consumer.min.session.timeout.ms": str(consumer.SESSION_MS),
    "group.consumer.session.timeout.ms": str(consumer.SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}


class Told(NamedTuple):
    """What a story was like, for those who want to know that it was not a dull one."""

    digest: str
    lives: int
    generations: int
    epochs: int
    commits: int


class GroupScenario(Scenario):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        rng = world.random("groups")
        self._flushed = rng.random() < 0.5
        self.options.update(OPTIONS)
        self.options["group.initial.rebalance.delay.ms"] = rng.choice(("0", "200"))
        self.options["offsets.topic.segment.bytes"] = rng.choice(("2000", "104857600"))
        self.options["log.cleaner.backoff.ms"] = "200"
        if self._flushed:
            self.options["log.flush.interval.messages"] = "1"
        self.longest_life_s = 8.0
        self.groups: list[Group] = []
        self._cast = asyncio.Event()  # all members are there
        self._feeding = Lab(world)  # ends before the rest does
        self._feeding.model, self._feeding.gate = self.lab.model, self.lab.gate

    async def set_up(self) -> None:
        rng = self._world.random("cast")
        configs = {"flush.messages": "1", "segment.bytes": rng.choice(("2000", "100000"))}
        topic = await Admin(self.lab, "admin", rng).create("topic-0", rng.randint(1, 6), configs)
        for i in range(rng.randint(1, 2)):
            self.act(IdempotentProducer(self._feeding, f"producer{i}", rng.choice(topic.partitions)).run())
        asyncio.get_running_loop().call_later(rng.uniform(0.5, 6.0), self._feeding.end)  # more would only take longer
        kinds: list[type[GroupMember]] = [classic.ClassicMember, consumer.ConsumerMember]
        for i, kind in enumerate(rng.sample(kinds, rng.randint(1, 2))):
            group = Group(f"group-{i}", topic, flushed=self._flushed)
            self.groups.append(group)
            for j in range(rng.randint(1, 5)):
                self.act(kind(self.lab, group, f"member-{i}-{j}").run())
        self._cast.set()

    async def look(self, *, power_lost: bool) -> None:
        await super().look(power_lost=power_lost)
        for group in self.groups:
            if power_lost:
                group.power_lost()
            if group.asked:
                await self._look_at(group)

    async def _look_at(self, group: Group) -> None:
        client = await self.lab.connect("look")
        try:
            await asyncio.wait_for(_coordinator(client, group), PATIENCE_S)
        except TimeoutError:
            raise Violation(f"{group.id}: no coordinator") from None
        asked = group.steps.next()
        request, version = fetch_request(group, [partition.index for partition in group.topic.partitions])
        until = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            code, found = committed(await client.call(request, version))
            if not code:
                break
            if code not in AGAIN or asyncio.get_running_loop().time() > until:
                raise Violation(f"{group.id}: no committed offsets: {code.name}")
            await asyncio.sleep(0.05)
        client.close()
        step = group.steps.next()
        for index, (offset, note) in sorted(found.items()):
            self.lab.note("look", f"{group.id} {index}", f"{offset} {note}")
            group.offsets[index].read(asked, step, offset, note, settled=True)

    def stopped_cleanly(self) -> None:
        super().stopped_cleanly()
        for group in self.groups:
            group.everything_is_durable()

    async def settle(self) -> None:
        await asyncio.wait_for(self._cast.wait(), PATIENCE_S)
        self._feeding.end()
        for group in self.groups:
            for member in group.members:
                member.calm_down()
        await self._find_together()
        for group in self.groups:
            group.check_delivery()
        await self._grow()
        await self._find_together()
        for group in self.groups:
            group.lose_one()
        await self._find_together()
        for group in self.groups:
            if group.lost is not None:
                await group.lost.haunt()

    async def _grow(self) -> None:
        """One partition more, of which the members have to hear."""
        for topic in self.lab.model.topics:
            count = len(topic.partitions) + 1
            client = await self.lab.connect("admin")
            wanted = CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
            answer = await client.call(CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000), 3)
            if code := error_code(answer.results[0].error_code):
                raise Violation(f"{topic.name}: no partition more: {code.name}")
            client.close()
            topic.partitions.append(PartitionModel(topic, count - 1))
        for group in self.groups:
            group.grow()

    async def _find_together(self) -> None:
        until = asyncio.get_running_loop().time() + PATIENCE_S
        while not all(group.is_settled and group.is_drained for group in self.groups):
            await asyncio.sleep(0.1)
            self.raise_what_went_wrong()
            if asyncio.get_running_loop().time() > until:
                raise Violation("; ".join(str(group) for group in self.groups))


async def _coordinator(client: Client, group: Group) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group.id])
    while code := error_code((await client.call(request, 4)).coordinators[0].error_code):
        if code not in AGAIN:
            raise Violation(f"{group.id}: no coordinator: {code.name}")
        await asyncio.sleep(0.05)


def run_seed(seed: int, *, trace_into: list[str] | None = None) -> Told:
    """Run one seed to its end; raises what went wrong."""
    return tell(seed, GroupScenario, _told, trace_into=trace_into)


def _told(scenario: GroupScenario) -> Told:
    groups = scenario.groups
    return Told(
        scenario.lab.world.trace.digest(),
        scenario.lives,
        sum(group.generations.count for group in groups),
        sum(len(group.epochs) for group in groups),
        sum(group.commits for group in groups),
    )
