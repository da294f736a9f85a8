"""A real broker, killed under our running producer: all is there, once and in order."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from klamm.aio import Producer
from klamm.client.batches import BatchResult
from klamm.testing import AsyncBroker
from support.committed import read_all

PARTITIONS = 3
KILLS = 4


@pytest.mark.parametrize("seed", range(2))
async def test_kills_lose_double_and_reorder_nothing(klamm_async_broker: AsyncBroker, seed: int) -> None:
    broker, rng = klamm_async_broker, Random(seed)
    await broker.create_topic("t", partitions=PARTITIONS)
    sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    told: list[BatchResult] = []
    over = False

    async def produce(producer: Producer) -> None:
        number = 0
        while not over:
            partition = rng.randrange(PARTITIONS)
            values = [b"%d" % each for each in range(number, number + rng.choice((1, 5, 300)))]
            number += len(values)
            sent[partition] += values
            if len(values) == 1:
                await producer.send_soon("t", values[0], partition=partition)
            else:
                await producer.send_many("t", values, partition=partition, on_batch=told.append)
            await asyncio.sleep(0.001)

    async with Producer(
        bootstrap_servers=broker.bootstrap,
        batch_size=rng.choice((500, 16_384)),
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=50,
    ) as producer:
        producing = asyncio.ensure_future(produce(producer))
        for _ in range(KILLS):
            heard = len(told)
            while len(told) < heard + 20:  # it is in full swing
                await asyncio.sleep(0.005)
                assert not producing.done()
            await broker.kill()
            await broker.start()
        over = True
        await producing
        await producer.flush()
    assert not [result for result in told if result.error is not None]
    found = await asyncio.to_thread(read_all, broker.bootstrap, "t", PARTITIONS)
    for partition in range(PARTITIONS):
        assert found[partition] == sent[partition]
