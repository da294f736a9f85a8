"""The classic member without I/O: what answers mean, and many of them with a real coordinator's machine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.client.assignors import CooperativeStickyAssignor, RangeAssignor, StickyAssignor
from klamm.client.errors import BadAnswer, BrokerSaid
from klamm.client.group.classic import ClassicMember, Terms
from klamm.client.group.protocol import decode_assignment, decode_subscription, encode_assignment, encode_subscription
from klamm.client.group.verdict import Verdict
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.wire import ProtocolError
from klamm.wire.messages.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from klamm.wire.messages.k14_sync_group import SyncGroupResponse
from support.groups import GroupDriver, Reply

TERMS = Terms("g", None, 10_000, 60_000, None)
TOPICS = frozenset({"t"})
PLACE = TopicPartition("t", 0)


def member_of_generation(generation: int = 3) -> ClassicMember:
    member = ClassicMember(TERMS, [RangeAssignor()])
    member.join_request(TOPICS, (), "new")
    answer = JoinGroupResponse(generation_id=generation, protocol_name="range", leader="x", member_id="m", members=[])
    assert member.joined(answer) is Verdict.FINE
    synced = SyncGroupResponse(assignment=encode_assignment([PLACE]))
    assert member.synced(synced) is Verdict.FINE
    return member


# What the members tell each other.


def test_a_subscription_and_an_assignment_come_back_as_they_were() -> None:
    data = encode_subscription(TOPICS, b"u", [PLACE], 7, "r")
    assert data[:2] == b"\0\3"
    found = decode_subscription("m", "i", data)
    assert found == ("m", TOPICS, "i", (PLACE,), 7, b"u", "r")
    assert decode_assignment(encode_assignment([PLACE])) == (PLACE,)
    assert decode_assignment(b"") == ()


def test_older_and_newer_versions_are_read() -> None:
    old = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
    assert decode_subscription("m", None, old).topics == TOPICS
    newer = b"\0\x09" + encode_subscription(TOPICS, None, [PLACE], 7, None)[2:] + b"more"
    assert decode_subscription("m", None, newer).owned == (PLACE,)
    for nonsense in (b"", b"\0", b"\xff\xff", b"\0\0\0"):
        with pytest.raises(ProtocolError):
            decode_subscription("m", None, nonsense)


# What answers mean.


def test_the_first_join_only_asks_for_a_name() -> None:
    member = ClassicMember(TERMS, [RangeAssignor()])
    assert member.join_request(TOPICS, (), "new").member_id == ""
    answer = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m", members=[])
    assert member.joined(answer) is Verdict.REJOIN
    assert member.join_request(TOPICS, (), "new").member_id == "m"


@pytest.mark.parametrize(
    ("code", "verdict", "keeps_id"),
    [
        (ErrorCode.NONE, Verdict.FINE, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, Verdict.REJOIN, True),
        (ErrorCode.ILLEGAL_GENERATION, Verdict.OUT, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, Verdict.OUT, False),
        (ErrorCode.NOT_COORDINATOR, Verdict.ELSEWHERE, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.AGAIN, True),
    ],
)
def test_what_a_heartbeat_learns(code: ErrorCode, verdict: Verdict, keeps_id: bool) -> None:
    member = member_of_generation()
    assert member.heartbeat_answered(member.heartbeat_request(), code) is verdict
    assert (member.member_id == "m") is keeps_id
    assert member.is_in is (verdict is not Verdict.OUT)


def test_an_answer_about_an_earlier_membership_means_nothing() -> None:
    member = member_of_generation()
    asked = member.heartbeat_request()
    member.join_request(TOPICS, (), "again")
    assert member.heartbeat_answered(asked, ErrorCode.UNKNOWN_MEMBER_ID) is Verdict.FINE
    assert member.member_id == "m"


def test_a_member_that_is_about_to_join_again_needs_not_hear_of_the_rebalance() -> None:
    """Else it would join once more after it, and everybody with it."""
    member = member_of_generation()
    member.prepares = True
    asked = member.heartbeat_request()
    assert member.heartbeat_answered(asked, ErrorCode.REBALANCE_IN_PROGRESS) is Verdict.FINE
    assert member.heartbeat_answered(asked, ErrorCode.UNKNOWN_MEMBER_ID) is Verdict.OUT


def test_what_cannot_be_helped_is_raised_with_a_hint() -> None:
    member = member_of_generation()
    with pytest.raises(BrokerSaid, match=r"group\.instance\.id") as caught:
        member.heartbeat_answered(member.heartbeat_request(), ErrorCode.FENCED_INSTANCE_ID)
    assert not caught.value.retriable
    member.join_request(TOPICS, (), "again")
    with pytest.raises(BrokerSaid, match="INCONSISTENT"):
        member.joined(JoinGroupResponse(protocol_name="other", leader="", member_id="m", members=[]))


def test_nonsense_of_other_members_is_said_to_be_so() -> None:
    member = ClassicMember(TERMS, [RangeAssignor()])
    member.join_request(TOPICS, (), "new")
    other = JoinGroupResponseMember(member_id="x", metadata=b"?")
    answer = JoinGroupResponse(generation_id=1, protocol_name="range", leader="m", member_id="m", members=[other])
    member.joined(answer)
    with pytest.raises(BadAnswer, match="cannot be understood"):
        member.members(answer)
    with pytest.raises(BadAnswer, match="nonsense"):
        member.synced(SyncGroupResponse(assignment=b"\0\0\xff"))


def test_only_cooperative_assignors_together_keep_partitions() -> None:
    assert ClassicMember(TERMS, [CooperativeStickyAssignor()]).cooperative
    assert not ClassicMember(TERMS, [RangeAssignor(), CooperativeStickyAssignor()]).cooperative


def test_a_static_member_does_not_leave() -> None:
    member = member_of_generation()
    assert member.may_leave
    assert member.leave_request(5, "why").members[0].reason == "why"
    assert member.leave_request(2, "why").member_id == "m"
    member.terms = TERMS._replace(instance_id="i")
    assert not member.may_leave


# Many members and a coordinator.


class Actor:
    """A member with an application, a step at a time: what `classic_member` does, without I/O and time."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.member = ClassicMember(TERMS, [world.assignor])
        self.held: set[TopicPartition] = set()
        self.waits_for: tuple[str, Reply] | None = None
        self.runs = False
        self.rejoins = True
        self.answer: Any = None

    def start(self) -> None:
        self.runs = self.rejoins = True

    def step(self) -> None:
        """The next thing it can do."""
        if not self.runs:
            return
        if self.waits_for is not None:
            kind, reply = self.waits_for
            if reply.done:
                self.waits_for = None
                (self._joined if kind == "join" else self._synced)(reply.answer)
        elif self.rejoins:
            self._join()
        else:
            self._beat()

    def _join(self) -> None:
        member = self.member
        if not member.is_in or not member.cooperative:
            self.held.clear()
        request = member.join_request(TOPICS, self.held, "")
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        reply = self.world.driver.join(request.member_id, protocols=protocols, session_ms=request.session_timeout_ms)
        self.waits_for = "join", reply

    def _joined(self, answer: Any) -> None:
        verdict = self.member.joined(answer)
        if verdict is not Verdict.FINE:
            return
        members = self.member.members(answer)
        decided = self.member.assignment(members, {"t": self.world.partitions}) if members else {}
        request = self.member.sync_request(decided)
        given = {one.member_id: bytes(one.assignment) for one in request.assignments}
        reply = self.world.driver.sync(
            request.member_id, request.generation_id, given, protocol=(request.protocol_type, request.protocol_name)
        )
        self.waits_for = "sync", reply

    def _synced(self, answer: Any) -> None:
        if self.member.synced(answer) is not Verdict.FINE:
            return
        given = set(self.member.last)
        self.rejoins = bool(self.held - given)
        self.held = given

    def _beat(self) -> None:
        request = self.member.heartbeat_request()
        code = self.world.driver.beat(request.member_id, request.generation_id)
        verdict = self.member.heartbeat_answered(request, code)
        if verdict is not Verdict.FINE:
            self.rejoins = True
        if verdict is Verdict.OUT:
            self.held.clear()

    def connection_lost(self) -> None:
        """No answer will come."""
        if self.waits_for is not None:
            self.waits_for = None
            self.member.unanswered()
            self.rejoins = True

    def stop(self, *, says_goodbye: bool) -> None:
        if self.runs and says_goodbye and self.member.may_leave:
            self.world.driver.leave((self.member.member_id, None))
        self.runs = False
        self.waits_for = None
        self.held.clear()
        self.member.reset()


class World:
    def __init__(self, assignor: Any) -> None:
        self.driver = GroupDriver()
        self.assignor = assignor
        self.partitions = 5
        self.actors = [Actor(self, index) for index in range(4)]

    def check(self) -> None:
        """Nobody reads what another one reads, unless the group has gone on without it."""
        if "g" not in self.driver.machine.groups:
            return
        members = {member.member_id for member in self.driver.describe().members}
        held: set[TopicPartition] = set()
        for actor in self.actors:
            if actor.runs and actor.member.member_id in members:
                assert not held & actor.held, "a partition is held twice"
                held |= actor.held

    def settle(self) -> None:
        for _ in range(60):
            for actor in self.actors:
                actor.step()
                self.driver.tick()
                self.check()
            self.driver.advance(1.0)
        running = [actor for actor in self.actors if actor.runs]
        if running:
            everything = sorted(place.partition for actor in running for place in actor.held)
            assert everything == list(range(self.partitions)), "not all partitions are read"
            assert len({actor.member.generation for actor in running}) == 1
            assert not any(actor.rejoins for actor in running)


event = st.tuples(
    st.sampled_from(["step", "step", "step", "start", "stop", "vanish", "lose", "time", "crash"]), st.integers(0, 3)
)


@pytest.mark.parametrize(
    "assignor", [RangeAssignor(), StickyAssignor(), CooperativeStickyAssignor()], ids=lambda one: one.name
)
@given(events=st.lists(event, max_size=60))
def test_whatever_happens_partitions_have_one_reader_each_and_all_have_one_in_the_end(
    assignor: Any, events: list[tuple[str, int]]
) -> None:
    world = World(assignor)
    world.actors[0].start()
    for kind, index in events:
        actor = world.actors[index]
        if kind == "step":
            actor.step()
        elif kind == "start":
            if not actor.runs:
                actor.start()
        elif kind == "stop":
            actor.stop(says_goodbye=True)
        elif kind == "vanish":
            actor.stop(says_goodbye=False)
        elif kind == "lose":
            actor.connection_lost()
        elif kind == "time":
            world.driver.advance(4.0)
        else:
            world.driver.crash()
            for other in world.actors:
                other.connection_lost()
        world.driver.tick()
        world.check()
    world.settle()
