"""A group machine without a broker: events go in, outcomes are applied as a shard would, time goes by when told to."""

from __future__ import annotations

from random import Random
from typing import Any

from klamm.coordinator.groups.classic_group import ClassicGroup
from klamm.coordinator.groups.machine import GroupMachine
from klamm.coordinator.groups.members import Joining
from klamm.coordinator.machine import Now, Outcome, Record
from klamm.coordinator.records import GROUPS, encode
from klamm.core.errors import ErrorCode
from klamm.core.options import Options
from klamm.wire.messages.k13_leave_group import MemberIdentity
from klamm.wire.messages.k14_sync_group import SyncGroupResponse
from klamm.wire.messages.k15_describe_groups import DescribedGroup

PROTOCOLS = {"range": b"\x00\x01range", "roundrobin": b"\x00\x01robin"}


class Reply:
    """Where an answer goes. `answer` is None while it has not come."""

    def __init__(self) -> None:
        self.answer: Any = None

    @property
    def done(self) -> bool:
        return self.answer is not None

    @property
    def error(self) -> int:
        assert self.answer is not None, "no answer yet"
        return int(self.answer.error_code)


class GroupDriver:
    """`log` is what a partition of `__consumer_offsets` would hold, as bytes."""

    def __init__(self, seed: int = 1, **options: object) -> None:
        given = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        self.options = Options.from_mapping(given)
        self.rng = Random(seed)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.full = False
        """The log takes nothing."""
        self.now = 100.0
        self.machine = self.fresh()
        self.machine.loaded(self.moment)

    def fresh(self) -> GroupMachine:
        return GroupMachine(lambda: self.options, lambda: self.rng.randbytes(16))

    @property
    def moment(self) -> Now:
        return Now(self.now, 1_700_000_000_000 + int(self.now * 1000))

    # ---- what a shard does

    def apply(self, outcome: Outcome) -> None:
        if self.full and outcome.records:
            assert outcome.only_records, "everything else would cost the machine"
            for reply, _ in outcome.answers:
                assert isinstance(reply, Reply)
                reply.answer = SyncGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        for record in outcome.records:
            self.log.append(encode(record))
            self.machine.replay(record)
        for answer in outcome.answers:
            assert isinstance(answer.reply, Reply)
            assert not answer.reply.done, "answered twice"
            answer.reply.answer = answer.value

    def tick(self) -> None:
        """Everything that is due now."""
        while (due := self.machine.next_due) is not None and due <= self.now:
            self.apply(self.machine.tick(self.moment))

    def advance(self, seconds: float) -> None:
        """Let time go by, with every limit in it."""
        until = self.now + seconds
        self.tick()
        while (due := self.machine.next_due) is not None and due <= until:
            self.now = max(self.now, due)
            self.tick()
        self.now = until

    def records(self) -> list[Record]:
        found = [GROUPS.decode(key, value) for key, value in self.log]
        return [record for record in found if record is not None]

    def replayed(self) -> GroupMachine:
        """A machine made from the log alone."""
        machine = self.fresh()
        for record in self.records():
            machine.replay(record)
        return machine

    def crash(self) -> None:
        """Everything that is not in the log is gone; nobody who waits hears of it."""
        self.machine = self.replayed()
        self.apply(self.machine.loaded(self.moment))

    # ---- what members do

    def join(
        self,
        member_id: str = "",
        group_id: str = "g",
        *,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client_id: str = "c",
    ) -> Reply:
        reply = Reply()
        offered = PROTOCOLS if protocols is None else protocols
        joining = Joining(
            group_id,
            member_id,
            instance_id,
            client_id,
            "/127.0.0.1",
            session_ms,
            rebalance_ms,
            protocol_type,
            offered,
            version,
        )
        self.apply(self.machine.classic.join(joining, reply, self.moment))
        return reply

    def enter(self, group_id: str = "g", **options: Any) -> Reply:
        """A new member, by the two steps that take it into a group."""
        first = self.join("", group_id, **options)
        return self.join(first.answer.member_id, group_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> Reply:
        reply = Reply()
        outcome = self.machine.classic.sync(
            group_id, member_id, instance_id, generation, protocol, assignments or {}, reply, self.moment
        )
        self.apply(outcome)
        return reply

    def beat(self, member_id: str, generation: int, instance_id: str | None = None, group_id: str = "g") -> int:
        reply = Reply()
        self.apply(self.machine.classic.heartbeat(group_id, member_id, instance_id, generation, reply, self.moment))
        return reply.error

    def leave(self, *members: tuple[str, str | None], group_id: str = "g") -> list[int]:
        """Each by its member id and instance id."""
        reply = Reply()
        leaving = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        self.apply(self.machine.classic.leave(group_id, leaving, reply, self.moment))
        return [one.error_code for one in reply.answer.members]

    # ---- what one sees of a group

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.machine.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def describe(self, group_id: str = "g") -> DescribedGroup:
        return self.group(group_id).describe()

    def stable(self, count: int, **options: Any) -> list[str]:
        """A stable group of so many members, the leader first; each is assigned its own id."""
        members: list[str] = []
        for _ in range(count):
            joins = [self.enter(**options), *(self.join(m, **options) for m in members)]
            self.tick()
            members = [reply.answer.member_id for reply in joins]
            assert not any(reply.error for reply in joins)
        leader = joins[0].answer.leader
        generation = joins[0].answer.generation_id
        for member_id in sorted(members, key=lambda m: m == leader):
            self.sync(member_id, generation, {m: m.encode() for m in members})
        assert self.group().state == "Stable"
        return sorted(members, key=lambda m: m != leader)
