"""What members do for and with the application: turns, callbacks, automatic commits, an application that stays away."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from group_readers import until_shared
from test_members import BROKER, PROTOCOLS

from klamm.client.assignors import Assignment, Assignor, Member
from klamm.client.errors import BrokerSaid, CommitFailed, ConfigError
from klamm.client.membership import Offset
from klamm.client.subscription import Listener
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

KINDS = pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])


@pytest.fixture
def broker(klamm_brokers: Any) -> Any:
    broker = klamm_brokers(**BROKER)
    broker.create_topic("t", partitions=6)
    return broker


def read_to(reader: Any, offset: int) -> None:
    """As if the application had been given records up to here."""
    for state in reader.subscriptions.partitions.values():
        state.start_at(offset)


@PROTOCOLS
async def test_nothing_is_taken_from_an_application_before_it_comes_back(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    first = await reader(broker.bootstrap, **options)
    first.subscribe("t")
    await until_shared(6, first)
    read_to(first, 5)
    first.stop_polling()
    second = await reader(broker.bootstrap, **options)
    second.subscribe("t")
    while not first.member.wants_turn:
        await asyncio.sleep(0.01)
    assert first.kinds() == ["assigned"]
    assert second.mine == set()
    read_to(first, 9)
    first.poll_again()
    await until_shared(6, first, second)
    moved = [TopicPartition("t", partition) for partition in sorted(second.mine)]
    assert await second.member.committed(moved) == dict.fromkeys(moved, Offset(9)), (
        "what it had done was committed first"
    )
    await first.close()
    await second.close()


@KINDS
async def test_an_application_that_stays_away_loses_its_partitions_and_gets_them_again(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    first = await reader(broker.bootstrap, max_poll_interval_ms=400, **options)
    second = await reader(broker.bootstrap, **options)
    first.subscribe("t")
    second.subscribe("t")
    await until_shared(6, first, second)
    first.stop_polling()
    await until_shared(6, second)
    assert first.mine == set()
    with pytest.raises(CommitFailed):
        await first.member.commit({TopicPartition("t", 0): Offset(1)})
    first.poll_again()
    await until_shared(6, first, second)
    assert "lost" in first.kinds()
    await first.close()
    await second.close()


@KINDS
async def test_an_application_that_waits_for_records_for_long_is_not_away(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    one = await reader(broker.bootstrap, max_poll_interval_ms=800, enable_auto_commit=False, **options)
    one.subscribe("t")
    await until_shared(6, one)
    generation, turns = one.member.metadata().generation_id, one.member._turns
    asked = turns.taken
    while turns.taken < asked + 3:  # whether it is still there
        await asyncio.sleep(0.02)
    assert one.member.metadata().generation_id == generation
    assert one.kinds() == ["assigned"]
    await one.close()


@KINDS
async def test_positions_are_committed_while_the_application_comes_for_more(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    one = await reader(broker.bootstrap, auto_commit_interval_ms=20, **options)
    one.subscribe("t")
    await until_shared(6, one)
    read_to(one, 3)
    place = TopicPartition("t", 2)
    while await one.member.committed([place]) != {place: Offset(3)}:
        await asyncio.sleep(0.01)
    read_to(one, 4)
    await one.close()
    other = await reader(broker.bootstrap, **options)
    assert await other.member.committed([place]) == {place: Offset(4)}, "closing commits"
    await other.close()


@KINDS
async def test_without_automatic_commits_nothing_is_committed(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    one = await reader(broker.bootstrap, enable_auto_commit=False, **options)
    one.subscribe("t")
    await until_shared(6, one)
    read_to(one, 3)
    await one.close()
    other = await reader(broker.bootstrap, **options)
    place = TopicPartition("t", 2)
    assert await other.member.committed([place]) == {place: None}
    await other.close()


@KINDS
async def test_unsubscribing_commits_gives_back_and_leaves(broker: Any, reader: Any, options: dict[str, Any]) -> None:
    first, second = await reader(broker.bootstrap, **options), await reader(broker.bootstrap, **options)
    first.subscribe("t")
    second.subscribe("t")
    await until_shared(6, first, second)
    read_to(first, 3)
    had = sorted(first.places)
    first.subscriptions.unsubscribe()
    first.member.changed()
    await until_shared(6, second)
    assert first.history[-1] == ("revoked", had)
    assert await second.member.committed(had) == dict.fromkeys(had, Offset(3))
    first.subscribe("t")
    await until_shared(6, first, second)
    await first.close()
    await second.close()


@KINDS
async def test_callbacks_are_awaited_and_may_seek_and_commit(broker: Any, reader: Any, options: dict[str, Any]) -> None:
    one = await reader(broker.bootstrap, enable_auto_commit=False, **options)

    async def assigned(places: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        for place in places:
            one.subscriptions.seek(place, 11)

    async def revoked(places: list[TopicPartition]) -> None:
        await one.member.commit({place: Offset(12) for place in places})

    one.subscribe("t", listener=Listener(assigned, revoked))
    await until_shared(6, one)
    assert {state.offset for state in one.subscriptions.partitions.values()} == {11}
    await one.close()
    other = await reader(broker.bootstrap, **options)
    place = TopicPartition("t", 0)
    assert await other.member.committed([place]) == {place: Offset(12)}
    await other.close()


@KINDS
async def test_an_error_of_a_callback_is_the_applications_and_the_group_goes_on(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    one = await reader(broker.bootstrap, **options)

    def assigned(places: list[TopicPartition]) -> None:
        raise ValueError("not today")

    one.subscribe("t", listener=Listener(assigned))
    await until_shared(6, one)
    await one.until(lambda: bool(one.errors))
    assert [str(error) for error in one.errors] == ["not today"]
    await one.close()


@KINDS
async def test_a_pattern_finds_topics_and_also_those_that_come_later(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    one = await reader(broker.bootstrap, metadata_max_age_ms=50, **options)
    one.subscriptions.subscribe_pattern(re.compile("u[0-9]+"), one.listener())
    broker.create_topic("u1", partitions=1)
    one.member.changed()
    await one.until(lambda: one.places == {TopicPartition("u1", 0)})
    broker.create_topic("u2", partitions=1)
    broker.create_topic("xu2", partitions=1)
    await one.until(lambda: one.places == {TopicPartition("u1", 0), TopicPartition("u2", 0)})
    await one.close()


async def test_the_broker_resolves_a_pattern_given_as_text(broker: Any, reader: Any) -> None:
    one = await reader(broker.bootstrap, group_protocol="consumer")
    one.subscriptions.subscribe_pattern("t|nothing", one.listener())
    one.member.changed()
    await until_shared(6, one)
    one.subscriptions.subscribe_pattern("(", one.listener())
    one.member.changed()
    with pytest.raises(BrokerSaid, match="INVALID_REGULAR_EXPRESSION"):
        await one.until(lambda: False)
    one.subscribe("t")
    await until_shared(6, one)
    await one.close()


async def test_a_pattern_that_is_none_is_said_by_the_classic_protocol_too(broker: Any, reader: Any) -> None:
    one = await reader(broker.bootstrap)
    one.subscriptions.subscribe_pattern("(", one.listener())
    one.member.changed()
    with pytest.raises(ConfigError, match="regular expression"):
        await one.until(lambda: False)
    await one.close()


@KINDS
async def test_a_topic_that_comes_later_is_read(broker: Any, reader: Any, options: dict[str, Any]) -> None:
    one = await reader(broker.bootstrap, allow_auto_create_topics=False, **options)
    one.subscribe("later")
    await one.until(lambda: "assigned" in one.kinds())
    broker.create_topic("later", partitions=2)
    await one.until(lambda: one.mine == {0, 1})
    await one.close()


@KINDS
async def test_a_static_member_that_restarts_gets_the_same_without_a_rebalance(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    first = await reader(broker.bootstrap, group_instance_id="one", **options)
    second = await reader(broker.bootstrap, group_instance_id="two", **options)
    first.subscribe("t")
    second.subscribe("t")
    await until_shared(6, first, second)
    had, events = second.mine, len(first.history)
    await second.close()
    second = await reader(broker.bootstrap, group_instance_id="two", **options)
    second.subscribe("t")
    await until_shared(6, first, second)
    assert second.mine == had
    assert len(first.history) == events
    await first.close()
    await second.close()


async def test_two_with_one_instance_id_the_older_is_fenced(broker: Any, reader: Any) -> None:
    first = await reader(broker.bootstrap, group_instance_id="one")
    first.subscribe("t")
    await until_shared(6, first)
    second = await reader(broker.bootstrap, group_instance_id="one")
    second.subscribe("t")
    with pytest.raises(BrokerSaid, match=r"group\.instance\.id") as caught:
        await first.until(lambda: False)
    assert caught.value.code is ErrorCode.FENCED_INSTANCE_ID
    await until_shared(6, second)
    await second.close()


class Everything(Assignor):
    """All to the member whose id comes first."""

    name = "everything"

    def user_data(self, topics: frozenset[str], last: Sequence[TopicPartition], generation: int) -> bytes | None:
        return b"mine"

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
        assert {member.user_data for member in members} == {b"mine"}
        chosen = min(member.id for member in members)
        places = [TopicPartition(topic, index) for topic, count in partitions.items() for index in range(count)]
        return {chosen: places}


async def test_an_assignor_of_ones_own_decides(broker: Any, reader: Any) -> None:
    options = {"partition_assignment_strategy": [Everything()]}
    first, second = await reader(broker.bootstrap, **options), await reader(broker.bootstrap, **options)
    first.subscribe("t")
    second.subscribe("t")
    for one in (first, second):
        await one.until(lambda one=one: "assigned" in one.kinds())
    chosen, other = sorted((first, second), key=lambda one: one.member.metadata().member_id)
    await chosen.until(lambda: chosen.mine == set(range(6)))
    await other.until(lambda: not other.mine)
    await first.close()
    await second.close()


async def test_members_without_an_assignor_in_common_are_told(broker: Any, reader: Any) -> None:
    first = await reader(broker.bootstrap, partition_assignment_strategy="range")
    first.subscribe("t")
    await until_shared(6, first)
    second = await reader(broker.bootstrap, partition_assignment_strategy="sticky")
    second.subscribe("t")
    with pytest.raises(BrokerSaid, match="INCONSISTENT_GROUP_PROTOCOL"):
        await second.until(lambda: False)
    await first.close()
    await second.close()


async def test_partitions_chosen_by_hand_are_committed_without_joining(broker: Any, reader: Any) -> None:
    one = await reader(broker.bootstrap, auto_commit_interval_ms=20)
    place = TopicPartition("t", 3)
    one.subscriptions.assign([place])
    one.member.changed()
    one.subscriptions.seek(place, 4)
    while await one.member.committed([place]) != {place: Offset(4)}:
        await asyncio.sleep(0.01)
    one.subscriptions.seek(place, 5)
    await one.close()
    assert broker.request_count("JoinGroup") == 0
    other = await reader(broker.bootstrap)
    assert await other.member.committed([place]) == {place: Offset(5)}
    await other.close()


async def test_cooperative_members_read_on_through_a_rebalance(broker: Any, reader: Any) -> None:
    """What stays is never held, in either protocol."""
    for options in ({"partition_assignment_strategy": "cooperative-sticky"}, {"group_protocol": "consumer"}):
        group = {"group_id": f"g-{len(options)}-{next(iter(options))}"}
        first = await reader(broker.bootstrap, **group, **options)
        first.subscribe("t")
        await until_shared(6, first)
        states = dict(first.subscriptions.partitions)
        ever_held: set[TopicPartition] = set()
        hold = first.subscriptions.hold

        def held(places: Any, ever_held: set[TopicPartition] = ever_held, hold: Any = hold) -> None:
            ever_held.update(places)
            hold(places)

        first.subscriptions.hold = held
        second = await reader(broker.bootstrap, **group, **options)
        second.subscribe("t")
        await until_shared(6, first, second)
        assert len(ever_held) == 3
        assert {place.partition for place in ever_held} == second.mine
        for place in first.places:
            assert first.subscriptions.partitions[place] is states[place]
        await first.close()
        await second.close()


@pytest.mark.parametrize(
    "options",
    [{"partition_assignment_strategy": "cooperative-sticky"}, {"group_protocol": "consumer"}],
    ids=["cooperative", "consumer"],
)
async def test_an_application_reads_on_while_what_goes_cannot_be_committed(
    broker: Any, reader: Any, options: dict[str, Any]
) -> None:
    first = await reader(broker.bootstrap, auto_commit_interval_ms=60_000, **options)
    first.subscribe("t")
    await until_shared(6, first)
    read_to(first, 5)
    broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
    second = await reader(broker.bootstrap, **options)
    second.subscribe("t")
    tries = broker.request_count("OffsetCommit")
    while broker.request_count("OffsetCommit") < tries + 3:
        await asyncio.sleep(0.01)
    assert not first.member.wants_turn
    assert len(first.mine) == 3, "what stays is not held"
    broker.clear_faults()
    await until_shared(6, first, second)
    places = sorted(second.places)
    assert await second.member.committed(places) == dict.fromkeys(places, Offset(5))
    await first.close()
    await second.close()
