"""A real broker, killed under our running producer and consumers: all is there and all comes, once and in order."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from klamm.aio import Consumer, Producer
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
    read: list[list[list[bytes]]] = [[[] for _ in range(PARTITIONS)] for _ in range(2)]
    told: list[BatchResult] = []
    all_written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
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

    soon = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 50}
    async with Producer(bootstrap_servers=broker.bootstrap, batch_size=rng.choice((500, 16_384)), **soon) as producer:
        producing = asyncio.ensure_future(produce(producer))
        consuming = [
            asyncio.ensure_future(consume(broker, reader, all_written, protocol, soon))
            for reader, protocol in zip(read, ("classic", "consumer"), strict=True)
        ]
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
    all_written.set_result(sum(map(len, sent)))
    await asyncio.gather(*consuming)
    assert not [result for result in told if result.error is not None]
    found = await asyncio.to_thread(read_all, broker.bootstrap, "t", PARTITIONS)
    for partition in range(PARTITIONS):
        assert found[partition] == sent[partition]
        for reader in read:
            assert reader[partition] == sent[partition]


async def consume(
    broker: AsyncBroker, read: list[list[bytes]], total: asyncio.Future[int], protocol: str, soon: dict[str, int]
) -> None:
    """One member of a group, from before the first record to the last. It commits all the time, and is never away: so
    it sees everything once."""
    async with Consumer(
        "t",
        bootstrap_servers=broker.bootstrap,
        group_id=f"readers-{protocol}",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=20,
        **soon,
    ) as consumer:
        while not total.done() or sum(map(len, read)) < total.result():
            for place, records in (await consumer.getmany(timeout_ms=100)).items():
                read[place.partition] += [record.value for record in records]
