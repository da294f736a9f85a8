"""Consumer groups, step by step: who gets what when, who is refused, and what is written."""

from __future__ import annotations

from typing import Any

import pytest

from klamm.coordinator.groups.consumer.member import State
from klamm.coordinator.groups.members import Joining
from klamm.coordinator.machine import Outcome, Record
from klamm.coordinator.records import GROUPS
from klamm.core.errors import ErrorCode
from klamm.wire.messages.coordinator import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from klamm.wire.messages.k13_leave_group import MemberIdentity
from support.consumer_groups import GROUP, REBALANCE_MS, Consumer, Shard

ALL = {"a": [0, 1, 2, 3]}


@pytest.fixture
def shard() -> Shard:
    return Shard({"a": 4, "b": 2})


def records(shard: Shard, start: int = 0) -> list[Any]:
    return [GROUPS.decode(*entry[:2]) for entry in shard.reflex.log[start:]]


def settle(*consumers: Consumer, rounds: int = 4) -> None:
    for _ in range(rounds):
        for consumer in consumers:
            assert consumer.beat() is ErrorCode.NONE


def consumers(shard: Shard, *names: str, topics: tuple[str, ...] = ("a",)) -> list[Consumer]:
    made = [Consumer(shard, name) for name in names]
    for consumer in made:
        consumer.topics = list(topics)
    settle(*made)
    return made


def set_back(shard: Shard) -> None:
    """The clock of the wall, by an hour."""
    now = shard.reflex.now
    shard.reflex.now = now._replace(time_ms=now.time_ms - 3_600_000)


# ---- joining and reconciliation


def test_the_first_member_gets_everything_with_its_first_answer(shard: Shard) -> None:
    answer = shard.join("m1", "a")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert shard.assignment(answer) == ALL
    assert shard.group.state == "Stable"


def test_what_a_join_writes_is_what_kafka_writes(shard: Shard) -> None:
    shard.join("m1", "a", rack_id="r", server_assignor="range")
    values = [record.value for record in records(shard)]
    member, group, target, target_epoch, current = values
    assert member == ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id="r",
        client_id="client",
        client_host="/127.0.0.1",
        subscribed_topic_names=["a"],
        subscribed_topic_regex="",
        rebalance_timeout_ms=REBALANCE_MS,
        server_assignor="range",
    )
    assert isinstance(group, ConsumerGroupMetadataValue)
    assert group.epoch == 2 and group.metadata_hash != 0
    assert isinstance(target, ConsumerGroupTargetAssignmentMemberValue)
    assert [(t.topic_id, t.partitions) for t in target.topic_partitions] == [(shard.topic_id("a"), [0, 1, 2, 3])]
    assert isinstance(target_epoch, ConsumerGroupTargetAssignmentMetadataValue)
    assert (target_epoch.assignment_epoch, target_epoch.assignment_timestamp) == (2, shard.reflex.now.time_ms)
    assert isinstance(current, ConsumerGroupCurrentMemberAssignmentValue)
    assert (current.member_epoch, current.previous_member_epoch, current.state) == (2, 0, State.STABLE)
    assert [t.assignment_epochs for t in current.assigned_partitions] == [[2, 2, 2, 2]]


def test_a_heartbeat_without_news_writes_nothing_and_tells_nothing(shard: Shard) -> None:
    shard.join("m1", "a")
    written = len(shard.reflex.log)
    answer = shard.send("m1", 2)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 2, None)
    assert len(shard.reflex.log) == written


def test_a_second_member_waits_until_the_first_has_given_up_its_half(shard: Shard) -> None:
    shard.join("m1", "a")
    second = shard.join("m2", "a")
    assert (second.member_epoch, shard.assignment(second)) == (3, {})
    assert shard.group.state == "Reconciling"
    told = shard.send("m1", 2)
    assert (told.member_epoch, shard.assignment(told)) == (2, {"a": [0, 1]})
    assert shard.send("m2", 3).assignment is None, "nothing is free yet"
    assert shard.send("m1", 2).assignment is None, "it does not say whether it has given them up"
    assert shard.send("m1", 2, {"a": {0, 1, 3}}).member_epoch == 2, "it has not given up all of them"
    assert shard.send("m1", 2, {"a": {0, 1}}).member_epoch == 3
    assert shard.assignment(shard.send("m2", 3)) == {"a": [2, 3]}
    assert shard.group.state == "Stable"


def test_a_member_without_subscription_is_one_without_partitions(shard: Shard) -> None:
    answer = shard.join("m1")
    assert (answer.error_code, answer.member_epoch, shard.assignment(answer)) == (0, 1, {})


def test_assignments_are_an_interval_apart(shard: Shard) -> None:
    shard = Shard({"a": 4}, group_consumer_assignment_interval_ms=1000)
    first, second = Consumer(shard, "c1"), Consumer(shard, "c2")
    first.topics = second.topics = ["a"]
    first.beat()
    second.beat()
    assert shard.group.state == "Assigning"
    assert shard.group.target_epoch == 2 and shard.group.epoch == 3
    shard.reflex.wait(1)
    settle(first, second)
    assert shard.group.state == "Stable"
    assert sum(len(numbers) for numbers in second.owned.values()) == 2


def test_a_clock_that_is_set_back_holds_no_assignment_up() -> None:
    shard = Shard({"a": 4}, group_consumer_assignment_interval_ms=1000)
    first, second = Consumer(shard, "c1"), Consumer(shard, "c2")
    first.topics = second.topics = ["a"]
    first.beat()
    set_back(shard)
    settle(first, second)
    assert shard.group.state == "Stable"
    assert sum(len(numbers) for numbers in second.owned.values()) == 2


def test_more_members_than_partitions(shard: Shard) -> None:
    made = consumers(shard, "c1", "c2", "c3", topics=("b",))
    assert sorted(sum(map(len, consumer.owned.values())) for consumer in made) == [0, 1, 1]


def test_the_assignor_that_most_members_want_is_taken(shard: Shard) -> None:
    shard.join("m1", "a", "b", server_assignor="uniform")
    assert shard.group.describe().assignor_name == "uniform"
    shard.join("m2", "a", "b", server_assignor="range")
    shard.join("m3", "a", "b", server_assignor="range")
    assert shard.group.describe().assignor_name == "range"
    target = shard.group.target
    assert [target[member][shard.topic_id("a")] for member in ("m1", "m2", "m3")] == [{0, 1}, {2}, {3}]


def test_unsubscribing_gives_partitions_up_at_once(shard: Shard) -> None:
    shard.join("m1", "a", "b")
    answer = shard.send("m1", 2, subscribed_topic_names=["b"])
    assert shard.assignment(answer) == {"b": [0, 1]}
    assert answer.member_epoch == 2
    assert shard.send("m1", 2, {"b": {0, 1}}).member_epoch == 3


def test_what_a_member_was_giving_up_and_shall_have_again_is_not_waited_for(shard: Shard) -> None:
    shard.join("m1", "a")
    shard.join("m2", "a")
    shard.send("m1", 2)
    shard.send("m2", -1)
    answer = shard.send("m1", 2, {"a": {0, 1}})
    assert (answer.member_epoch, shard.assignment(answer)) == (4, ALL)


def test_a_target_that_is_older_than_a_subscription_gives_nothing_that_is_not_wanted_any_more() -> None:
    shard = Shard({"a": 2, "b": 2}, group_consumer_assignment_interval_ms=1000)
    shard.join("m1", "a", "b", server_assignor="range")
    shard.reflex.wait(2)
    assert shard.join("m2", "a", "b").member_epoch == 3
    shard.send("m2", 3, subscribed_topic_names=["a"])
    assert (shard.group.epoch, shard.group.target_epoch) == (4, 3)
    shard.send("m1", 2)
    shard.send("m1", 2, {"a": {0}, "b": {0}})
    assert shard.assignment(shard.send("m2", 3)) == {"a": [1]}


# ---- epochs


def test_epochs_of_a_member(shard: Shard) -> None:
    shard.join("m1", "a")
    assert shard.send("m1", 3).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert shard.send("m1", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert shard.send("m2", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.send("m1", 2).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("owned", "error"),
    [
        ({"a": {0, 1}}, ErrorCode.NONE),
        ({}, ErrorCode.NONE),
        ({"b": {0}}, ErrorCode.FENCED_MEMBER_EPOCH),
        (None, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_the_epoch_before_is_good_for_a_member_that_missed_the_answer(
    shard: Shard, owned: dict[str, set[int]] | None, error: ErrorCode
) -> None:
    shard.join("m1", "a")
    shard.join("m2", "a")
    shard.send("m1", 2)
    assert shard.send("m1", 2, {"a": {0, 1}}).member_epoch == 3
    shard.reflex.crash()
    assert shard.send("m1", 2, owned).error_code == error


def test_a_fenced_member_begins_anew_with_epoch_0_and_gets_its_partitions_again(shard: Shard) -> None:
    shard.join("m1", "a")
    again = shard.join("m1", "a")
    assert (again.error_code, again.member_epoch, shard.assignment(again)) == (0, 2, ALL)
    assert len(shard.group.members) == 1


def test_a_full_request_is_answered_with_the_assignment(shard: Shard) -> None:
    shard.join("m1", "a")
    answer = shard.send("m1", 2, {"a": set(range(4))}, rebalance_timeout_ms=1, subscribed_topic_names=["a"])
    assert shard.assignment(answer) == ALL


def test_a_member_of_an_old_client_gets_an_id(shard: Shard) -> None:
    answer = shard.join("", "a")
    assert len(answer.member_id) == 36
    assert shard.send(answer.member_id, answer.member_epoch).error_code == 0


# ---- leaving, and time


def test_the_others_take_over_when_a_member_leaves(shard: Shard) -> None:
    first, second = consumers(shard, "c1", "c2")
    second.leave()
    settle(first)
    assert first.owned == {shard.topic_id("a"): {0, 1, 2, 3}}
    assert shard.send("c2-1", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out_when_its_session_ends(shard: Shard) -> None:
    first, _ = consumers(shard, "c1", "c2")
    shard.reflex.wait(30)
    settle(first)
    shard.reflex.wait(14.9)
    assert len(shard.group.members) == 2
    shard.reflex.wait(0.2)
    assert list(shard.group.members) == ["c1-1"]
    settle(first)
    assert first.owned == {shard.topic_id("a"): {0, 1, 2, 3}}


def test_sessions_begin_anew_after_a_restart(shard: Shard) -> None:
    consumers(shard, "c1")
    shard.reflex.wait(44)
    shard.reflex.crash()
    shard.reflex.wait(44)
    assert shard.members == {"c1-1"}
    shard.reflex.wait(2)
    assert shard.members == set()
    assert shard.group.state == "Empty"


@pytest.mark.parametrize("crash", [False, True])
def test_a_member_that_does_not_give_up_in_time_is_out(shard: Shard, crash: bool) -> None:
    (first,) = consumers(shard, "c1")
    second = Consumer(shard, "c2")
    second.topics = ["a"]
    second.beat()
    first.beat()
    if crash:
        shard.reflex.crash()
    for _ in range(4):
        shard.reflex.wait(16)
        assert len(shard.group.members) == (2 if shard.reflex.now.monotonic < 1060 else 1)
        first.beat(slow=True)
        second.beat()
    assert shard.members == {"c2-1"}
    assert second.owned == {shard.topic_id("a"): {0, 1, 2, 3}}


def test_a_member_that_gave_up_in_time_stays(shard: Shard) -> None:
    (first,) = consumers(shard, "c1")
    second = Consumer(shard, "c2")
    second.topics = ["a"]
    second.beat()
    first.beat()
    for _ in range(10):
        shard.reflex.wait(16)
        settle(first, second, rounds=1)
    assert len(shard.members) == 2


def test_options_of_the_group_come_before_the_brokers(shard: Shard) -> None:
    configs = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    shard.set_topics({"a": 4}, configs)
    assert shard.join("m1", "a").heartbeat_interval_ms == 7000
    shard.reflex.wait(49)
    assert shard.members == {"m1"}
    shard.reflex.wait(2)
    assert shard.members == set()


def test_a_group_that_is_full_takes_nobody_else() -> None:
    shard = Shard({"a": 1}, group_consumer_max_size=1)
    shard.join("m1", "a")
    assert shard.join("m2", "a").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.join("m1", "a").error_code == ErrorCode.NONE


# ---- topics


def test_new_partitions_and_topics_are_assigned_and_gone_ones_taken_away(shard: Shard) -> None:
    (first,) = consumers(shard, "c1", topics=("a", "new"))
    shard.set_topics({"a": 5, "b": 2, "new": 1})
    settle(first)
    assert first.owned == {shard.topic_id("a"): {0, 1, 2, 3, 4}, shard.topic_id("new"): {0}}
    shard.set_topics({"new": 1})
    settle(first)
    assert first.owned == {shard.topic_id("new"): {0}}
    epoch = shard.group.epoch
    shard.set_topics({"new": 1, "other": 1})
    settle(first)
    assert shard.group.epoch == epoch, "nobody reads that one"


def test_a_topic_that_was_deleted_and_created_again_is_another_one(shard: Shard) -> None:
    (first,) = consumers(shard, "c1")
    old = shard.topic_id("a")
    shard.set_topics({})
    shard.set_topics({"a": 4})
    settle(first)
    assert old != shard.topic_id("a")
    assert first.owned == {shard.topic_id("a"): {0, 1, 2, 3}}


# ---- static members


def test_a_static_member_that_comes_back_gets_what_it_had_and_nobody_notices(shard: Shard) -> None:
    shard.join("m1", "a", instance_id="i")
    shard.join("m2", "a")
    shard.send("m1", 2, instance_id="i")
    shard.send("m1", 2, {"a": {0, 1}}, instance_id="i")
    shard.send("m2", 3)
    left = shard.send("m1", -2, instance_id="i")
    assert (left.error_code, left.member_epoch) == (0, -2)
    back = shard.join("m3", "a", instance_id="i")
    assert (back.error_code, back.member_epoch, shard.assignment(back)) == (0, 3, {"a": [0, 1]})
    assert shard.members == {"m2", "m3"}
    assert shard.group.epoch == 3
    assert shard.send("m1", 3, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert len(shard.reflex.machine.timers) == 3, "two sessions, and the sweep of offsets"
    shard.check_replay()
    shard.check()


def test_a_static_member_that_does_not_come_back_is_out_when_its_session_ends(shard: Shard) -> None:
    shard.join("m1", "a", instance_id="i")
    shard.send("m1", -2, instance_id="i")
    (epochs,) = shard.group.members["m1"].assigned.values()
    assert set(epochs.values()) == {0}, "whoever comes back has them from its first epoch on"
    shard.reflex.wait(46)
    assert shard.members == set()


def test_a_static_member_that_is_away_gives_nothing_up_in_time_and_stays(shard: Shard) -> None:
    shard.join("m1", "a", instance_id="i", rebalance_timeout_ms=10_000)
    shard.join("m2", "a")
    shard.send("m1", 2, instance_id="i")
    shard.send("m1", -2, instance_id="i")
    shard.reflex.wait(20)
    assert shard.members == {"m1", "m2"}
    shard.reflex.crash()
    shard.reflex.wait(20)
    assert shard.members == {"m1", "m2"}


def test_a_static_member_on_its_way_loses_what_it_was_giving_up(shard: Shard) -> None:
    shard.join("m1", "a", instance_id="i")
    shard.join("m2", "a")
    shard.send("m1", 2, instance_id="i")
    assert shard.group.members["m1"].revoking
    shard.send("m1", -2, instance_id="i")
    assert shard.assignment(shard.send("m2", 3)) == {"a": [2, 3]}
    shard.reflex.wait(44)
    shard.send("m2", 3)
    assert shard.assignment(shard.join("m3", "a", instance_id="i")) == {"a": [0, 1]}
    shard.check()


def test_an_instance_id_is_held_until_it_is_released(shard: Shard) -> None:
    shard.join("m1", "a", instance_id="i")
    assert shard.join("m2", "a", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert shard.send("m2", 2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.send("m1", 2, instance_id="j").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.send("m2", -1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.send("m1", -1, instance_id="i").error_code == ErrorCode.NONE
    assert shard.join("m2", "a", instance_id="i").error_code == ErrorCode.NONE


# ---- subscriptions by regular expression


def test_a_regular_expression_is_resolved_and_then_assigned(shard: Shard) -> None:
    answer = shard.join("m1", subscribed_topic_regex="[a-z]")
    assert (answer.error_code, shard.assignment(answer)) == (0, {})
    shard.resolve()
    answer = shard.send("m1", answer.member_epoch)
    assert shard.assignment(answer) == {"a": [0, 1, 2, 3], "b": [0, 1]}
    assert shard.group.subscribes("b") and not shard.group.subscribes("c")


def test_the_whole_name_has_to_match_and_topics_that_one_may_not_see_do_not(shard: Shard) -> None:
    shard.set_topics({"a": 1, "ab": 1, "ac": 1})
    shard.hidden = {"ac"}
    shard.join("m1", subscribed_topic_regex="a.")
    shard.resolve()
    assert shard.group.resolved["a."].topics == {"ab"}


@pytest.mark.parametrize("expression", ["(", "a**", "(?=a)", r"(a)\1", "a?" * 16_000, "x{1000}" * 100])
def test_an_expression_that_cannot_be_used(shard: Shard, expression: str) -> None:
    answer = shard.join("m1", subscribed_topic_regex=expression)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert repr(expression[:100])[:-1] in answer.error_message
    assert len(answer.error_message) < 500
    assert not shard.reflex.log


def test_new_topics_are_found_but_not_more_often_than_every_ten_seconds(shard: Shard) -> None:
    consumer = Consumer(shard, "c1")
    consumer.regex = "a.*"
    consumer.beat()
    shard.resolve()
    settle(consumer)
    assert set(consumer.owned) == {shard.topic_id("a")}
    shard.set_topics({"a": 4, "a2": 1})
    settle(consumer)
    assert not shard.reflex.effects
    shard.reflex.wait(11)
    settle(consumer)
    shard.resolve()
    settle(consumer)
    assert set(consumer.owned) == {shard.topic_id("a"), shard.topic_id("a2")}


def test_an_expression_is_resolved_once_at_a_time_and_again_after_the_interval(shard: Shard) -> None:
    consumer = Consumer(shard, "c1")
    consumer.regex = "a.*"
    settle(consumer)
    assert len(shard.reflex.effects) == 1
    shard.resolve()
    for _ in range(20):
        shard.reflex.wait(29)
        settle(consumer, rounds=1)
    assert not shard.reflex.effects
    shard.reflex.wait(29)
    settle(consumer, rounds=1)
    assert len(shard.reflex.effects) == 1


def test_a_clock_that_is_set_back_holds_no_expression_up(shard: Shard) -> None:
    first, second = Consumer(shard, "c1"), Consumer(shard, "c2")
    first.regex, second.regex = "a", "b"
    settle(first)
    shard.resolve()
    set_back(shard)
    settle(second, first)
    shard.resolve()
    assert set(shard.group.resolved) == {"a", "b"}


def test_an_expression_that_nobody_has_any_more_is_forgotten(shard: Shard) -> None:
    first, second = Consumer(shard, "c1"), Consumer(shard, "c2")
    first.regex = second.regex = "a"
    settle(first, second)
    shard.resolve()
    settle(first, second)
    first.leave()
    assert set(shard.group.resolved) == {"a"}
    second.regex, second.topics, second.changed = "", ["b"], True
    settle(second)
    assert not shard.group.resolved
    assert second.owned == {shard.topic_id("b"): {0, 1}}
    first.beat()
    shard.resolve()
    assert set(shard.group.resolved) == {"a"}
    first.leave()
    assert not shard.group.resolved


def test_what_was_resolved_for_a_group_that_is_gone_does_nothing(shard: Shard) -> None:
    shard.join("m1", subscribed_topic_regex="a")
    shard.send("m1", -1)
    written = len(shard.reflex.log)
    shard.resolve()
    assert len(shard.reflex.log) == written
    assert not shard.group.resolved


# ---- as others see a group


def test_who_may_commit(shard: Shard) -> None:
    shard.join("m1", "a")
    shard.join("m2", "a")
    shard.send("m1", 2)
    shard.send("m1", 2, {"a": {0, 1}})
    group, a = shard.group, shard.topic_id("a")
    assert group.may_commit("m1", None, 3, version=9) is ErrorCode.NONE
    assert group.may_commit("m1", None, 4, version=9) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.may_commit("m1", None, 3, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert group.may_commit("m1", None, 3, transactional=True) is ErrorCode.NONE
    assert group.may_commit("", None, -1, transactional=True) is ErrorCode.NONE
    assert group.may_commit("", None, -1, version=9) is ErrorCode.UNKNOWN_MEMBER_ID
    check = group.may_commit("m1", None, 2, version=9)
    assert callable(check)
    assert check("a", a, 0) is ErrorCode.NONE, "its own since epoch 2"
    assert check("a", a, 3) is ErrorCode.STALE_MEMBER_EPOCH, "not its own any more"
    check = group.may_commit("m1", None, 1, version=9)
    assert callable(check)
    assert check("a", a, 0) is ErrorCode.STALE_MEMBER_EPOCH
    shard.send("m1", -1)
    shard.send("m2", -1)
    assert group.may_commit("", None, -1) is ErrorCode.NONE, "an empty group's offsets can be set by anybody"


def test_who_may_fetch_offsets_and_what_may_be_deleted(shard: Shard) -> None:
    shard.join("m1", "a")
    group = shard.group
    assert group.may_fetch_offsets(None, -1) is ErrorCode.NONE
    assert group.may_fetch_offsets("m1", 2) is ErrorCode.NONE
    assert group.may_fetch_offsets("m1", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.may_fetch_offsets("m2", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.may_delete() is ErrorCode.NON_EMPTY_GROUP
    assert group.may_delete_offsets() is ErrorCode.NONE
    shard.send("m1", -1)
    assert group.may_delete() is ErrorCode.NONE


def test_the_tombstones_of_a_group_leave_nothing(shard: Shard) -> None:
    consumer = Consumer(shard, "c1")
    consumer.regex = "a"
    settle(consumer)
    shard.resolve()
    consumer.leave()
    shard.reflex.do(lambda machine, now: Outcome(machine.groups[GROUP].tombstones()))
    assert GROUP not in shard.reflex.machine.groups
    newest = {entry[0]: entry[1] for entry in shard.reflex.log}
    assert len(newest) == 7, "one of each kind"
    assert not any(newest.values()), "compaction leaves nothing of it"


def test_a_description_says_what_members_own_and_shall_own(shard: Shard) -> None:
    shard.join("m1", "a", rack_id="r")
    shard.join("m2", "a", instance_id="i")
    shard.send("m1", 2)
    group = shard.group.describe()
    assert (group.group_id, group.group_state, group.group_epoch, group.assignment_epoch) == (
        GROUP,
        "Reconciling",
        3,
        3,
    )
    first, second = group.members
    assert (first.member_id, first.member_epoch, first.rack_id, first.member_type) == ("m1", 2, "r", 1)
    assert (second.instance_id, second.subscribed_topic_names, second.client_id) == ("i", ["a"], "client")
    (owned,) = first.assignment.topic_partitions
    assert (owned.topic_name, owned.topic_id, owned.partitions) == ("a", shard.topic_id("a"), [0, 1, 2, 3])
    assert [t.partitions for t in first.target_assignment.topic_partitions] == [[0, 1]]
    assert [t.partitions for t in second.target_assignment.topic_partitions] == [[2, 3]]
    assert second.assignment.topic_partitions == []


def test_groups_that_are_not_there(shard: Shard) -> None:
    assert shard.send("m1", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.send("m1", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    described = shard.reflex.machine.consumer.describe("nobody")
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_record_of_kafka_before_4_1_goes_when_the_group_next_changes(shard: Shard) -> None:
    shard.join("m1", "a")
    key, value = ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue(topics=[])
    shard.reflex.machine.replay(type(shard.group.tombstones()[0])(key, value))
    assert shard.group.has_partition_metadata
    shard.join("m2", "a")
    assert not shard.group.has_partition_metadata


# ---- from one protocol to the other


def join_classic(shard: Shard) -> Any:
    joining = Joining(GROUP, "", "i", "c", "/h", 10_000, 60_000, "consumer", {"range": b""}, 9)
    note = shard.reflex.ask(lambda machine, reply, now: machine.classic.join(joining, reply, now))
    shard.reflex.wait(0)
    return note.answer


@pytest.fixture
def both() -> Shard:
    return Shard({"a": 4}, group_initial_rebalance_delay_ms=0)


def test_an_empty_classic_group_becomes_a_consumer_group(both: Shard) -> None:
    joined = join_classic(both)
    answer = both.join("m1", "a")
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "classic" in answer.error_message
    assert both.reflex.machine.groups[GROUP].type == "classic"
    leaving = [MemberIdentity(member_id=joined.member_id, group_instance_id="i")]
    both.reflex.ask(lambda machine, reply, now: machine.classic.leave(GROUP, leaving, reply, now))
    assert both.send("m1", 2).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert both.assignment(both.join("m1", "a")) == ALL
    assert both.group.type == "consumer"
    both.reflex.wait(100)
    both.check_replay()


def test_an_empty_consumer_group_becomes_a_classic_group(both: Shard) -> None:
    both.join("m1", "a")
    assert join_classic(both).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    both.send("m1", -1)
    assert join_classic(both).error_code == ErrorCode.NONE
    assert both.reflex.machine.groups[GROUP].type == "classic"
    assert both.send("m1", 2).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    both.check_replay()


def test_a_group_known_for_its_offsets_alone_becomes_a_consumer_group(both: Shard) -> None:
    key = OffsetCommitKey(group=GROUP, topic="a", partition=0)
    offset = Record(key, OffsetCommitValue(offset=5, metadata="", commit_timestamp=1))
    both.reflex.do(lambda machine, now: Outcome([offset]))
    assert both.reflex.machine.groups[GROUP].type == "classic"
    assert both.join("m1", "a").error_code == ErrorCode.NONE
    assert both.group.type == "consumer"
    both.check_replay()
