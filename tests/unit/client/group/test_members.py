"""Members of both protocols with a broker: they share, hand over, lose, come back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from group_readers import until_shared

from klamm.client.membership import Offset
from klamm.core.ids import TopicPartition

BROKER: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 0,
    "num_partitions": 6,
    "group_min_session_timeout_ms": 100,
    "group_consumer_heartbeat_interval_ms": 50,
    "group_consumer_min_heartbeat_interval_ms": 50,
    "group_consumer_min_session_timeout_ms": 100,
}

PROTOCOLS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"partition_assignment_strategy": "cooperative-sticky"},
        {"partition_assignment_strategy": "sticky"},
        {"group_protocol": "consumer"},
    ],
    ids=["range", "cooperative", "sticky", "consumer"],
)


@pytest.fixture
def klamm_options() -> dict[str, Any]:
    return BROKER


@PROTOCOLS
async def test_two_members_share_and_one_takes_over_when_the_other_leaves(
    klamm_brokers: Any, reader: Any, options: dict[str, Any]
) -> None:
    broker = klamm_brokers(**BROKER)
    broker.create_topic("t", partitions=6)
    first = await reader(broker.bootstrap, **options)
    first.subscribe("t")
    await until_shared(6, first)
    second = await reader(broker.bootstrap, **options)
    second.subscribe("t")
    await until_shared(6, first, second)
    assert first.kinds()[0] == "assigned"
    assert "revoked" in first.kinds()
    assert "lost" not in first.kinds()
    await second.close()
    await until_shared(6, first)
    await first.close()
    assert first.history[-1][0] == "revoked"


def changes(one: Any) -> list[Any]:
    """What a member was told of. That nothing is added, by the last round of a cooperative rebalance, may come late."""
    return [told for told in one.history if told[1]]


@PROTOCOLS
async def test_a_broker_that_is_killed_and_comes_back_changes_nothing(
    klamm_brokers: Any, reader: Any, options: dict[str, Any]
) -> None:
    broker = klamm_brokers(**BROKER)
    broker.create_topic("t", partitions=6)
    first, second = await reader(broker.bootstrap, **options), await reader(broker.bootstrap, **options)
    first.subscribe("t")
    second.subscribe("t")
    await until_shared(6, first, second)
    before = first.mine, second.mine, changes(first), changes(second)
    generation = second.member.metadata().generation_id  # who has got partitions is in the last one
    place = TopicPartition("t", min(first.mine))
    await first.member.commit({place: Offset(7, 0, "note")})
    broker.kill()
    asked = asyncio.ensure_future(first.member.committed([place]))
    commit = asyncio.ensure_future(first.member.commit({place: Offset(8)}))
    await asyncio.to_thread(broker.start)
    assert (await asked)[place] in (Offset(7, 0, "note"), Offset(8))
    await commit
    assert await second.member.committed([place]) == {place: Offset(8)}
    beats = broker.request_count("Heartbeat") + broker.request_count("ConsumerGroupHeartbeat")
    while broker.request_count("Heartbeat") + broker.request_count("ConsumerGroupHeartbeat") < beats + 4:
        await asyncio.sleep(0.02)
    assert (first.mine, second.mine, changes(first), changes(second)) == before
    assert {one.member.metadata().generation_id for one in (first, second)} == {generation}
    await first.close()
    await second.close()


@PROTOCOLS
async def test_a_member_that_vanishes_is_replaced_when_its_session_is_over(
    klamm_brokers: Any, reader: Any, options: dict[str, Any]
) -> None:
    broker = klamm_brokers(**{**BROKER, "group_consumer_session_timeout_ms": 500})
    broker.create_topic("t", partitions=6)
    options = {**options, "session_timeout_ms": 500}
    first, second = await reader(broker.bootstrap, **options), await reader(broker.bootstrap, **options)
    first.subscribe("t")
    second.subscribe("t")
    await until_shared(6, first, second)
    await second.vanish()
    await until_shared(6, first)
    await first.close()
