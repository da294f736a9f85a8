"""A member of the classic protocol: join, sync, heartbeats, until something else happens.

The one that is made the leader deals the partitions out by itself; members say their names in their metadata, so that
what it sent can be compared with what they got, also if a static member has a new id by then.
"""

from __future__ import annotations

from typing import Final

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker.client import Lost
from klamm.testing.sim.broker.lab import Lab, error_code, pause
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.membership.group import Group
from klamm.testing.sim.membership.ledger import Assignments
from klamm.testing.sim.membership.member import AGAIN, BEAT_S, OUT, STALE, GroupMember, Out
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest
from klamm.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from klamm.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS: Final = 2000
_JOIN_S: Final = 15.0  # longer than any rebalance lasts
_PROTOCOL_TYPE: Final = "consumer"


class ClassicMember(GroupMember):
    def __init__(self, lab: Lab, group: Group, name: str) -> None:
        super().__init__(lab, group, name)
        # Before version 9 a leader that is back under its instance id is not told that it leads (KIP-814), and then
        # nobody watches out for new partitions.
        self._join_version = 9 if self._instance_id is not None else self._rng.choice((3, 4, 7, 9))
        self._rebalance_ms = self._rng.choice((1000, 3000))
        # All know the same ones: a group's record has only the one that was chosen, and after a restart a member that
        # does not know it is refused until the others join again. That is how Kafka has it too.
        self._protocols = self._rng.sample(("range", "roundrobin"), 2)
        self._generation = -1
        self._dealt = 0
        self._known_partitions = 0  # how many there were when it became the leader; 0: it is none

    def epoch(self) -> int:
        return self._generation

    def granted(self, asked: int) -> None:
        self._group.generations.joined(self._generation, asked)

    async def stay(self) -> None:
        self._away()
        joined = await self._join()
        if joined is None or not await self._sync(joined):
            await pause(self._rng, 0.1)
            return
        beaten = self.time()
        while not self._is_done():
            if self.time() >= beaten + BEAT_S:
                beaten = self.time()
                if not await self._beat():
                    return
                await self._change_something()
            else:
                await self.work()

    async def leave_at_last(self) -> None:
        try:
            await self._leave()
        except Lost:
            pass

    def _away(self) -> None:
        self.keep_only(set())
        self.position = None

    # ---- a generation

    async def _join(self) -> JoinGroupResponse | None:
        asked = self._group.steps.next()
        request = JoinGroupRequest(
            group_id=self._group.id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=self.name.encode()) for name in self._protocols],
        )
        answer: JoinGroupResponse = await self.call(request, self._join_version, _JOIN_S)
        code = error_code(answer.error_code)
        self._lab.note(self.name, f"join {code.name}", str(answer.generation_id))
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code in OUT:
            self.member_id = ""
        elif not code:
            self.member_id, self._generation = answer.member_id, answer.generation_id
            self.granted(asked)
            return answer
        elif code not in AGAIN | STALE:
            raise Violation(f"{self.name}: a join was refused with {code.name}")
        return None

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        if self.wants(0.08):
            await pause(self._rng, 5.0)  # too late, perhaps
        leads = joined.leader == self.member_id
        deals = leads and not joined.skip_assignment
        assignments = self._deal(joined) if deals else []
        self._known_partitions = len(self._group.topic.partitions) if leads else 0
        request = SyncGroupRequest(
            group_id=self._group.id,
            generation_id=self._generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        asked = self._group.steps.next()
        answer = await self.call(request, self._rng.choice((3, 5)), _JOIN_S)
        code = error_code(answer.error_code)
        self._lab.note(self.name, f"sync {code.name}", bytes(answer.assignment).decode())
        if code in OUT:
            self.member_id = ""
        elif code and code not in AGAIN | STALE:
            raise Violation(f"{self.name}: a sync was refused with {code.name}")
        if code:
            return False
        assignment = bytes(answer.assignment)
        self.granted(asked)
        self._group.generations.synced(self._generation, self.name, assignment, self._group.steps.next())
        self.keep_only({int(partition) for partition in assignment.decode().split(";")[1].split(",") if partition})
        self.position = self._generation
        return True

    def _deal(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        self._dealt += 1
        names = {bytes(one.metadata).decode(): one.member_id for one in joined.members}
        hands: dict[str, list[str]] = {name: [] for name in sorted(names)}
        turn = self._rng.sample(sorted(names), len(names))
        for partition in self._group.topic.partitions:
            hands[turn[partition.index % len(turn)]].append(str(partition.index))
        deal = f"{self.name}/{self._dealt}"
        of = {name: f"{deal};{','.join(hand)}".encode() for name, hand in hands.items()}
        self._group.generations.assigning(Assignments(self._generation, of))
        return [SyncGroupRequestAssignment(member_id=names[name], assignment=hand) for name, hand in of.items()]

    async def _beat(self) -> bool:
        """Whether the generation goes on."""
        asked = self._group.steps.next()
        request = HeartbeatRequest(
            group_id=self._group.id,
            generation_id=self._generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
        )
        code = error_code((await self.call(request, 4)).error_code)
        if code in OUT:
            self.member_id = ""
            raise Out(code.name)
        if not code:
            self.granted(asked)
        elif code not in AGAIN | STALE:
            raise Violation(f"{self.name}: a heartbeat was refused with {code.name}")
        return not code or code in AGAIN

    # ---- coming and going

    async def _change_something(self) -> None:
        self.perhaps_die()
        if self.wants(0.08):
            await self.be_silent()
        elif self.wants(0.04):
            await self._leave()
            await pause(self._rng, 2.0)
            raise Out("it left")
        elif self.wants(0.03):
            self._link.drop()
            self.member_id = ""
            self._away()
            await pause(self._rng, 4.0)
            raise Out("it died")
        elif self.wants(0.03):
            raise Out("it wants a rebalance")
        elif 0 < self._known_partitions < len(self._group.topic.partitions):
            raise Out("there are more partitions to deal out")

    async def _leave(self) -> None:
        self._away()
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self._instance_id, reason="done")
        self.member_id = ""
        if not identity.member_id:
            return
        answer = await self.call(LeaveGroupRequest(group_id=self._group.id, members=[identity]), 5)
        code = error_code(answer.error_code or answer.members[0].error_code)
        self._lab.note(self.name, f"leave {code.name}")
        if code and code not in AGAIN | OUT:
            raise Violation(f"{self.name}: it may not leave: {code.name}")


__all__ = ["SESSION_MS", "ClassicMember"]
