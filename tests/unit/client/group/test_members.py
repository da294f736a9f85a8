"""Members of both protocols with a broker: they share, hand over, lose, come back."""

from __future__ import annotations

from typing import Any

import pytest
from group_readers import until_shared

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
