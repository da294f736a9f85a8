"""Our client against our broker, which is killed again and again: nothing acknowledged is lost, doubled or reordered.

Kills only: what was acknowledged is in the page cache, which a kill keeps. Power losses are for the broker's own tests.
"""

from __future__ import annotations

import asyncio

from klamm.client import ClientConfig, Cluster
from klamm.client.batches import BatchResult
from klamm.client.bulk import columns
from klamm.core.env import Env
from klamm.core.options import Options
from klamm.server.node import Node
from klamm.testing.sim.telling import tell
from klamm.testing.sim.world import World
from klamm.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from support.seeds import in_every_run, in_soak, tell_all

PARTITIONS = 3
RECORDS = 400
OPTIONS = {"listeners": "PLAINTEXT://broker:9092", "log.retention.check.interval.ms": "300"}


class Story:
    """One seed: a producer, a consumer that reads along, and a broker that dies under them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.random("story")
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.read: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
        self.outcomes: list[object] = []
        self.told: list[BatchResult] = []

    async def run(self) -> None:
        await self._start()
        env = self.world.node("client").env
        config = ClientConfig.from_mapping(
            {
                "bootstrap.servers": "broker:9092",
                "batch.size": self.rng.choice((200, 2000)),
                "linger.ms": self.rng.choice((0, 5, 50)),
                "compression.type": self.rng.choice(("none", "gzip")),
                "request.timeout.ms": 2000,
                "delivery.timeout.ms": 600_000,
            }
        )
        async with await Cluster.connect(config, env) as cluster:
            request = CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)], timeout_ms=10_000
            )
            made: CreateTopicsResponse = await cluster.request(request)
            assert not made.topics[0].error_code
            reader = asyncio.ensure_future(self._consume(config, env))
            trouble = asyncio.ensure_future(self._make_trouble())
            await self._produce(cluster)
            await reader
            trouble.cancel()

    def check(self) -> None:
        failed = [outcome for outcome in self.outcomes if not isinstance(outcome, BatchResult)]
        assert not failed, failed
        assert not [result for result in self.told if result.error is not None]
        assert self.read == self.sent

    async def _start(self) -> None:
        self.process = self.world.node("broker")
        await self.process.run(Node(self.process.env, "/data", Options.from_mapping(OPTIONS)).start())

    async def _make_trouble(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            await asyncio.sleep(self.rng.uniform(0.05, 1.5))
            if self.rng.random() < 0.4:
                for connection in self.world.network.open_connections():
                    if self.rng.random() < 0.5:
                        connection.cut()
                continue
            self.world.kill(self.process)
            await asyncio.sleep(self.rng.uniform(0.0, 3.0))
            await self._start()

    async def _produce(self, cluster: Cluster) -> None:
        async with cluster.sender(on_batch=lambda batch, result: self.outcomes.append(result)) as sender:
            number = 0
            while number < RECORDS:
                partition = self.rng.randrange(PARTITIONS)
                count = min(self.rng.choice((1, 1, 1, 30)), RECORDS - number)
                values = [b"%d" % each for each in range(number, number + count)]
                self.sent[partition] += values
                number += count
                if count == 1:
                    await sender.put("t", values[0], partition=partition)
                else:
                    await sender.put_many("t", columns(values, None, partition, None, None, 0, self.told.append))
                await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.02)))

    async def _consume(self, config: ClientConfig, env: Env) -> None:
        cluster = Cluster(config, env)
        count = 0
        async with cluster, cluster.fetcher({("t", partition): 0 for partition in range(PARTITIONS)}) as fetcher:
            while count < RECORDS:
                chunk = await fetcher.next()
                assert chunk is not None
                self.read[chunk.partition] += [record.value for record in chunk.records]
                count += len(chunk.records)


def run_seed(seed: int) -> None:
    tell(seed, Story, Story.check)


@in_every_run(30, step=10)
def test_records_arrive_once_and_in_order_over_any_number_of_kills(seeds: range) -> None:
    tell_all(run_seed, seeds)


@in_soak()
def test_records_arrive_once_and_in_order_over_very_many_kills(seeds: range) -> None:
    tell_all(run_seed, seeds)
