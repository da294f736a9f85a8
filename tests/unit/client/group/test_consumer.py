"""The member of the consumer protocol without I/O: what it says when, and many of them with a real coordinator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.client.errors import BrokerSaid
from klamm.client.group.consumer import ConsumerMember, Ids, Terms, Wish, resolve
from klamm.client.group.verdict import Verdict
from klamm.coordinator.groups.consumer.heartbeat import Client
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from support.consumer_groups import Shard

TERMS = Terms("g", None, 60_000, "rack", None)
WISH = Wish(frozenset({"t"}))
ID = bytes(range(16))


def response(epoch: int = 1, assigned: list[int] | None = None, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if assigned is not None:
        assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=ID, partitions=assigned)])
    return ConsumerGroupHeartbeatResponse(
        member_id="m", member_epoch=epoch, heartbeat_interval_ms=50, assignment=assignment, **fields
    )


def joined(*assigned: int) -> ConsumerMember:
    member = ConsumerMember(TERMS, "m", 5000)
    assert member.answered(member.heartbeat(WISH, 1), response(1, list(assigned))) is Verdict.FINE
    return member


def test_joining_says_everything_and_later_heartbeats_only_what_is_new() -> None:
    member = ConsumerMember(TERMS, "m", 5000)
    first = member.heartbeat(WISH, 1)
    assert (first.member_id, first.member_epoch, first.topic_partitions) == ("m", 0, [])
    assert (first.rebalance_timeout_ms, first.rack_id, first.subscribed_topic_names) == (60_000, "rack", ["t"])
    assert first.subscribed_topic_regex is None
    member.answered(first, response(1, [0]))
    assert member.interval_ms == 50
    assert member.target == {(ID, 0)}
    second = member.heartbeat(WISH, 1)
    assert (second.member_epoch, second.subscribed_topic_names, second.topic_partitions) == (1, None, None)
    assert not member.has_news
    member.reached(frozenset({(ID, 0)}))
    assert member.has_news
    third = member.heartbeat(WISH, 1)
    assert [(one.topic_id, one.partitions) for one in third.topic_partitions or ()] == [(ID, [0])]
    assert member.heartbeat(Wish(frozenset({"t", "u"})), 1).subscribed_topic_names == ["t", "u"]


def test_a_target_that_changes_nothing_is_acknowledged_all_the_same() -> None:
    member = joined(0)
    member.reached(frozenset({(ID, 0)}))
    member.heartbeat(WISH, 1)
    member.reached(frozenset({(ID, 0)}))
    assert member.heartbeat(WISH, 1).topic_partitions is not None


def test_after_silence_everything_is_said_again() -> None:
    member = joined()
    member.heartbeat(WISH, 1)
    member.unanswered()
    again = member.heartbeat(WISH, 1)
    assert again.member_epoch == 1
    assert again.subscribed_topic_names == ["t"]
    assert again.rebalance_timeout_ms == 60_000
    assert again.topic_partitions == []


def test_an_expression_is_said_changed_and_taken_back() -> None:
    member = ConsumerMember(TERMS, "m", 5000)
    first = member.heartbeat(Wish(frozenset(), "a.*"), 1)
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == ([], "a.*")
    member.answered(first, response())
    assert member.heartbeat(Wish(frozenset(), "a.*"), 1).subscribed_topic_regex is None
    assert member.heartbeat(Wish(frozenset(), "b.*"), 1).subscribed_topic_regex == "b.*"
    back = member.heartbeat(WISH, 1)
    assert (back.subscribed_topic_names, back.subscribed_topic_regex) == (["t"], "")


def test_the_first_version_has_brokers_name_members() -> None:
    member = ConsumerMember(TERMS, "mine", 5000)
    first = member.heartbeat(WISH, 0)
    assert first.member_id == ""
    member.answered(first, response())
    assert member.heartbeat(WISH, 0).member_id == "m"


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_is_out_has_nothing_and_joins_under_its_name(code: ErrorCode) -> None:
    member = joined(0)
    member.reached(frozenset({(ID, 0)}))
    assert member.answered(member.heartbeat(WISH, 1), response(error_code=code)) is Verdict.OUT
    assert (member.epoch, member.owned, member.target, member.may_leave) == (0, frozenset(), None, False)
    assert member.heartbeat(WISH, 1).member_id == "m"


def test_other_errors_pass_or_are_raised() -> None:
    member = joined()
    asked = member.heartbeat(WISH, 1)
    assert member.answered(asked, response(error_code=ErrorCode.NOT_COORDINATOR)) is Verdict.ELSEWHERE
    assert member.answered(asked, response(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)) is Verdict.AGAIN
    with pytest.raises(BrokerSaid, match="bad expression"):
        member.answered(
            asked, response(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION, error_message="bad expression")
        )


def test_an_answer_that_comes_after_leaving_means_nothing() -> None:
    member = joined(0)
    asked = member.heartbeat(WISH, 1)
    member.reset()
    assert member.answered(asked, response(2, [0, 1])) is Verdict.FINE
    assert (member.epoch, member.target) == (0, None)


def test_leaving_for_good_and_leaving_to_come_back() -> None:
    member = joined()
    assert member.leave().member_epoch == -1
    member.terms = TERMS._replace(instance_id="i")
    assert member.leave().member_epoch == -2


def test_what_has_no_name_yet_is_left_for_later() -> None:
    other = bytes(16)
    assert resolve(frozenset({(ID, 0), (other, 1)}), {ID: "t"}) == ({(ID, 0)}, {other})


class Actor:
    """A member with an application that may be slow to give up what it has."""

    def __init__(self, shard: Shard, index: int) -> None:
        self.shard = shard
        self.member = ConsumerMember(TERMS, f"m{index}", 5000)
        self.held: Ids = frozenset()
        self.wish = WISH
        self.runs = False

    def beat(self, *, lost: bool = False) -> None:
        self.runs = True
        request = self.member.heartbeat(self.wish, 1)
        client = Client("c", "/127.0.0.1", lambda topic: True)
        reflex = self.shard.reflex
        answer = reflex.ask(lambda machine, reply, now: machine.consumer.heartbeat(request, client, reply, now)).answer
        if lost:
            self.member.unanswered()
        elif self.member.answered(request, answer) is Verdict.OUT:
            self.held = frozenset()

    def obey(self) -> None:
        if self.runs and self.member.is_on_its_way and self.member.target is not None:
            self.held = self.member.target
            self.member.reached(self.held)

    def leave(self, *, says_goodbye: bool) -> None:
        if self.runs and says_goodbye and self.member.is_in:
            self.shard.send(self.member.member_id, -1)
        self.runs = False
        self.held = frozenset()
        self.member.reset()

    def check(self) -> None:
        """It holds nothing that the coordinator does not know to be its own, unless it is out."""
        if self.runs and self.member.member_id in self.shard.members:
            known = self.shard.group.members[self.member.member_id]
            for topic, partition in self.held:
                if self.member.epoch == known.epoch:
                    assert partition in {*known.assigned.get(topic, ()), *known.revoking.get(topic, ())}


event = st.tuples(
    st.sampled_from(["beat", "beat", "obey", "obey", "lost", "leave", "vanish", "time", "wish"]), st.integers(0, 2)
)


@given(events=st.lists(event, max_size=60))
def test_whatever_happens_partitions_have_one_owner_each_and_all_have_one_in_the_end(
    events: list[tuple[str, int]],
) -> None:
    shard = Shard({"t": 5, "u": 2})
    actors = [Actor(shard, index) for index in range(3)]
    actors[0].beat()
    for kind, index in events:
        actor = actors[index]
        if kind in ("beat", "lost"):
            actor.beat(lost=kind == "lost")
        elif kind == "obey":
            actor.obey()
        elif kind == "wish":
            actor.wish = Wish(frozenset({"t", "u"})) if actor.wish == WISH else WISH
        elif kind == "time":
            shard.reflex.wait(20.0)
        else:
            actor.leave(says_goodbye=kind == "leave")
        shard.check()
        for one in actors:
            one.check()
    running = [actor for actor in actors if actor.runs]
    for _ in range(60):
        for actor in running:
            actor.beat()
            actor.obey()
            shard.check()
        shard.reflex.wait(2.0)
    held = [place for actor in running for place in actor.held]
    wanted = {topic for actor in running for topic in actor.wish.topics}
    expected = {(shard.topic_id(name), index) for name, count in (("t", 5), ("u", 2)) for index in range(count)}
    names = {shard.topic_id(name): name for name in ("t", "u")}
    assert len(held) == len(set(held))
    assert set(held) == {place for place in expected if names[place[0]] in wanted}
