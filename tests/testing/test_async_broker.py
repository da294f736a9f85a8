from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

import klamm.testing
from klamm.testing import AsyncBroker, Broker, BrokerStartError


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_async_broker_has_all_that_the_other_one_has() -> None:
    assert public(Broker) <= public(AsyncBroker)
    for name in public(Broker):
        theirs, ours = getattr(Broker, name), getattr(AsyncBroker, name)
        if inspect.isfunction(theirs) and inspect.isfunction(ours):
            assert inspect.signature(theirs).parameters.keys() == inspect.signature(ours).parameters.keys(), name


async def test_a_broker_lasts_as_long_as_its_block(tmp: Path) -> None:
    async with klamm.testing.async_broker(num_partitions=2) as broker:
        assert await broker.is_running()
        assert repr(broker).startswith("<klamm.testing.AsyncBroker at ")
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send_and_wait("t", b"a", partition=1)
        assert await broker.topics() == {"t": 2}
        assert [record.value for record in await broker.records("t", 1)] == [b"a"]
        await broker.kill()
        await broker.start()
        await broker.restart()
        assert [record.value for record in await broker.records("t")] == [b"a"]
        await broker.stop()
        assert not await broker.is_running()


async def test_the_loop_goes_on_while_a_broker_starts(tmp: Path) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    async with klamm.testing.async_broker():
        assert ticks > 10
    ticking.cancel()


async def test_a_start_that_is_cancelled_leaves_nothing_behind(tmp: Path) -> None:
    broker = klamm.testing.async_broker()
    starting = asyncio.create_task(broker.start())
    while not list(tmp.iterdir()):
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not await broker.is_running()


async def test_a_start_that_fails_says_why(tmp: Path) -> None:
    with pytest.raises(BrokerStartError, match="did you mean"):
        async with klamm.testing.async_broker(num_partition=1):
            pass


async def test_faults_can_be_had_without_holding_up_the_loop(klamm_async_broker: AsyncBroker) -> None:
    broker = klamm_async_broker
    await broker.create_topic("t")
    await broker.fail("Metadata", 5)
    await broker.drop_after()
    assert await broker.faults_left("Metadata") == await broker.faults_left("Produce") == 1
    await broker.delay(0.01)
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True) as producer:
        await producer.send_and_wait("t", b"a")
        async with broker.unreachable():
            waiting = await producer.send("t", b"b")
        await waiting
        assert await broker.drop_connections() >= 1
        async with broker.paused():
            pass
        await broker.clear_faults()
        await producer.send_and_wait("t", b"c")
    assert await broker.request_count("Produce") >= 4
    await broker.advance_time(1)
    assert [record.value for record in await broker.records("t")] == [b"a", b"b", b"c"]
