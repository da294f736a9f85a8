"""A member of a classic group at work: rounds of joining and syncing, with heartbeats all the while.

A round: what has to be given up is (everything, unless all assignors are cooperative), JoinGroup, which the coordinator
answers when all members are there, SyncGroup, in which the leader hands in what it decided; then the assignment is
taken over. Heartbeats do not wait for the application, a round does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from klamm.client.assignors import Assignment, resolve
from klamm.client.cluster import Cluster
from klamm.client.errors import BrokerSaid, ClientError, error_code
from klamm.client.group.classic import ClassicMember, Terms
from klamm.client.group.member import LEAST_INTERVAL_S, GroupMember, shown
from klamm.client.group.verdict import Verdict
from klamm.client.membership import GroupMetadata
from klamm.client.nodes import Lane
from klamm.client.subscription import Mode, Subscriptions
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from klamm.wire.messages.k13_leave_group import LeaveGroupRequest

JOIN_GRACE_MS: Final = 5_000
"""What JoinGroup may take beyond the rebalance timeout, which is the coordinator's limit."""
MISSING_TOPIC_S: Final = 1.0
"""How often to look for a topic that somebody subscribes to and that is not there."""

log = logging.getLogger("klamm.client")


class Classic(GroupMember):
    def __init__(self, cluster: Cluster, subscriptions: Subscriptions, wake: Callable[[], None]) -> None:
        super().__init__(cluster, subscriptions, wake)
        config = self._config
        terms = Terms(
            config.group_id,
            config.group_instance_id or None,
            config.session_timeout_ms,
            config.max_poll_interval_ms,
            config.client_rack or None,
        )
        self._member = ClassicMember(terms, resolve(config.partition_assignment_strategy))
        self._why = "a new member"
        self._topics: frozenset[str] = frozenset()
        self._led: dict[str, int] | None = None  # as leader: the topics of all members, and their partitions
        self._led_topics: frozenset[str] = frozenset()

    def metadata(self) -> GroupMetadata:
        member = self._member
        return GroupMetadata(
            self._config.group_id, member.generation, member.member_id, self._config.group_instance_id or None
        )

    def _is_member(self) -> bool:
        return self._member.is_in

    def _subscription_changed(self) -> None:
        self._rejoin("the subscription has changed")

    def _rejoin(self, why: str) -> None:
        self._why = why
        self._news.set()

    async def _say_goodbye(self, why: str) -> None:
        try:
            if self._member.may_leave:
                version = await self._coordinator.version(LeaveGroupRequest)
                await self._coordinator.ask_once(self._member.leave_request(version, why), version=version)
        finally:
            self._member.reset()

    async def _belong(self) -> None:
        heart = asyncio.ensure_future(self._beat())
        try:
            while True:
                self._news.clear()
                if await self._round():
                    self._backoff.reset()
                    await self._stay(heart)
        finally:
            await _end(heart)

    async def _stay(self, heart: asyncio.Task[None]) -> None:
        """Until there is a reason for another round. What ends the heartbeats ends all."""
        waits = [asyncio.ensure_future(self._news.wait()), asyncio.ensure_future(self._watch_topics())]
        try:
            done, _ = await asyncio.wait((heart, *waits), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _end(*waits)

    # A round.

    async def _round(self) -> bool:
        """Whether it came to its end; if not, another one is due at once. Raises what a pause may help against."""
        member = self._member
        member.prepares = True
        topics = self._topics = await self._interest.topics()
        await self._give_up_before(topics)
        answer = await self._join(member.join_request(topics, self._handover.owned, self._why))
        if not self._goes_on(member.joined(answer), answer.error_code):
            return False
        synced = await self._sync(await self._decide(answer))
        if not synced:
            return False
        given = frozenset(member.last)
        log.info("Group %s, generation %d: assigned %s.", self._config.group_id, member.generation, shown(given))
        going = self._handover.owned - given
        await self._handover.revoke(going)
        if not member.is_in:
            return False
        await self._handover.adopt(given)
        if going:
            self._why = "partitions were given up for other members"
        return not going

    async def _give_up_before(self, topics: frozenset[str]) -> None:
        owned = self._handover.owned
        if not self._member.is_in:
            await self._handover.lose(owned)
        elif self._member.cooperative:
            await self._handover.revoke(place for place in owned if place.topic not in topics)
        else:
            await self._handover.revoke(owned)
        if not self._member.is_in:  # thrown out while the application was waited for
            await self._handover.lose(self._handover.owned)

    async def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        limit_ms = max(self._config.request_timeout_ms, request.rebalance_timeout_ms + JOIN_GRACE_MS)
        try:
            answer: JoinGroupResponse = await self._coordinator.ask_once(request, lane=Lane.GROUP, timeout_ms=limit_ms)
        except BaseException:
            self._member.unanswered()
            raise
        return answer

    async def _decide(self, answer: JoinGroupResponse) -> Assignment:
        """What everybody gets, if this member leads; nothing if it does not, or is to leave all as it is (KIP-814)."""
        self._led = None
        members = self._member.members(answer)
        if not members:
            return {}
        try:
            self._led_topics = frozenset().union(*(member.topics for member in members))
            self._led = await self._interest.counts(self._led_topics)
            return {} if answer.skip_assignment else self._member.assignment(members, self._led)
        except BaseException:
            self._member.unanswered()
            raise

    async def _sync(self, assignment: Assignment) -> bool:
        request = self._member.sync_request(assignment)
        limit_ms = max(self._config.request_timeout_ms, self._member.terms.rebalance_timeout_ms + JOIN_GRACE_MS)
        try:
            answer = await self._coordinator.ask_once(request, lane=Lane.GROUP, timeout_ms=limit_ms)
        except BaseException:
            self._member.unanswered()
            raise
        return self._goes_on(self._member.synced(answer), answer.error_code)

    def _goes_on(self, verdict: Verdict, number: int) -> bool:
        """Whether the round does. Raises what has to be waited for."""
        if verdict is Verdict.ELSEWHERE:
            self._coordinator.forget()
        if verdict in (Verdict.AGAIN, Verdict.ELSEWHERE):
            error = BrokerSaid(error_code(number), f"group {self._config.group_id}")
            error.retriable = True
            raise error
        return verdict is Verdict.FINE

    # Beside it.

    async def _beat(self) -> None:
        interval_s = self._config.heartbeat_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            while self._member.beats:
                try:
                    await self._beat_once()
                    break
                except ClientError as error:
                    if not error.retriable:
                        raise
                    log.info("A heartbeat in group %s failed: %s", self._config.group_id, error)
                    await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _beat_once(self) -> None:
        request = self._member.heartbeat_request()
        answer = await self._coordinator.ask_once(request, lane=Lane.GROUP)
        verdict = self._member.heartbeat_answered(request, answer.error_code)
        if verdict is Verdict.REJOIN:
            self._rejoin("the group is rebalancing")
        elif verdict is Verdict.OUT:
            log.warning("Group %s went on without this member; it joins again.", self._config.group_id)
            self._subscriptions.hold(self._handover.owned)
            self._wake()
            if not self._member.prepares:
                self._rejoin("the group went on without this member")
        else:
            self._goes_on(verdict, answer.error_code)

    async def _watch_topics(self) -> None:
        """A pattern that matches other topics now is this member's business; partitions that were added, topics that
        came or went, are the leader's."""
        missing = self._led is not None and len(self._led) < len(self._led_topics)
        while True:
            age_s = max(self._config.metadata_max_age_ms / 1000, LEAST_INTERVAL_S)
            await asyncio.sleep(min(age_s, MISSING_TOPIC_S) if missing else age_s)
            try:
                if self._subscriptions.mode is Mode.PATTERN and await self._interest.topics() != self._topics:
                    self._rejoin("other topics match the pattern")
                elif self._led is not None and await self._interest.counts(self._led_topics) != self._led:
                    self._rejoin("topics or their partitions have changed")
            except ClientError as error:
                log.info("Topics of group %s could not be looked at: %s", self._config.group_id, error)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
