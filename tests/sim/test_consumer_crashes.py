"""Our consumers in a group, killed and stopped again and again, of a broker that is killed again and again: no record
is passed over, and no offset is committed of one that was not worked on. Some may come twice, after a kill."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from klamm.aio import Consumer
from klamm.client import ClientConfig, Cluster
from klamm.client.errors import ClientError, CommitFailed, NotReachable
from klamm.core.env import Env
from klamm.core.ids import TopicPartition
from klamm.core.options import Options
from klamm.server.node import Node
from klamm.testing.sim.incarnation import Killed
from klamm.testing.sim.telling import tell
from klamm.testing.sim.world import SimNode, World
from klamm.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from support.seeds import in_every_run, in_soak, tell_all

PARTITIONS = 4
RECORDS = 300
APPLICATIONS = 3
BROKER = {
    "listeners": "PLAINTEXT://broker:9092",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
}
CLIENT: dict[str, Any] = {
    "bootstrap_servers": "broker:9092",
    "request_timeout_ms": 2000,
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 500,
    "auto_commit_interval_ms": 300,
    "max_poll_interval_ms": 8000,
    "group_id": "g",
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {},
    "sticky": {"partition_assignment_strategy": "sticky"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


class Told(NamedTuple):
    worked: int
    again: int


class Story:
    def __init__(self, world: World, options: dict[str, Any]) -> None:
        self.world = world
        self.rng = world.random("story")
        self.options = {**CLIENT, **options, "enable_auto_commit": self.rng.random() < 0.6}
        self.sent = [0] * PARTITIONS
        self.done = [0] * PARTITIONS  # all records up to here were worked on
        self.again = 0
        self.applications: list[SimNode] = []
        self.is_over = False

    def told(self) -> Told:
        return Told(sum(self.done), self.again)

    async def run(self) -> None:
        await self._start_broker()
        env = self.world.node("outside").env
        config = ClientConfig.from_options(None, {"bootstrap_servers": "broker:9092", "request_timeout_ms": 2000})
        async with await Cluster.connect(config, env) as cluster:
            topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
            made = await cluster.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            assert not made.topics[0].error_code
            applications = [asyncio.ensure_future(self._run(index)) for index in range(APPLICATIONS)]
            trouble = asyncio.ensure_future(self._make_trouble())
            await self._produce(cluster)
            await trouble
            while self.done != self.sent:
                await asyncio.sleep(0.2)
                for application in applications:
                    if application.done():
                        application.result()  # it has found something wrong
            self.is_over = True
            await asyncio.gather(*applications)
        await self._check_committed(env)

    async def _start_broker(self) -> None:
        self.broker = self.world.node("broker")
        await self.broker.run(Node(self.broker.env, "/data", Options.from_mapping(BROKER)).start())

    async def _make_trouble(self) -> None:
        for _ in range(self.rng.randint(2, 7)):
            await asyncio.sleep(self.rng.uniform(0.05, 4.0))
            kind = self.rng.random()
            if kind < 0.25:
                for connection in self.world.network.open_connections():
                    if self.rng.random() < 0.5:
                        connection.cut()
            elif kind < 0.5 and self.applications:
                self.world.kill(self.rng.choice(self.applications))
            else:
                self.world.kill(self.broker)
                await asyncio.sleep(self.rng.choice((0.0, 0.5, 8.0)))
                await self._start_broker()

    async def _produce(self, cluster: Cluster) -> None:
        async with cluster.sender() as sender:
            for number in range(RECORDS):
                partition = self.rng.randrange(PARTITIONS)
                await sender.put("t", b"%d" % number, partition=partition)
                self.sent[partition] += 1
                await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.0, 0.1)))

    async def _run(self, index: int) -> None:
        """A process, and another one in its place when it has ended, however that was."""
        await asyncio.sleep(self.rng.uniform(0, 3))
        while not self.is_over:
            node = self.world.node(f"application-{index}")
            self.applications.append(node)
            try:
                await node.run(self._live(node.env))
            except (Killed, NotReachable):
                pass
            self.applications.remove(node)
            self.world.kill(node)  # whatever it has left
            await asyncio.sleep(self.rng.uniform(0, 2))

    async def _live(self, env: Env) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.rng.uniform(1, 20)
        async with Consumer("t", env=env, **self.options) as consumer:
            while not self.is_over and loop.time() < until:
                found = await consumer.getmany(self.rng.choice((1, 3, 50)), timeout_ms=200)
                await asyncio.sleep(self.rng.choices((0.0, 0.2, 1.0, 10.0), (70, 15, 14, 1))[0])
                for place, records in found.items():
                    self._work(place.partition, [record.offset for record in records])
                if found and not self.options["enable_auto_commit"]:
                    try:
                        await consumer.commit({place: records[-1].offset + 1 for place, records in found.items()})
                    except CommitFailed:
                        pass  # they were another member's by then, or come again
                    except ClientError as error:
                        assert error.retriable, error

    def _work(self, partition: int, offsets: list[int]) -> None:
        for offset in offsets:
            assert offset <= self.done[partition], f"records of {partition} from {self.done[partition]} on are left out"
            if offset == self.done[partition]:
                self.done[partition] += 1
            else:
                self.again += 1

    async def _check_committed(self, env: Env) -> None:
        async with Consumer(env=env, **self.options) as consumer:
            places = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
            for place, at in (await consumer.committed(*places)).items():
                assert at is None or at.offset <= self.done[place.partition]


def run(seeds: range, protocol: str) -> None:
    def run_seed(seed: int) -> Told:
        return tell(seed, lambda world: Story(world, PROTOCOLS[protocol]), Story.told)

    tell_all(run_seed, seeds, worked=100)


@in_every_run(4, step=4)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_record_is_worked_on_over_any_number_of_kills(protocol: str, seeds: range) -> None:
    run(seeds, protocol)


@in_soak()
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_record_is_worked_on_over_very_many_kills(protocol: str, seeds: range) -> None:
    run(seeds, protocol)
