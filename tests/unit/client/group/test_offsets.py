"""Commits and questions for them, with coordinators that fail, move and forget."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from group_readers import until_shared
from test_members import BROKER

from klamm.client.errors import BrokerSaid, CommitFailed, TimedOut
from klamm.client.membership import Offset
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

PLACES = [TopicPartition("t", index) for index in range(3)]


@pytest.fixture
def broker(klamm_brokers: Any) -> Any:
    broker = klamm_brokers(**BROKER)
    broker.create_topic("t", partitions=6)
    return broker


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"])
async def test_a_coordinator_that_is_not_there_yet_is_asked_again(broker: Any, reader: Any, error: str) -> None:
    one = await reader(broker.bootstrap)
    broker.fail("OffsetCommit", error, times=2)
    broker.fail("OffsetFetch", error, times=2)
    await one.member.commit({PLACES[0]: Offset(4, 2, "note")})
    assert await one.member.committed(PLACES[:2]) == {PLACES[0]: Offset(4, 2, "note"), PLACES[1]: None}
    assert broker.faults_left("OffsetCommit") == broker.faults_left("OffsetFetch") == 0
    await one.close()


async def test_a_commit_whose_answer_is_lost_is_sent_again(broker: Any, reader: Any) -> None:
    one = await reader(broker.bootstrap)
    broker.drop_after("OffsetCommit")
    await one.member.commit({PLACES[0]: Offset(4)})
    assert await one.member.committed(PLACES[:1]) == {PLACES[0]: Offset(4)}
    await one.close()


async def test_what_does_not_help_is_raised_with_the_partition(broker: Any, reader: Any) -> None:
    one = await reader(broker.bootstrap, default_api_timeout_ms=1500)
    with pytest.raises(BrokerSaid, match="t-0") as caught:
        await one.member.commit({PLACES[0]: Offset(4, metadata="x" * 5000)})
    assert caught.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert (caught.value.topic, caught.value.partition) == PLACES[0]
    with pytest.raises(TimedOut, match="Committing"):
        await one.member.commit({TopicPartition("no such topic", 0): Offset(1)})
    await one.close()


async def test_commits_in_the_background_come_in_order_and_the_last_one_counts(broker: Any, reader: Any) -> None:
    one = await reader(broker.bootstrap)
    broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
    for offset in range(1, 9):
        one.member.commit_soon(dict.fromkeys(PLACES, Offset(offset)))
        await asyncio.sleep(0)
    await one.member.commit({PLACES[0]: Offset(20)})
    assert (await one.member.committed(PLACES))[PLACES[0]] == Offset(20)
    while await one.member.committed(PLACES) != {**dict.fromkeys(PLACES, Offset(8)), PLACES[0]: Offset(20)}:
        await asyncio.sleep(0.01)
    assert broker.request_count("OffsetCommit") < 8
    one.member.commit_soon({PLACES[1]: Offset(9)})
    await one.close()
    other = await reader(broker.bootstrap)
    assert (await other.member.committed(PLACES))[PLACES[1]] == Offset(9), "closing waits for it"
    await other.close()


@pytest.mark.parametrize("error", ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"])
async def test_a_commit_of_one_that_is_out_fails_and_says_so(broker: Any, reader: Any, error: str) -> None:
    one = await reader(broker.bootstrap)
    one.subscribe("t")
    with pytest.raises(CommitFailed):
        await one.member.commit({PLACES[0]: Offset(1)})
    await until_shared(6, one)
    broker.fail("OffsetCommit", error)
    with pytest.raises(CommitFailed, match=error) as caught:
        await one.member.commit({PLACES[0]: Offset(1)})
    assert not caught.value.retriable
    await one.close()


async def test_an_epoch_that_went_up_meanwhile_is_no_failure(broker: Any, reader: Any) -> None:
    one = await reader(broker.bootstrap, group_protocol="consumer")
    one.subscribe("t")
    await until_shared(6, one)
    broker.fail("OffsetCommit", "STALE_MEMBER_EPOCH", times=2)
    broker.fail("OffsetFetch", "STALE_MEMBER_EPOCH", times=1)
    await one.member.commit({PLACES[0]: Offset(1)})
    assert await one.member.committed(PLACES[:1]) == {PLACES[0]: Offset(1)}
    await one.close()


@pytest.mark.parametrize(
    ("api", "error", "lost"),
    [
        ("Heartbeat", "UNKNOWN_MEMBER_ID", True),
        ("Heartbeat", "ILLEGAL_GENERATION", True),
        ("Heartbeat", "REBALANCE_IN_PROGRESS", False),
        ("Heartbeat", "NOT_COORDINATOR", None),
        ("Heartbeat", "COORDINATOR_LOAD_IN_PROGRESS", None),
    ],
)
async def test_members_get_over_what_heartbeats_tell_them(
    broker: Any, reader: Any, api: str, error: str, lost: bool | None
) -> None:
    one = await reader(broker.bootstrap, session_timeout_ms=1500)  # so long does the group wait for who it was
    one.subscribe("t")
    await until_shared(6, one)
    broker.fail(api, error)
    if lost is None:
        while broker.faults_left(api):
            await asyncio.sleep(0.01)
        beats = broker.request_count(api)
        while broker.request_count(api) < beats + 2:
            await asyncio.sleep(0.01)
        assert one.kinds() == ["assigned"]
    else:
        await one.until(lambda: len(one.history) == 3)
        assert one.kinds() == ["assigned", "lost" if lost else "revoked", "assigned"]
    await until_shared(6, one)
    await one.close()


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup", "FindCoordinator", "ConsumerGroupHeartbeat"])
@pytest.mark.parametrize("error", ["COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", None])
async def test_joining_gets_over_a_coordinator_that_is_not_ready(
    broker: Any, reader: Any, api: str, error: str | None
) -> None:
    protocol = "consumer" if api.startswith("Consumer") else "classic"
    one = await reader(broker.bootstrap, group_protocol=protocol)
    if error is None:
        broker.drop_after(api, times=2)
    else:
        broker.fail(api, error, times=2)
    one.subscribe("t")
    await until_shared(6, one)
    assert broker.faults_left(api) == 0
    await one.close()


async def test_a_fenced_member_of_the_consumer_protocol_loses_all_and_joins_again(broker: Any, reader: Any) -> None:
    one = await reader(broker.bootstrap, group_protocol="consumer")
    one.subscribe("t")
    await until_shared(6, one)
    broker.fail("ConsumerGroupHeartbeat", "FENCED_MEMBER_EPOCH")
    await one.until(lambda: "lost" in one.kinds())
    await until_shared(6, one)
    assert one.kinds()[:3] == ["assigned", "lost", "assigned"]
    await one.close()
