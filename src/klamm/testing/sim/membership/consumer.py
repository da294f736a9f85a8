"""A member of the consumer protocol (KIP-848): heartbeats, and what they say it has.

It takes what it is given at once, gives up what it should at once or after a while (which may be too long), and says
so. After any trouble it says everything again, as clients do that do not know what the coordinator has heard.
"""

from __future__ import annotations

from typing import Final

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker.client import Lost
from klamm.testing.sim.broker.lab import Lab, error_code, pause
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.membership.group import Group
from klamm.testing.sim.membership.member import AGAIN, BEAT_S, OUT, GroupMember, Out
from klamm.testing.sim.membership.ownership import Standing
from klamm.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

SESSION_MS: Final = 2000
_JOINING, _LEAVING, _STATIC_LEAVING = 0, -1, -2
_FENCED = OUT | {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
_VERSION: Final = 1


class ConsumerMember(GroupMember):
    def __init__(self, lab: Lab, group: Group, name: str) -> None:
        super().__init__(lab, group, name)
        self._rebalance_ms = self._rng.choice((1000, 3000))
        self._regex = self._rng.random() < 0.2
        self._assignor = self._rng.choice((None, "uniform", "range"))
        self._lives = 0
        self._epoch = _JOINING
        self._target: set[int] = set()
        self._give_up_at = 0.0
        self._said: set[int] | None = None  # what the coordinator has heard that it owns; None: say everything
        self._new_life()

    def _new_life(self) -> None:
        self._lives += 1
        self.member_id = f"{self.name}.{self._lives}"
        self._standing = Standing(self.member_id, SESSION_MS / 1000, self._rebalance_ms / 1000)
        self._epoch = _JOINING

    def epoch(self) -> int:
        return self._epoch

    def granted(self, asked: int) -> None:
        self._group.ownership.may_go_on(self._standing, asked)

    def lost(self, lost: Lost) -> None:
        super().lost(lost)
        self._said = None

    async def stay(self) -> None:
        while not self._is_done():
            await self._beat()
            await self._change_something()
            beaten = self.time()
            while self.time() < beaten + BEAT_S:
                if self._gives_up_now():
                    break
                await self.work()

    async def leave_at_last(self) -> None:
        try:
            await self._leave(_LEAVING)
        except Lost:
            pass

    # ---- heartbeats

    async def _beat(self) -> None:
        sent, asked = self.time(), self._group.steps.next()
        request, owned = self._request(), set(self.owned)
        self._standing.asks(sent)
        answer: ConsumerGroupHeartbeatResponse = await self.call(request, _VERSION)
        code = error_code(answer.error_code)
        if code in _FENCED:
            self._is_out()
            if code is ErrorCode.FENCED_INSTANCE_ID:
                self._new_life()
            raise Out(code.name)
        if code:
            if code not in AGAIN and code is not ErrorCode.UNRELEASED_INSTANCE_ID:
                raise Violation(f"{self.name}: a heartbeat was refused with {code.name}: {answer.error_message}")
            self._said = None
            return
        if answer.member_epoch < self._epoch:
            raise Violation(f"{self.name}: its epoch went from {self._epoch} to {answer.member_epoch}")
        self._epoch, self._said = answer.member_epoch, owned
        if answer.assignment is not None:
            self._take(answer, asked)
        self._standing.is_in(sent, owes=not owned <= self._target)  # until it has said that it gave it up
        self.granted(asked)
        settled = self.owned == self._target == self._said
        self.position = self._epoch if settled else None

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group.id,
            member_id=self.member_id,
            member_epoch=self._epoch,
            instance_id=self._instance_id,
        )
        if self._epoch == _JOINING or self._said is None:
            request.rebalance_timeout_ms = self._rebalance_ms
            if self._regex:
                request.subscribed_topic_regex = f"{self._group.topic.name[:-1]}.*"
            request.subscribed_topic_names = [] if self._regex else [self._group.topic.name]
            request.server_assignor = self._assignor
        if self._epoch == _JOINING or self._said != self.owned:
            owned = TopicPartitions(topic_id=self._group.topic.id, partitions=sorted(self.owned))
            request.topic_partitions = [owned] if self.owned else []
        return request

    def _take(self, answer: ConsumerGroupHeartbeatResponse, asked: int) -> None:
        assert answer.assignment is not None
        self._group.epochs.add(self._epoch)
        self._target = {index for topic in answer.assignment.topic_partitions for index in topic.partitions}
        self._lab.note(self.name, f"epoch {self._epoch}", f"{sorted(self.owned)} -> {sorted(self._target)}")
        self._group.ownership.given(self._standing, sorted(self._target), asked, self.time())
        self.owned |= self._target
        if self.owned != self._target:
            delay_s = self._rng.choice((0.0, 0.0, 0.5, 4.0)) if not self.calm else 0.0
            self._give_up_at = self.time() + delay_s
            self._gives_up_now()

    def _gives_up_now(self) -> bool:
        """Whether it has just given something up, and should say so."""
        too_much = self.owned - self._target
        if not too_much or (self.time() < self._give_up_at and not self.calm):
            return False
        self._group.ownership.gave_up(self._standing, too_much)
        self.keep_only(set(self._target))
        return True

    def _is_out(self) -> None:
        """It has nothing any more, and knows it."""
        self._group.ownership.is_out(self._standing)
        self._standing.is_out()
        self._epoch = _JOINING
        self._said = None
        self._target = set()
        self.keep_only(set())
        self.position = None

    # ---- coming and going

    async def _change_something(self) -> None:
        self.perhaps_die()
        if self.wants(0.08):
            await self.be_silent()
        elif self.wants(0.04):
            may_return = self._instance_id is not None and self._rng.random() < 0.7
            await self._leave(_STATIC_LEAVING if may_return else _LEAVING)
            await pause(self._rng, 3.0)
            raise Out("it left")
        elif self.wants(0.03):
            self._link.drop()
            self._is_out()
            self._new_life()
            await pause(self._rng, 4.0)
            raise Out("it died")

    async def _leave(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group.id, member_id=self.member_id, member_epoch=epoch, instance_id=self._instance_id
        )
        self._is_out()
        self._new_life()
        code = error_code((await self.call(request, _VERSION)).error_code)
        self._lab.note(self.name, f"leave {code.name}", str(epoch))
        if code and code not in AGAIN | _FENCED:
            raise Violation(f"{self.name}: it may not leave: {code.name}")


__all__ = ["SESSION_MS", "ConsumerMember"]
