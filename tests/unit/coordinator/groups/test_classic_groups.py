"""Classic groups as their members see them, and what of them a restart brings back."""

from __future__ import annotations

import pytest

from klamm.core.errors import ErrorCode
from klamm.wire.messages.coordinator import GroupMetadataValue
from support.groups import PROTOCOLS, GroupDriver

SUBSCRIPTION = b"\x00\x01" + b"\x00\x00\x00\x02" + b"\x00\x01a\x00\x01b" + b"\xff\xff\xff\xff" + b"more"


@pytest.fixture
def driver() -> GroupDriver:
    return GroupDriver()


# ---- the first members


def test_a_new_member_is_given_an_id_and_asked_to_come_back(driver: GroupDriver) -> None:
    first = driver.join()
    assert first.error == ErrorCode.MEMBER_ID_REQUIRED
    assert first.answer.member_id.startswith("c-")
    again = driver.join(first.answer.member_id)
    assert not again.done
    driver.tick()
    assert not again.error
    assert again.answer.generation_id == 1
    assert again.answer.leader == again.answer.member_id == first.answer.member_id
    assert again.answer.protocol_type == "consumer"
    assert again.answer.protocol_name == "range"
    assert [m.metadata for m in again.answer.members] == [PROTOCOLS["range"]]


def test_clients_of_old_versions_get_in_at_once(driver: GroupDriver) -> None:
    reply = driver.join(version=3)
    driver.tick()
    assert not reply.error
    assert reply.answer.member_id.startswith("c-")


def test_an_id_that_was_given_out_is_forgotten_after_the_session(driver: GroupDriver) -> None:
    first = driver.join(session_ms=5000)
    driver.advance(5.0)
    assert driver.join(first.answer.member_id).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert not driver.group().pending


def test_the_first_rebalance_waits_for_more_members() -> None:
    driver = GroupDriver(group_initial_rebalance_delay_ms=3000)
    first = driver.enter()
    driver.advance(2.9)
    second = driver.enter()
    driver.advance(2.9)
    assert not first.done and not second.done, "the second has put it off"
    driver.advance(0.2)
    assert first.answer.generation_id == second.answer.generation_id == 1
    assert len(first.answer.members) == 2 and not second.answer.members


def test_the_first_rebalance_is_not_put_off_beyond_the_rebalance_timeout() -> None:
    driver = GroupDriver(group_initial_rebalance_delay_ms=3000)
    replies = [driver.enter(rebalance_ms=7000)]
    for _ in range(6):
        driver.advance(1.0)
        replies.append(driver.enter(rebalance_ms=7000))
    assert not replies[0].done
    driver.advance(1.0)
    assert all(reply.done and reply.answer.generation_id == 1 for reply in replies)


def test_the_first_rebalance_waits_a_moment_for_those_who_are_to_come_back_with_their_id(driver: GroupDriver) -> None:
    asked = [driver.join() for _ in range(3)]
    first = driver.join(asked[0].answer.member_id)
    driver.tick()
    second = driver.join(asked[1].answer.member_id)
    driver.advance(0.4)
    assert not first.done and not second.done
    third = driver.join(asked[2].answer.member_id)
    assert {reply.answer.generation_id for reply in (first, second, third)} == {1}, "at once, when all are back"


def test_who_does_not_come_back_holds_the_first_rebalance_up_for_half_a_second(driver: GroupDriver) -> None:
    driver.join()
    first = driver.enter()
    driver.advance(0.3)
    driver.join()
    assert not first.done
    driver.advance(0.3)
    assert first.answer.generation_id == 1


def test_a_member_that_is_not_known_is_told_so(driver: GroupDriver) -> None:
    assert driver.join("nobody").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert "g" not in driver.machine.groups
    driver.stable(1)
    assert driver.join("nobody").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.sync("nobody", 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave(("nobody", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert driver.beat("nobody", 1, group_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave(("nobody", None), group_id="other") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_members_without_a_protocol_or_with_another_type_are_refused(driver: GroupDriver) -> None:
    assert driver.join(protocols={}).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocol_type="").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "g" not in driver.machine.groups and not driver.log, "nobody has joined"
    driver.stable(1)
    assert driver.join(protocol_type="connect").error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocols={"sticky": b""}).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_groups_of_any_protocol_type_are_coordinated(driver: GroupDriver) -> None:
    driver.stable(2, protocol_type="connect", protocols={"sessioned": b"url"})
    described = driver.describe()
    assert (described.protocol_type, described.protocol_data) == ("connect", "sessioned")
    assert not driver.group().subscribes("a")


# ---- rebalances


def test_all_members_of_a_generation_get_what_its_leader_assigned_in_whatever_order_they_ask(
    driver: GroupDriver,
) -> None:
    leader, *others = driver.stable(3)
    rejoined = [driver.join(m) for m in (leader, *others)]
    generation = rejoined[0].answer.generation_id
    early = driver.sync(others[0], generation)
    assert not early.done
    assert driver.sync(leader, generation, {m: b"for " + m.encode() for m in (leader, *others)}).answer.assignment
    late = driver.sync(others[1], generation)
    for member_id, reply in zip(others, (early, late), strict=True):
        assert reply.answer.assignment == b"for " + member_id.encode()
        assert (reply.answer.protocol_type, reply.answer.protocol_name) == ("consumer", "range")


def test_whom_the_leader_forgot_is_assigned_nothing(driver: GroupDriver) -> None:
    leader, other = driver.stable(2)
    driver.join(leader)
    generation = driver.join(other).answer.generation_id
    driver.sync(leader, generation, {leader: b"all"})
    assert driver.sync(other, generation).answer.assignment == b""


def test_the_protocol_is_one_that_all_have_and_most_prefer(driver: GroupDriver) -> None:
    offers = [["a", "b", "c"], ["b", "c", "a"], ["c", "b"], ["b", "c"]]
    replies = [driver.enter(protocols={name: name.encode() for name in offer}) for offer in offers]
    driver.tick()
    assert {reply.answer.protocol_name for reply in replies} == {"b"}
    leader = next(reply for reply in replies if reply.answer.members)
    assert {m.metadata for m in leader.answer.members} == {b"b"}


def test_a_new_member_makes_the_others_join_again(driver: GroupDriver) -> None:
    (old,) = driver.stable(1)
    new = driver.enter()
    assert driver.beat(old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.sync(old, 1).error == ErrorCode.REBALANCE_IN_PROGRESS
    assert not new.done
    again = driver.join(old)
    assert again.answer.generation_id == new.answer.generation_id == 2
    assert driver.beat(old, 1) == ErrorCode.ILLEGAL_GENERATION
    assert driver.beat(old, 2) == ErrorCode.NONE, "it may say that it is there before it syncs"


def test_who_does_not_join_again_is_out_when_the_rebalance_time_is_up(driver: GroupDriver) -> None:
    slow, quick = driver.stable(2, rebalance_ms=30_000, session_ms=60_000)
    again = driver.join(quick, protocols={"range": b"changed"}, rebalance_ms=30_000, session_ms=60_000)
    driver.advance(29.9)
    assert not again.done
    driver.advance(0.2)
    assert again.answer.leader == quick
    assert driver.beat(slow, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out_after_its_session_and_the_others_share(driver: GroupDriver) -> None:
    silent, alive = driver.stable(2, session_ms=10_000)
    generation = driver.group().generation
    for _ in range(9):
        driver.advance(1.0)
        assert driver.beat(alive, generation) == ErrorCode.NONE
    driver.advance(1.0)
    assert driver.beat(alive, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(alive).answer.leader == alive
    assert driver.beat(silent, generation + 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_a_rebalance_is_not_silent(driver: GroupDriver) -> None:
    waiting, busy = driver.stable(2, session_ms=5000, rebalance_ms=60_000)
    reply = driver.join(waiting, session_ms=5000)
    generation = driver.group().generation
    for _ in range(20):
        driver.advance(1.0)
        driver.beat(busy, generation)
    assert not reply.done
    driver.join(busy, session_ms=5000)
    assert not reply.error


def test_a_new_member_does_not_wait_for_longer_than_five_minutes(driver: GroupDriver) -> None:
    driver.stable(1, session_ms=1_000_000, rebalance_ms=1_000_000)
    new = driver.enter(session_ms=6000)
    driver.advance(299)
    assert not new.done
    driver.advance(2)
    assert new.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_sync_in_time_is_out(driver: GroupDriver) -> None:
    leader, other = driver.stable(2, session_ms=600_000, rebalance_ms=20_000)
    driver.join(leader, session_ms=600_000, rebalance_ms=20_000)
    generation = driver.join(other, session_ms=600_000, rebalance_ms=20_000).answer.generation_id
    waiting = driver.sync(other, generation)
    driver.advance(20.1)
    assert waiting.error == ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.join(other)
    assert again.answer.leader == other
    assert [m.member_id for m in again.answer.members] == [other]


def test_who_joins_again_without_a_change_is_told_of_the_generation_it_is_in(driver: GroupDriver) -> None:
    leader, other = driver.stable(2)
    again = driver.join(other)
    assert (again.answer.generation_id, again.answer.leader, again.answer.members) == (2, leader, [])
    assert driver.group().state == "Stable"
    driver.join(leader)  # this one knows why
    assert driver.group().state == "PreparingRebalance"
    driver.join(other)
    assert driver.group().state == "CompletingRebalance"
    assert len(driver.join(leader).answer.members) == 2
    assert driver.join(other).answer.generation_id == 3
    driver.join(other, protocols={"range": b"changed"})
    assert driver.group().state == "PreparingRebalance"


def test_a_request_that_is_sent_twice_leaves_nobody_waiting(driver: GroupDriver) -> None:
    leader, other = driver.stable(2)
    first, second = driver.join(leader), driver.join(leader)
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS and not second.done
    generation = driver.join(other).answer.generation_id
    assert second.answer.generation_id == generation
    first, second = driver.sync(other, generation), driver.sync(other, generation)
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS and not second.done
    driver.sync(leader, generation, {other: b"x"})
    assert second.answer.assignment == b"x"


def test_a_sync_must_be_of_this_generation_and_protocol(driver: GroupDriver) -> None:
    (member,) = driver.stable(1)
    assert driver.sync(member, 0).error == ErrorCode.ILLEGAL_GENERATION
    assert driver.sync(member, 1, protocol=("connect", "range")).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(member, 1, protocol=("consumer", "roundrobin")).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(member, 1, protocol=("consumer", "range")).error == ErrorCode.NONE


def test_a_generation_that_cannot_be_written_is_not_assigned_and_can_be_tried_again(driver: GroupDriver) -> None:
    leader, other = driver.stable(2)
    driver.join(leader)
    generation = driver.join(other).answer.generation_id
    waiting = driver.sync(other, generation)
    driver.full = True
    assert driver.sync(leader, generation, {leader: b"much", other: b"more"}).error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert waiting.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.group().state == "CompletingRebalance"
    driver.full = False
    waiting = driver.sync(other, driver.join(other).answer.generation_id)
    driver.sync(leader, generation, {leader: b"less", other: b"little"})
    assert waiting.answer.assignment == b"little"


# ---- leaving


def test_the_last_one_to_leave_makes_the_group_empty(driver: GroupDriver) -> None:
    one, two = driver.stable(2)
    assert driver.leave((one, None)) == [ErrorCode.NONE]
    assert driver.group().state == "PreparingRebalance"
    assert driver.leave((two, None)) == [ErrorCode.NONE]
    group = driver.group()
    assert (group.state, group.generation, group.protocol) == ("Empty", 3, None)
    value = driver.records()[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.protocol, value.leader, value.members) == ("consumer", None, None, [])
    assert value.current_state_timestamp == driver.moment.time_ms


def test_many_leave_in_one_call_each_with_its_own_error(driver: GroupDriver) -> None:
    one, two, three = driver.stable(3)
    pending = driver.join().answer.member_id
    errors = driver.leave((one, None), ("nobody", None), (two, None), (pending, None), ("", "no-such-instance"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors == [ErrorCode.NONE, unknown, ErrorCode.NONE, ErrorCode.NONE, unknown]
    assert list(driver.group().members) == [three]


def test_one_who_leaves_while_it_waits_is_answered(driver: GroupDriver) -> None:
    leader, other = driver.stable(2)
    joining = driver.join(leader)
    driver.leave((leader, None))
    assert joining.error == ErrorCode.UNKNOWN_MEMBER_ID
    again = driver.join(other)
    assert again.answer.leader == other
    new = driver.enter()
    generation = driver.join(other).answer.generation_id
    syncing = driver.sync(new.answer.member_id, generation)
    driver.leave((new.answer.member_id, None))
    assert syncing.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_one_that_does_not_come_back_with_its_id_is_waited_for_in_a_rebalance(driver: GroupDriver) -> None:
    (old,) = driver.stable(1)
    pending = driver.join(session_ms=6000)
    assert pending.error == ErrorCode.MEMBER_ID_REQUIRED
    again = driver.join(old)
    assert not again.done
    driver.advance(6.0)
    assert again.answer.generation_id == 2


# ---- sizes


def test_a_full_group_takes_nobody_else() -> None:
    driver = GroupDriver(group_max_size=2)
    driver.stable(2)
    assert driver.join().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.group().state == "Stable"


def test_a_group_that_was_loaded_with_too_many_members_keeps_the_first_to_come_back() -> None:
    driver = GroupDriver()
    members = driver.stable(3)
    driver.options = driver.options.overlay({"group.max.size": 2})
    driver.crash()
    assert driver.group().state == "PreparingRebalance"
    replies = [driver.join(m) for m in members]
    assert replies[2].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [reply.answer.generation_id for reply in replies[:2]] == [4, 4]


# ---- static members


def test_a_static_member_needs_no_id_first(driver: GroupDriver) -> None:
    reply = driver.join(instance_id="i1")
    driver.tick()
    assert not reply.error
    assert reply.answer.member_id.startswith("i1-")
    assert [m.group_instance_id for m in reply.answer.members] == ["i1"]


def stable_static(driver: GroupDriver) -> tuple[str, str]:
    """Two static members, i1 the leader."""
    one = driver.join(instance_id="i1")
    two = driver.join(instance_id="i2")
    driver.tick()
    leader, other = one.answer.member_id, two.answer.member_id
    assert one.answer.leader == leader
    driver.sync(other, 1, instance_id="i2")
    driver.sync(leader, 1, {leader: b"1", other: b"2"}, instance_id="i1")
    return leader, other


def test_a_static_member_that_restarts_keeps_its_place_without_a_rebalance(driver: GroupDriver) -> None:
    leader, other = stable_static(driver)
    back = driver.join(instance_id="i2")
    assert not back.error and back.answer.generation_id == 1
    new_id = back.answer.member_id
    assert new_id != other and back.answer.leader == leader
    assert driver.sync(new_id, 1, instance_id="i2").answer.assignment == b"2"
    assert driver.beat(leader, 1, "i1") == ErrorCode.NONE
    assert driver.beat(other, 1, "i2") == ErrorCode.FENCED_INSTANCE_ID
    driver.crash()
    assert driver.beat(new_id, 1, "i2") == ErrorCode.NONE, "the new id was written"


def test_a_static_leader_that_restarts_is_told_to_keep_the_assignment(driver: GroupDriver) -> None:
    leader, _ = stable_static(driver)
    back = driver.join(instance_id="i1", version=9)
    assert back.answer.leader == back.answer.member_id != leader
    assert back.answer.skip_assignment and len(back.answer.members) == 2
    older = driver.join(instance_id="i1", version=8)
    assert older.answer.leader == back.answer.member_id, "so that it does not assign anew"
    assert not older.answer.skip_assignment and not older.answer.members
    assert driver.sync(older.answer.member_id, 1, instance_id="i1").answer.assignment == b"1"


def test_a_static_member_that_changes_the_protocol_starts_a_rebalance(driver: GroupDriver) -> None:
    leader, _ = stable_static(driver)
    only_robin = {"roundrobin": b""}
    back = driver.join(instance_id="i2", protocols=only_robin)
    assert not back.done
    again = driver.join(leader, instance_id="i1")
    assert again.answer.generation_id == back.answer.generation_id == 2
    assert again.answer.protocol_name == "roundrobin"


def test_of_two_with_one_instance_id_the_later_one_stays(driver: GroupDriver) -> None:
    leader, other = stable_static(driver)
    driver.join(leader, instance_id="i1")
    first = driver.join(other, instance_id="i2", protocols={"range": b"x"})
    assert first.answer.generation_id == 2
    waiting = driver.sync(other, 2, instance_id="i2")
    second = driver.join(instance_id="i2")
    assert waiting.error == ErrorCode.FENCED_INSTANCE_ID
    assert driver.group().state == "PreparingRebalance", "the leader may have been told of the old one"
    assert driver.join(other, instance_id="i2").error == ErrorCode.FENCED_INSTANCE_ID
    third = driver.join(instance_id="i2")
    assert second.error == ErrorCode.FENCED_INSTANCE_ID
    driver.join(leader, instance_id="i1")
    assert third.answer.generation_id == 3
    assert driver.sync(other, 3, instance_id="i2").error == ErrorCode.FENCED_INSTANCE_ID
    assert driver.join(other, instance_id="i9").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_miss_a_rebalance_and_keep_its_place(driver: GroupDriver) -> None:
    times = {"session_ms": 100_000, "rebalance_ms": 10_000}
    driver.join(instance_id="i1", **times)
    driver.tick()
    second = driver.join(instance_id="i2", **times)
    driver.advance(10.1)
    assert second.answer.generation_id == 2
    assert second.answer.leader == second.answer.member_id
    assert {m.group_instance_id for m in second.answer.members} == {"i1", "i2"}


def test_static_members_that_all_miss_it_end_with_their_sessions(driver: GroupDriver) -> None:
    leader, other = stable_static(driver)
    driver.leave((leader, "i1"))
    assert driver.group().state == "PreparingRebalance"
    driver.advance(9.9)
    assert other in driver.group().members
    driver.advance(60)
    assert driver.group().state == "Empty"


def test_a_tool_removes_a_static_member_by_its_instance_id(driver: GroupDriver) -> None:
    _, other = stable_static(driver)
    assert driver.leave((other, "i1")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert driver.leave(("", "i1"), ("", "i3")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(driver.group().by_instance) == ["i2"]


# ---- what others ask of a group


def test_who_may_commit_offsets(driver: GroupDriver) -> None:
    one, two = driver.stable(2)
    group = driver.group()
    generation = group.generation
    assert group.may_commit(one, None, generation) == ErrorCode.NONE
    assert group.may_commit(one, None, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert group.may_commit("nobody", None, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.may_commit("", None, -1) == ErrorCode.UNKNOWN_MEMBER_ID, "it has members"
    assert group.may_commit("", None, -1, transactional=True) == ErrorCode.NONE
    driver.join(one)
    assert group.may_commit(two, None, generation) == ErrorCode.NONE, "before it joins again"
    driver.join(two)
    assert group.may_commit(two, None, generation + 1) == ErrorCode.REBALANCE_IN_PROGRESS
    driver.leave((one, None), (two, None))
    assert group.may_commit("", None, -1) == ErrorCode.NONE
    assert group.may_commit(one, None, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_a_group_of_consumers_subscribes_to(driver: GroupDriver) -> None:
    member, *_ = driver.stable(1, protocols={"range": SUBSCRIPTION})
    group = driver.group()
    assert [group.subscribes(topic) for topic in "abc"] == [True, True, False]
    assert group.may_delete() == ErrorCode.NON_EMPTY_GROUP
    assert group.may_delete_offsets() == ErrorCode.NONE
    assert group.retention_start_ms(7) == 7
    driver.leave((member, None))
    assert not group.subscribes("a")
    assert group.may_delete() == ErrorCode.NONE
    assert group.retention_start_ms(7) == driver.moment.time_ms


def test_consumers_whose_metadata_is_not_understood_may_subscribe_to_anything(driver: GroupDriver) -> None:
    driver.stable(1)
    assert driver.group().subscribes("a")
    assert driver.group().retention_start_ms(7) is None


def test_a_group_is_described_with_metadata_only_while_it_is_stable(driver: GroupDriver) -> None:
    one, _ = driver.stable(2)
    described = driver.describe()
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [(m.member_metadata, m.member_assignment) for m in described.members if m.member_id == one] == [
        (PROTOCOLS["range"], one.encode())
    ]
    driver.join(one)
    described = driver.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {m.member_metadata for m in described.members} == {b""}


# ---- records and restarts


def test_the_record_of_a_generation_is_what_kafka_writes(driver: GroupDriver) -> None:
    driver.now = 200.0
    (member,) = driver.stable(1, session_ms=7000, rebalance_ms=8000)
    made, stable = driver.records()
    assert isinstance(made.value, GroupMetadataValue) and isinstance(stable.value, GroupMetadataValue)
    assert (made.value.protocol_type, made.value.generation, made.value.protocol) == ("", 0, None)
    assert (stable.value.generation, stable.value.leader, stable.value.protocol) == (1, member, "range")
    assert stable.value.current_state_timestamp == 1_700_000_200_000
    (saved,) = stable.value.members
    assert (saved.session_timeout, saved.rebalance_timeout, saved.client_host) == (7000, 8000, "/127.0.0.1")
    assert (saved.subscription, saved.assignment) == (PROTOCOLS["range"], member.encode())


def test_a_restart_brings_a_stable_group_back(driver: GroupDriver) -> None:
    leader, other = driver.stable(2)
    before = driver.describe()
    driver.crash()
    assert driver.describe() == before
    assert driver.beat(leader, 2) == driver.beat(other, 2) == ErrorCode.NONE
    assert driver.sync(other, 2).answer.assignment == other.encode()
    driver.advance(9.9)
    driver.beat(other, 2)
    driver.advance(0.2)
    assert driver.beat(other, 2) == ErrorCode.REBALANCE_IN_PROGRESS, "sessions run from the restart on"


def test_a_rebalance_that_a_restart_cuts_off_is_begun_again_by_its_members(driver: GroupDriver) -> None:
    old, older = driver.stable(2)
    driver.enter()
    driver.join(old)
    driver.crash()
    assert driver.group().state == "Stable" and driver.group().generation == 2
    assert driver.beat(older, 2) == ErrorCode.NONE
    again = driver.join(old)
    driver.join(older)
    assert again.answer.generation_id == 3


def test_an_empty_group_is_empty_after_a_restart(driver: GroupDriver) -> None:
    (member,) = driver.stable(1)
    driver.leave((member, None))
    driver.crash()
    group = driver.group()
    assert (group.state, group.generation, group.protocol_type) == ("Empty", 2, "consumer")
    reply = driver.enter()
    driver.tick()
    assert reply.answer.generation_id == 3


def test_a_deleted_group_is_gone_with_its_time_limits(driver: GroupDriver) -> None:
    driver.join()
    tombstones = driver.group().tombstones()
    for record in tombstones:
        driver.machine.replay(record)
    assert not driver.machine.groups
    assert not [key for key in driver.machine.timers if key.part == "classic"]


def test_whoever_waits_is_told_when_the_shard_is_given_up(driver: GroupDriver) -> None:
    leader, other = driver.stable(2)
    driver.join(leader)
    generation = driver.join(other).answer.generation_id
    syncing = driver.sync(other, generation)
    joining = driver.enter("h")
    answers = {answer.reply: answer.value for answer in driver.machine.resigned(ErrorCode.NOT_COORDINATOR)}
    assert set(answers) == {syncing, joining}
    assert {value.error_code for value in answers.values()} == {ErrorCode.NOT_COORDINATOR}


def test_a_static_member_that_waits_does_not_cut_the_first_delay_short_when_its_session_would_end() -> None:
    driver = GroupDriver(group_initial_rebalance_delay_ms=5000)
    replaced = driver.join(instance_id="i", session_ms=1000)
    waits = driver.join(instance_id="i", session_ms=1000)
    assert replaced.error == ErrorCode.FENCED_INSTANCE_ID
    driver.advance(4.9)
    assert not waits.done
    driver.advance(0.2)
    assert waits.error == ErrorCode.NONE
