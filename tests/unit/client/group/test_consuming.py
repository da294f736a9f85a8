"""The consumer as an application uses it, in a group, with records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from test_members import BROKER, PROTOCOLS

from klamm.aio import Consumer, Producer
from klamm.client.errors import ConfigError
from klamm.client.membership import Offset
from klamm.core.ids import TopicPartition

QUICK: dict[str, Any] = {"heartbeat_interval_ms": 50, "retry_backoff_ms": 5, "auto_offset_reset": "earliest"}


@pytest.fixture
def broker(klamm_brokers: Any) -> Any:
    broker = klamm_brokers(**BROKER)
    broker.create_topic("t", partitions=2)
    return broker


def consumer(broker: Any, *topics: str, **options: Any) -> Consumer:
    return Consumer(*topics, bootstrap_servers=broker.bootstrap, group_id="g", **{**QUICK, **options})


async def write(broker: Any, count: int) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(count):
            await producer.send("t", b"%d" % number, partition=number % 2)


@PROTOCOLS
async def test_records_are_read_and_go_on_from_the_last_commit(broker: Any, options: dict[str, Any]) -> None:
    await write(broker, 10)
    seen = []
    async with asyncio.timeout(30):
        async with consumer(broker, "t", **options) as first:
            async for record in first:
                seen.append((record.partition, record.offset))
                if len(seen) == 6:
                    break
        async with consumer(broker, "t", **options) as second:
            async for record in second:
                seen.append((record.partition, record.offset))
                if len(seen) == 10:
                    break
    assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(5)]


@PROTOCOLS
async def test_a_callback_may_ask_where_partitions_begin(broker: Any, options: dict[str, Any]) -> None:
    await write(broker, 10)
    places = [TopicPartition("t", index) for index in range(2)]
    async with asyncio.timeout(30), consumer(broker, **options) as one:
        found: dict[TopicPartition, int] = {}

        async def assigned(given: list[TopicPartition]) -> None:
            for place in given:
                found[place] = await one.position(place)
                one.seek(place, 3)

        one.subscribe("t", on_assigned=assigned)
        records = [await one.getone() for _ in range(4)]
        assert found == dict.fromkeys(places, 0)
        assert {record.offset for record in records} == {3, 4}
        assert one.assignment() == set(places)


@PROTOCOLS
async def test_giving_up_waiting_in_the_middle_of_a_rebalance_loses_nothing(
    broker: Any, options: dict[str, Any]
) -> None:
    """An application with a time limit of its own around every call."""
    await write(broker, 20)
    seen: list[tuple[int, int]] = []

    async def read(one: Consumer) -> None:
        while len(seen) < 20:
            try:
                record = await asyncio.wait_for(one.getone(), 0.003)
            except TimeoutError:
                continue
            seen.append((record.partition, record.offset))
            await asyncio.sleep(0.02)

    async with asyncio.timeout(60), consumer(broker, "t", **options) as first:
        reads = asyncio.ensure_future(read(first))
        await asyncio.sleep(0.1)
        async with consumer(broker, "t", **options) as second:
            await asyncio.gather(reads, read(second))
            # Both have closed calls in mid-rebalance; what was committed is what was given out.
    assert sorted(set(seen)) == [(partition, offset) for partition in range(2) for offset in range(10)]
    assert len(seen) == len(set(seen)), "something was read twice"


async def test_offsets_go_with_a_transaction(broker: Any) -> None:
    await write(broker, 4)
    async with asyncio.timeout(30), consumer(broker, "t", enable_auto_commit=False) as one:
        found = await one.getmany()
        while sum(map(len, found.values())) < 4:
            for place, records in (await one.getmany()).items():
                found.setdefault(place, []).extend(records)
        offsets = {place: Offset(records[-1].offset + 1) for place, records in found.items()}
        options = {"bootstrap_servers": broker.bootstrap, "transactional_id": "x"}
        async with Producer(**options) as producer, producer.transaction():
            await producer.send_offsets(offsets, one.group_metadata())
        assert one.group_metadata().generation_id > 0
        assert {place: at and at.offset for place, at in (await one.committed()).items()} == {
            place: at.offset for place, at in offsets.items()
        }


async def test_members_of_both_kinds_of_rebalance_work_in_one_group(broker: Any) -> None:
    """How a group goes over from range to cooperative: one member at a time."""
    await write(broker, 2)
    async with (
        asyncio.timeout(30),
        consumer(broker, "t", partition_assignment_strategy="cooperative-sticky") as new,
        consumer(broker, "t") as old,
    ):
        while not (len(new.assignment()) == len(old.assignment()) == 1 and new.assignment() != old.assignment()):
            await asyncio.gather(new.getmany(timeout_ms=20), old.getmany(timeout_ms=20))


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms"):
        Consumer("t", bootstrap_servers="a:1", group_id="g", session_timeout_ms=1000, heartbeat_interval_ms=1000)
