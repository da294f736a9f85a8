"""Automatic commits that fail, come late or must not come at all; closing while nobody answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from group_readers import until_shared
from test_applications import KINDS, read_to
from test_members import BROKER

from klamm.aio import Consumer, Producer
from klamm.client.errors import CommitFailed
from klamm.client.group.handover import Handover
from klamm.client.group.turns import Turns
from klamm.client.membership import Offset
from klamm.client.reset import LATEST_RESET
from klamm.client.subscription import Listener, Subscriptions
from klamm.core.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker(klamm_brokers: Any) -> Any:
    broker = klamm_brokers(**BROKER)
    broker.create_topic("t", partitions=6)
    return broker


async def write(broker: Any, *partitions: int) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for partition in partitions:
            await producer.send("t", b"value", partition=partition)


@KINDS
async def test_an_automatic_commit_that_failed_is_made_good_without_new_records(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    one = await reader(broker.bootstrap, auto_commit_interval_ms=20, **options)
    one.subscribe("t")
    await until_shared(6, one)
    broker.fail("OffsetCommit", "REBALANCE_IN_PROGRESS")
    read_to(one, 3)
    async with asyncio.timeout(20):
        while await one.member.committed([T0]) != {T0: Offset(3)}:
            await asyncio.sleep(0.01)
    assert broker.faults_left("OffsetCommit") == 0
    await one.close()


@KINDS
async def test_a_commit_that_waits_does_not_outlive_the_partitions_it_is_for(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    given = {"enable_auto_commit": False, "session_timeout_ms": 1500, "retry_backoff_ms": 1000, **options}
    one = await reader(broker.bootstrap, **given, retry_backoff_max_ms=1000)  # it waits for longer than joining takes
    one.subscribe("t")
    await until_shared(6, one)
    broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
    one.member.commit_soon({T0: Offset(3)})
    waiting = asyncio.ensure_future(one.member.commit({T1: Offset(4)}))
    while not broker.request_count("OffsetCommit"):
        await asyncio.sleep(0.01)
    beat = "ConsumerGroupHeartbeat" if options else "Heartbeat"
    broker.fail(beat, "UNKNOWN_MEMBER_ID")
    await one.until(lambda: one.kinds() == ["assigned", "lost", "assigned"])
    broker.clear_faults()
    with pytest.raises(CommitFailed):
        await waiting
    await one.member.commit({TopicPartition("t", 5): Offset(1)})
    assert await one.member.committed([T0, T1]) == {T0: None, T1: None}, "somebody else may have gone further"
    await one.close()


async def test_what_comes_after_the_application_has_unsubscribed_is_not_adopted() -> None:
    subscriptions = Subscriptions(LATEST_RESET)
    subscriptions.subscribe(["t"], Listener())
    turns = Turns(lambda wanted: None)
    handover = Handover(subscriptions, turns, lambda: None, None, lambda: True)
    subscriptions.unsubscribe()
    subscriptions.assign([("u", 0)])
    await handover.adopt([T0])
    assert set(subscriptions.partitions) == {TopicPartition("u", 0)}
    assert not handover.owned


@KINDS
async def test_closing_takes_no_longer_than_it_may_when_nobody_answers(broker: Any, options: dict[str, Any]) -> None:
    await write(broker, *range(6))
    gone: list[TopicPartition] = []
    consumer = Consumer(bootstrap_servers=broker.bootstrap, group_id="g", auto_offset_reset="earliest", **options)
    consumer.subscribe("t", on_revoked=gone.extend)
    await consumer.start()
    await consumer.getone()
    with broker.paused():
        async with asyncio.timeout(8):
            await consumer.close(timeout_ms=100)
    assert len(gone) == 6


@KINDS
async def test_what_an_application_broke_at_is_not_committed(broker: Any, options: dict[str, Any]) -> None:
    await write(broker, 0, 0, 0, 0)
    given = {"bootstrap_servers": broker.bootstrap, "group_id": "g", "auto_offset_reset": "earliest", **options}
    with pytest.raises(ZeroDivisionError):
        async with Consumer("t", **given) as consumer:
            async for record in consumer:
                assert 1 // (record.offset - 2)
    async with Consumer(**given) as consumer:
        consumer.assign([T0])
        before = await consumer.position(T0)
        assert before <= 2, "the record that it broke at comes again"
    with pytest.raises(asyncio.TimeoutError):
        async with Consumer("t", **given) as consumer:
            async with asyncio.timeout(20):
                while await consumer.getmany(timeout_ms=500) or await consumer.position(T0) < 4:
                    pass
                async with asyncio.timeout(0.01):
                    await consumer.getone()
    async with Consumer(**given) as consumer:
        consumer.assign([T0])
        assert await consumer.position(T0) == 4, "who breaks while it waits for records has done all others"
