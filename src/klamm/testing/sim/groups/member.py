"""A member of a classic group, as a consumer is one: it joins, assigns if it leads, commits, and starts anew when told.

Sometimes it leaves, restarts under its instance id, or falls silent for a while and goes on as if nothing had been.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random  # noqa: TID251 - made from the seed alone
from typing import Any, Final

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker.client import Client, Lost
from klamm.testing.sim.broker.lab import error_code
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.groups.ledger import Assignment, Ledger
from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest
from klamm.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from klamm.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP: Final = "group"
TOPIC: Final = "topic"
PARTITIONS: Final = 5
SESSION_MS: Final = 6000
REBALANCE_MS: Final = 10_000
_WAIT_S: Final = 3 * REBALANCE_MS / 1000
"""For a rebalance: one that is broken off by the next one takes longer than one."""

_LATER = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
)
"""Of a broker that is just starting, or cannot write: nothing happened."""
_JOIN_AGAIN = frozenset((ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION))
_BEGIN_ANEW = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID))


class _Again(Exception):
    """Join again: what was asked for makes no sense any more."""


class Member:
    def __init__(
        self,
        name: str,
        rng: Random,
        ledger: Ledger,
        connect: Callable[[str], Awaitable[Client]],
        is_over: Callable[[], bool],
    ) -> None:
        self.generation = -1
        self.partitions: tuple[int, ...] = ()
        self._name = name
        self._rng = rng
        self._ledger = ledger
        self._connect = connect
        self._is_over = is_over
        self._member_id = ""
        self._instance_id = name if rng.random() < 0.3 else None

    async def run(self) -> None:
        while not self._is_over():
            try:
                await self._take_part(await self._connect(self._name))
            except (_Again, Lost):
                self.partitions = ()
                await asyncio.sleep(self._rng.random() * 0.2)

    async def _take_part(self, client: Client) -> None:
        await self._ask(client, FindCoordinatorRequest(key=GROUP, key_type=0), 2)
        await self._sync(client, await self._join(client))
        offsets = await self._positions(client)
        while not self._is_over():
            await asyncio.sleep(self._rng.random() * 0.4)
            await self._misbehave(client)
            await self._commit(client, offsets)
            beat = HeartbeatRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
            )
            await self._ask(client, beat, 4)

    async def _join(self, client: Client) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self._member_id,
                group_instance_id=self._instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="sim", metadata=self._name.encode())],
            )
            answer: JoinGroupResponse = await client.call(request, 9, _WAIT_S)
            if error_code(answer.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            self._settle(error_code(answer.error_code))
            self._member_id, self.generation = answer.member_id, answer.generation_id
            return answer

    async def _sync(self, client: Client, joined: JoinGroupResponse) -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[] if joined.skip_assignment else self._assign(joined),
        )
        answer = await client.call(request, 5, _WAIT_S)
        self._settle(error_code(answer.error_code))
        assignment = Assignment.decode(answer.assignment)
        if assignment is None:
            raise Violation(f"{self._name} is in generation {self.generation}, and its leader did not know")
        self._ledger.assigned(self.generation, self._instance_id or self._member_id, assignment)
        self.partitions = assignment.partitions

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Nothing, unless this one leads."""
        tag = self._rng.getrandbits(60)
        count = len(joined.members)
        return [
            SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=Assignment(tag, tuple(range(index, PARTITIONS, count))).encode(),
            )
            for index, member in enumerate(joined.members)
        ]

    async def _positions(self, client: Client) -> dict[int, int]:
        """Where the one before came to, for every partition that is ours now."""
        at_least = {partition: self._ledger.acknowledged(partition) for partition in self.partitions}
        asked = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(self.partitions))
        answer = await self._ask(client, OffsetFetchRequest(group_id=GROUP, topics=[asked]), 7)
        offsets: dict[int, int] = {}
        for one in (p for topic in answer.topics for p in topic.partitions):
            self._settle(error_code(one.error_code))
            self._ledger.found(one.partition_index, one.committed_offset, at_least[one.partition_index])
            offsets[one.partition_index] = one.committed_offset
        return offsets

    async def _commit(self, client: Client, offsets: dict[int, int]) -> None:
        if not offsets:
            return
        partition = self._rng.choice(sorted(offsets))
        offset = offsets[partition] + self._rng.randint(1, 3)
        self._ledger.commits_next(partition, offset)
        one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[one])],
        )
        answer = await client.call(request, 8)
        code = error_code(answer.topics[0].partitions[0].error_code)
        if code in _LATER:
            return
        self._settle(code)
        self._ledger.committed(partition, offset)
        offsets[partition] = offset

    async def _misbehave(self, client: Client) -> None:
        choice = self._rng.random()
        if choice < 0.02:
            leaving = MemberIdentity(member_id=self._member_id, group_instance_id=self._instance_id)
            await client.call(LeaveGroupRequest(group_id=GROUP, members=[leaving]), 5)
            self._member_id = ""
            raise _Again
        if choice < 0.05:  # a restart: only a static member is the same afterwards
            self._member_id = ""
            raise _Again
        if choice < 0.07:  # a long pause, and then on as if nothing had been
            await asyncio.sleep(SESSION_MS / 1000 * self._rng.uniform(0.5, 2.0))

    async def _ask(self, client: Client, request: Any, version: int) -> Any:
        answer = await client.call(request, version)
        self._settle(error_code(answer.error_code))
        return answer

    def _settle(self, code: ErrorCode) -> None:
        if code in _BEGIN_ANEW:
            self._member_id = ""
        elif code and code not in _LATER and code not in _JOIN_AGAIN:
            raise Violation(f"{self._name}: {code.name} is not what a member may be told")
        if code:
            raise _Again
