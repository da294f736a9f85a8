"""One member of a classic group: who it is, what it says to the coordinator, and what the answers mean. Pure.

A membership is a generation: every rebalance makes a new one, in which the leader (a member that the coordinator
picked) assigns partitions to all. A request belongs to the generation in which it was made: `heartbeat_answered` looks
at that, because an answer may come when the member has long gone on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from klamm.client.assignors import Assignment, Assignor, Member
from klamm.client.errors import BadAnswer, ClientError, error_code
from klamm.client.group.protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from klamm.client.group.verdict import PASSING, Verdict, refusal
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.wire import ProtocolError
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest
from klamm.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from klamm.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


class Phase(Enum):
    OUT = "out"
    JOINING = "joining"
    """JoinGroup is on its way, and may be for as long as the slowest member takes."""
    SYNCING = "syncing"
    MEMBER = "member"


class Terms(NamedTuple):
    """What of the configuration a member tells the coordinator."""

    group_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    rack: str | None


class ClassicMember:
    def __init__(self, terms: Terms, assignors: Sequence[Assignor]) -> None:
        self.terms = terms
        self.assignors = {assignor.name: assignor for assignor in assignors}
        self.cooperative = all(assignor.cooperative for assignor in assignors)
        """Whether this member keeps its partitions over a rebalance: only if each of its assignors can deal with it,
        because it does not know beforehand which one the group will choose."""
        self.phase = Phase.OUT
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION
        self.assignor: Assignor = assignors[0]
        self.prepares = False
        """It knows that it has to join again, and gives up first what it must."""
        self.last: tuple[TopicPartition, ...] = ()
        self.last_generation = NO_GENERATION

    # Joining.

    def join_request(self, topics: frozenset[str], owned: Iterable[TopicPartition], reason: str) -> JoinGroupRequest:
        """`owned` is what the member still has; without cooperation it must have given up everything by now."""
        terms = self.terms
        held = list(owned)
        assert self.cooperative or not held, "partitions are kept over a rebalance that everybody gives up all for"
        self.phase = Phase.JOINING
        self.prepares = False
        protocols = []
        for assignor in self.assignors.values():
            told = assignor.user_data(topics, self.last, self.last_generation)
            metadata = encode_subscription(topics, told, held, self.last_generation, terms.rack)
            protocols.append(JoinGroupRequestProtocol(name=assignor.name, metadata=metadata))
        return JoinGroupRequest(
            group_id=terms.group_id,
            session_timeout_ms=terms.session_timeout_ms,
            rebalance_timeout_ms=terms.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=terms.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=reason,
        )

    def joined(self, answer: JoinGroupResponse) -> Verdict:
        """FINE: a `sync_request` is next. Raises what cannot be helped."""
        assert self.phase is Phase.JOINING
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE:
            return self._joined(answer)
        self.unanswered()
        if code is ErrorCode.MEMBER_ID_REQUIRED:  # KIP-394: the first JoinGroup only asks for a name
            self.member_id = answer.member_id
            return Verdict.REJOIN
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.reset()
            return Verdict.OUT
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            return Verdict.AGAIN
        return self._passing(code)

    def _joined(self, answer: JoinGroupResponse) -> Verdict:
        if answer.protocol_type not in (None, PROTOCOL_TYPE) or answer.protocol_name not in self.assignors:
            self.phase = Phase.OUT
            raise refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, self.terms.group_id)
        self.phase = Phase.SYNCING
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        self.assignor = self.assignors[answer.protocol_name]
        return Verdict.FINE

    def members(self, answer: JoinGroupResponse) -> list[Member]:
        """For the leader: everybody. Empty for all the others."""
        if answer.leader != self.member_id:
            return []
        try:
            return [decode_subscription(m.member_id, m.group_instance_id, bytes(m.metadata)) for m in answer.members]
        except ProtocolError as error:
            raise BadAnswer(f"A member of group {self.terms.group_id} cannot be understood: {error}.") from None

    def assignment(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Assignment:
        """What the leader decides. An assignor of somebody's own may be wrong: that is found here."""
        result = self.assignor.assign(members, partitions)
        if unknown := set(result) - {member.id for member in members}:
            raise ClientError(
                f"The assignor {self.assignor.name} assigns to {', '.join(sorted(unknown))}, not a member."
            )
        return result

    # Syncing.

    def sync_request(self, assignment: Assignment) -> SyncGroupRequest:
        """With what was decided if this member leads, else with nothing."""
        given = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(places))
            for member_id, places in assignment.items()
        ]
        return SyncGroupRequest(
            group_id=self.terms.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.terms.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor.name,
            assignments=given,
        )

    def synced(self, answer: SyncGroupResponse) -> Verdict:
        """FINE: `last` is what the member has from now on."""
        code = error_code(answer.error_code)
        if code is ErrorCode.NONE:
            try:
                self.last = decode_assignment(bytes(answer.assignment))
            except ProtocolError as error:
                raise BadAnswer(f"The leader of group {self.terms.group_id} assigned nonsense: {error}.") from None
            self.last_generation = self.generation
            self.phase = Phase.MEMBER
            return Verdict.FINE
        self.phase = Phase.MEMBER
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return Verdict.REJOIN
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.reset(keep_id=code is ErrorCode.ILLEGAL_GENERATION)
            return Verdict.OUT
        verdict = self._passing(code)
        return Verdict.REJOIN if verdict is Verdict.AGAIN else verdict

    def unanswered(self) -> None:
        """JoinGroup or SyncGroup got no answer. The next thing is to join again, as whoever this was before."""
        self.phase = Phase.MEMBER if self.is_in else Phase.OUT

    @property
    def is_in(self) -> bool:
        """Whether it belongs to a generation, as far as it knows."""
        return self.generation != NO_GENERATION

    # Staying.

    @property
    def beats(self) -> bool:
        """Whether the coordinator waits for heartbeats. Not while it owes an answer to JoinGroup or SyncGroup."""
        return self.phase is Phase.MEMBER and self.is_in

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.terms.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.terms.instance_id,
        )

    def heartbeat_answered(self, asked: HeartbeatRequest, number: int) -> Verdict:
        if not self.beats or (asked.generation_id, asked.member_id) != (self.generation, self.member_id):
            return Verdict.FINE  # about a membership that is over
        code = error_code(number)
        if code is ErrorCode.NONE:
            return Verdict.FINE
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return Verdict.FINE if self.prepares else Verdict.REJOIN
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.reset(keep_id=code is ErrorCode.ILLEGAL_GENERATION)
            return Verdict.OUT
        return self._passing(code)

    # Leaving.

    @property
    def may_leave(self) -> bool:
        """A static member stays on for its next run, until the session is over; whoever has no name never came."""
        return self.member_id != NO_MEMBER and self.terms.instance_id is None

    def leave_request(self, version: int, reason: str) -> LeaveGroupRequest:
        if version < _MANY_MEMBERS:
            return LeaveGroupRequest(group_id=self.terms.group_id, member_id=self.member_id)
        who = MemberIdentity(member_id=self.member_id, reason=reason)
        return LeaveGroupRequest(group_id=self.terms.group_id, members=[who])

    def reset(self, *, keep_id: bool = False) -> None:
        """Out of the group. What it had last is kept: it may get it again."""
        self.phase = Phase.OUT
        self.generation = NO_GENERATION
        if not keep_id:
            self.member_id = NO_MEMBER

    def _passing(self, code: ErrorCode) -> Verdict:
        verdict = PASSING.get(code)
        if verdict is None:
            raise refusal(code, self.terms.group_id)
        return verdict


_MANY_MEMBERS: Final = 3
"""LeaveGroup names members in a list from this version on."""
