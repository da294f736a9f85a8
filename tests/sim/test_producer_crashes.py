"""Our producer's transactions on a broker that is killed again and again: each is whole, or was never there."""

from __future__ import annotations

import asyncio
from typing import Any

from klamm.client import ClientError
from klamm.client.errors import ProducerFenced, TransactionAborted, TransactionUnfinished
from klamm.client.producer import Producer
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.mortal import BROKER, PORT
from klamm.testing.sim.telling import tell
from klamm.testing.sim.transactions.producer import PARTITIONS, TOPIC
from klamm.testing.sim.transactions.story import CommittedReader, Story, Told
from klamm.testing.sim.world import World
from klamm.testing.transactions import Fate, Transaction
from support.seeds import in_every_run, in_soak, tell_all


class OwnProducer:
    """Transactions one after the other; now and then by a new producer of the same id, which fences the one before."""

    def __init__(self, story: OwnStory, name: str) -> None:
        self.name = name
        self.offset = -1
        self.offset_unsure: set[int] = set()
        self._story = story
        self._rng = story.world.random(name)
        self._number = 0

    async def run(self) -> None:
        while not self._story.over:
            producer = Producer(env=self._story.env, transactional_id=self.name, **self._options())
            try:
                async with producer:
                    for _ in range(self._rng.randint(1, 8)):
                        if self._story.over:
                            break
                        await self._transaction(producer, self._story.history.begin(self.name))
            except ClientError as error:
                if not (error.retriable or isinstance(error, (ProducerFenced, TransactionAborted))):
                    raise Violation(f"{self.name}: {error!r}") from error

    def _options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": f"{BROKER}:{PORT}",
            "linger_ms": self._rng.choice((0, 5)),
            "batch_size": self._rng.choice((200, 16_384)),
            "request_timeout_ms": 2000,
            "delivery_timeout_ms": self._rng.choice((3000, 600_000)),
            "max_block_ms": 600_000,
            "transaction_timeout_ms": 600_000,
        }

    async def _transaction(self, producer: Producer, one: Transaction) -> None:
        await producer.begin()
        offset = None
        try:
            for _ in range(self._rng.randint(1, 5)):
                await self._send(producer, one)
            if self._rng.random() < 0.5:
                offset = self._number
                await producer.send_offsets({(TOPIC, 0): offset}, self.name)
            if self._rng.random() < 0.2:
                await producer.abort()
            else:
                await self._commit(producer, one, offset)
        except ProducerFenced:
            raise
        except ClientError:
            if one.fate is Fate.UNKNOWN:
                raise
            await producer.abort()

    async def _send(self, producer: Producer, one: Transaction) -> None:
        partition = self._rng.randrange(PARTITIONS)
        values = []
        for _ in range(self._rng.choice((1, 1, 20))):
            self._number += 1
            values.append(b"%s-%d" % (self.name.encode(), self._number))
            one.add(partition, values[-1])
        if len(values) > 1:
            await producer.send_many(TOPIC, values, partition=partition)
        elif self._rng.random() < 0.5:
            await producer.send(TOPIC, values[0], partition=partition)
        else:
            await producer.send_soon(TOPIC, values[0], partition=partition)

    async def _commit(self, producer: Producer, one: Transaction, offset: int | None) -> None:
        one.fate = Fate.UNKNOWN
        if offset is not None:
            self.offset_unsure.add(offset)
        try:
            while True:
                try:
                    await producer.commit()
                    break
                except TransactionUnfinished:
                    continue
        except TransactionAborted:
            one.fate = Fate.ABORTED
            raise
        one.fate = Fate.COMMITTED
        if offset is not None:
            self.offset, self.offset_unsure = offset, set()


class OwnStory(Story):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.env = world.node("client").env

    async def run(self) -> None:
        await self.start()
        await self._create_topic()
        producers: list[Any] = [OwnProducer(self, f"own-{number}") for number in range(self._rng.randint(1, 3))]
        reader = CommittedReader(self, "follower")
        for producer in producers:
            self.begin(producer.run())
        self.begin(reader.follow())
        for _ in range(self._rng.randint(1, 5)):
            await self.live()
        await asyncio.sleep(1.0)
        self.over = True
        await self.join()
        await self._check(producers, reader)
        await self.stop()


def run_seed(seed: int) -> Told:
    return tell(seed, OwnStory, OwnStory.told)


@in_every_run(20, step=10)
def test_transactions_of_our_producer_are_whole_over_any_number_of_kills(seeds: range) -> None:
    tell_all(run_seed, seeds, kills=1, committed=5)


@in_soak()
def test_transactions_of_our_producer_are_whole_over_very_many_kills(seeds: range) -> None:
    tell_all(run_seed, seeds, kills=1, committed=5)
