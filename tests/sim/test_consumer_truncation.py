"""A consumer and a broker whose power fails: what it has read and is told to forget, taken together, is the log.

A power loss takes away records that consumers have seen, and others may come in their place. With
auto.offset.reset=none a consumer hears of every such cut (KIP-320). If it forgets what it read from there on and goes
on reading, it must end up with exactly what is in the log; one cut that it is not told of, and it would not.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from klamm.aio import Consumer, Producer
from klamm.client.errors import ClientError, LogTruncated
from klamm.client.membership import Offset
from klamm.core.ids import TopicPartition
from klamm.core.options import Options
from klamm.server.node import Node
from klamm.testing.sim.world import World

PARTITIONS = 2
RECORDS = 250
LOSSES = 5
LAST = b"last"
PLACES = [TopicPartition("t", number) for number in range(PARTITIONS)]
OPTIONS = {"listeners": "PLAINTEXT://broker:9092", "num.partitions": str(PARTITIONS)}
CLIENT: dict[str, object] = {"bootstrap_servers": "broker:9092", "request_timeout_ms": 1000}


class Story:
    """One seed. `read` has the values of each partition by their offsets, without what was cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.random("story")
        self.read: dict[TopicPartition, list[bytes]] = {place: [] for place in PLACES}
        self.cuts = 0

    async def run(self) -> None:
        await self._start()
        env = self.world.node("client").env
        options = {
            **CLIENT,
            "max_partition_fetch_bytes": self.rng.choice((100, 1000, 100_000)),
            "prefetch_max_bytes": self.rng.choice((100, 100_000)),
        }
        async with (
            Producer(env=env, enable_idempotence=False, acks="1", delivery_timeout_ms=3000, **CLIENT) as producer,
            Consumer(env=env, auto_offset_reset="none", **options) as consumer,
        ):
            await producer.send("t", b"first", partition=0)
            writing = asyncio.ensure_future(self._write(producer))
            cutting = asyncio.ensure_future(self._cut())
            consumer.assign(PLACES)
            for place in PLACES:
                consumer.seek(place, 0)
            while not (writing.done() and cutting.done()):
                await self._take(consumer)
            await asyncio.gather(writing, cutting)
            for place in PLACES:
                await producer.send("t", LAST, partition=place.partition)
            while not all(self.read[place][-1:] == [LAST] for place in PLACES):
                await self._take(consumer)
        async with Consumer(env=env, auto_offset_reset="earliest", **CLIENT) as fresh:
            fresh.assign(PLACES)
            there: dict[TopicPartition, list[bytes]] = {place: [] for place in PLACES}
            while sum(map(len, there.values())) < sum((await fresh.end_offsets(*PLACES)).values()):
                for place, records in (await fresh.getmany(timeout_ms=1000)).items():
                    there[place] += [record.value for record in records]
        assert self.read == there

    async def _start(self) -> None:
        self.process = self.world.node("broker")
        await self.process.run(Node(self.process.env, "/data", Options.from_mapping(OPTIONS)).start())

    async def _write(self, producer: Producer) -> None:
        for number in range(RECORDS):
            with suppress(ClientError):  # what cannot be written is not what this is about
                await producer.send("t", b"%d" % number, partition=self.rng.randrange(PARTITIONS))
            await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.05)))

    async def _cut(self) -> None:
        for _ in range(LOSSES):
            await asyncio.sleep(self.rng.uniform(0.2, 2.0))
            (self.world.power_loss if self.rng.random() < 0.8 else self.world.kill)(self.process)
            await asyncio.sleep(self.rng.uniform(0.0, 1.0))
            await self._start()

    async def _take(self, consumer: Consumer) -> None:
        try:
            found = await consumer.getmany(self.rng.randint(1, 40), timeout_ms=200)
        except LogTruncated as cut:
            place = TopicPartition(cut.topic, cut.partition)
            assert cut.offset == len(self.read[place])
            self.cuts += 1
            to = cut.diverged_at or 0
            del self.read[place][to:]
            consumer.seek(place, Offset(to, cut.leader_epoch))
            return
        for place, records in found.items():
            assert [record.offset for record in records] == list(
                range(len(self.read[place]), len(self.read[place]) + len(records))
            )
            self.read[place] += [record.value for record in records]


@pytest.mark.parametrize("first", range(0, 8, 4))
def test_a_consumer_is_told_of_every_cut(first: int) -> None:
    cuts = 0
    for seed in range(first, first + 4):
        with World(seed) as world:

            async def main(world: World = world) -> int:
                story = Story(world)
                await story.run()
                return story.cuts

            cuts += world.run(main())
    assert cuts  # or it shows nothing
