"""The life and deaths of one broker, from one seed.

The broker is started, checked and used; it dies in one way or another; and again. A crash may come between any two
callbacks or in the middle of any change of the disk, also while the broker starts or stops. Nobody talks to a broker
that has just come back before `verify` has looked at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from klamm.core.options import Options
from klamm.log.closing import MANY_LOGS
from klamm.replica.recoding import INLINE_BYTES
from klamm.server.node import Node
from klamm.testing.sim.broker.admin import Admin, some_configs
from klamm.testing.sim.broker.chaos import Chaos, Ending
from klamm.testing.sim.broker.churn import Churn
from klamm.testing.sim.broker.consumer import Consumer
from klamm.testing.sim.broker.lab import BROKER, PORT, Lab, pause
from klamm.testing.sim.broker.producer import IdempotentProducer, PlainProducer
from klamm.testing.sim.broker.trimmer import Trimmer
from klamm.testing.sim.broker.verify import verify
from klamm.testing.sim.incarnation import Killed
from klamm.testing.sim.telling import tell
from klamm.testing.sim.world import SimNode, World

DATA = "/data"
OPTIONS = {
    "listeners": f"PLAINTEXT://{BROKER}:{PORT}",
    "log.retention.check.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "700",
}
"""The periodic jobs of a broker, many times in a life of a few seconds."""
MAX_DEATHS = 5
_SETTLE_S = 1.0  # longer than anything is on its way: after it no answer of a dead broker arrives any more


_ENDINGS = (Ending.KILL, Ending.KILL, Ending.POWER_LOSS, Ending.POWER_LOSS, Ending.STOP)


class Outcome(NamedTuple):
    digest: str
    events: int
    records: int
    lives: int


class Scenario:
    """`options`, `set_up`, `settle`, `look` and `stopped_cleanly` are for stories about something else than logs."""

    def __init__(self, world: World) -> None:
        self.lab = Lab(world)
        self.lives = 0
        self.options = dict(OPTIONS)
        self.longest_life_s = 3.0
        self._world = world
        self._rng = world.random("scenario")
        self._switch = world.random("switch")
        self._chaos = Chaos(self.lab, world.random("chaos"))
        self._actors: list[asyncio.Task[None]] = []
        self._alarm = asyncio.Event()
        self._power_lost = False  # since the last verification
        self._process: SimNode | None = None
        self._broker: Node | None = None
        self._many_logs = world.random("closing").choice((1, 1, MANY_LOGS))  # synced together when it stops, or not
        # What a topic wants compressed in another way goes through threads, or not.
        self._recode_inline_bytes = world.random("recoding").choice((0, 200, INLINE_BYTES))

    async def run(self) -> None:
        await self._start()
        self.act(self.set_up())
        for _ in range(self._rng.randint(1, MAX_DEATHS)):
            await self._live()
            await self._die(self._rng.choice(_ENDINGS))
            await self._start()
        await self._come_to_an_end()

    # --- one life ---

    async def _live(self) -> None:
        """Until time is up, the broker dies of a crash that was planned, or somebody finds something wrong."""
        assert self._broker is not None
        assert self._process is not None
        self._alarm.clear()
        trouble = self._spawn(self._chaos.run())
        watch = self._spawn(self._watch(self._process, self._broker))
        if self._rng.random() < 0.5:
            self._plan_crash()
        try:
            await asyncio.wait_for(self._alarm.wait(), self._rng.uniform(0.2, self.longest_life_s))
        except TimeoutError:
            pass
        trouble.cancel()
        watch.cancel()
        self.raise_what_went_wrong()

    async def _watch(self, process: SimNode, broker: Node) -> None:
        try:
            await process.run(broker.failed())
            self.lab.note("watch", "the broker gave up")
        except Killed:
            pass
        self._alarm.set()

    async def _die(self, ending: Ending) -> None:
        process, broker = self._process, self._broker
        assert process is not None
        assert broker is not None
        self.lab.gate.clear()
        if ending is Ending.STOP and process.alive:
            if self._rng.random() < 0.3:
                self._plan_crash()
            try:
                had_errors = self._chaos.disk_errors
                await process.run(_stop(broker))
                if not had_errors:
                    self.stopped_cleanly()
            except Killed:
                pass
        # a machine that is switched off after a clean stop finds out whether the stop was one
        off = ending is Ending.STOP and self._switch.random() < 0.5
        self._crash(power=ending is Ending.POWER_LOSS or off)
        self._chaos.calm()
        await asyncio.sleep(_SETTLE_S)

    def _crash(self, *, power: bool) -> None:
        process = self._process
        # After a sync that failed the page cache says one thing and the disk another, and nobody can tell until the
        # cache is gone. A broker that starts again on such a machine, as Kafka would, is out of what we promise.
        power |= self._chaos.sync_errors
        if process is not None and process.alive:
            self.lab.gate.clear()
            self._power_lost |= power
            (self._world.power_loss if power else self._world.kill)(process)

    def _plan_crash(self) -> bool:
        """Let the broker die in the middle of one of its next changes of the disk."""
        power = self._rng.random() < 0.6
        in_ops = self._rng.randint(1, self._rng.choice((5, 50, 400)))
        self._world.machine(BROKER).disk.faults.crash(in_ops, lambda: self._crash(power=power))
        return power

    async def _start(self) -> None:
        """Start the broker, over a few crashes if need be, and look at what it has."""
        for attempt in range(4):
            self.lives += 1
            process = self._process = self._world.node(BROKER)
            if attempt < 3 and self.lives > 1 and self._rng.random() < 0.3:
                self._plan_crash()
            try:
                self._broker = await process.run(self._boot(process))
                break
            except Killed:
                self._chaos.calm()
                await asyncio.sleep(_SETTLE_S)
        self._chaos.calm()
        await self.look(power_lost=self._power_lost)
        self._power_lost = False
        self.lab.gate.set()

    async def _boot(self, process: SimNode) -> Node:
        node = Node(
            process.env,
            DATA,
            Options.from_mapping(self.options),
            many_logs=self._many_logs,
            recode_inline_bytes=self._recode_inline_bytes,
        )
        await node.start()
        return node

    # --- the actors ---

    async def set_up(self) -> None:
        """Make the topics and let the clients loose on them, while the broker may already be dying."""
        rng = self._world.random("cast")
        admin = Admin(self.lab, "admin", rng)
        topics = [
            await admin.create(f"topic-{i}", rng.randint(1, 3), some_configs(rng)) for i in range(rng.randint(1, 3))
        ]
        partitions = [partition for topic in topics for partition in topic.partitions]
        for i in range(rng.randint(1, 4)):
            self.act(IdempotentProducer(self.lab, f"idempotent{i}", rng.choice(partitions)).run())
        for i in range(rng.randint(0, 2)):
            chosen = rng.sample(partitions, min(3, len(partitions)))
            self.act(PlainProducer(self.lab, f"plain{i}", chosen).run())
        for i in range(rng.randint(1, 3)):
            chosen = rng.sample(partitions, rng.randint(1, len(partitions)))
            self.act(Consumer(self.lab, f"consumer{i}", chosen).run())
        for i in range(rng.randint(0, 1)):
            self.act(Churn(self.lab, f"churn{i}").run())
        if rng.random() < 0.3:
            self.act(Trimmer(self.lab, "trimmer", rng.choice(topics)).run())

    async def settle(self) -> None:
        """The last faults are over, and the actors still act."""

    async def look(self, *, power_lost: bool) -> None:
        """The broker is back, and nobody has talked to it yet."""
        await verify(self.lab, power_lost=power_lost)

    def stopped_cleanly(self) -> None:
        self.lab.model.everything_is_durable()

    def act(self, actor: Coroutine[Any, Any, None]) -> None:
        task = self._spawn(actor)
        task.add_done_callback(lambda _: self._alarm.set())
        self._actors.append(task)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coroutine)

    def raise_what_went_wrong(self) -> None:
        for actor in self._actors:
            if actor.done():
                actor.result()

    async def _come_to_an_end(self) -> None:
        """Without trouble everybody gets to the end of what they began; then a clean stop, and a last look."""
        await pause(self._rng, 1.0)
        await self.settle()
        self.lab.end()
        while not all(actor.done() for actor in self._actors):
            await asyncio.sleep(0.5)
            self.raise_what_went_wrong()
        await self._die(Ending.STOP)
        self.lives += 1
        process = self._process = self._world.node(BROKER)
        self._broker = await process.run(self._boot(process))
        await self.look(power_lost=self._power_lost)
        await process.run(_stop(self._broker))


async def _stop(node: Node) -> None:
    await node.stop()


def run_seed(seed: int, *, trace_into: list[str] | None = None) -> Outcome:
    """Run one seed to its end; raises what went wrong."""
    return tell(seed, Scenario, _outcome, trace_into=trace_into)


def _outcome(scenario: Scenario) -> Outcome:
    trace, model = scenario.lab.world.trace, scenario.lab.model
    records = sum(len(partition.known) for topic in model.topics for partition in topic.partitions)
    return Outcome(trace.digest(), trace.events, records, scenario.lives)
