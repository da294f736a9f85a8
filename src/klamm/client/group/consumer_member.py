"""A member of a group of the consumer protocol (KIP-848) at work: heartbeats, and beside them the way to the target.

The coordinator assigns; each heartbeat may bring another target. Getting there may have to wait for the application,
heartbeats never do. When the member is there, it says so with a heartbeat at once: others wait for what it gave up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from klamm.client.cluster import Cluster
from klamm.client.errors import BrokerSaid, ClientError, UnsupportedVersion, error_code
from klamm.client.group.consumer import CLIENT_NAMES_ITSELF, ConsumerMember, Terms, Wish, resolve
from klamm.client.group.member import GroupMember, shown
from klamm.client.group.verdict import Verdict
from klamm.client.membership import GroupMetadata
from klamm.client.nodes import Lane
from klamm.client.subscription import Mode, Subscriptions
from klamm.core.ids import TopicPartition, uuid_text
from klamm.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

FIRST_INTERVAL_MS: Final = 5_000
"""Until the coordinator has said how often it wants to hear of us."""
NAMES_AGAIN_S: Final = 0.5
"""After how long to look again for the name of a topic that was assigned and is not known."""

log = logging.getLogger("klamm.client")


class Modern(GroupMember):
    def __init__(self, cluster: Cluster, subscriptions: Subscriptions, wake: Callable[[], None]) -> None:
        super().__init__(cluster, subscriptions, wake)
        config = self._config
        terms = Terms(
            config.group_id,
            config.group_instance_id or None,
            config.max_poll_interval_ms,
            config.client_rack or None,
            config.group_remote_assignor or None,
        )
        self._member = ConsumerMember(terms, uuid_text(cluster.env.uuid()), FIRST_INTERVAL_MS)
        self._topics: frozenset[str] = frozenset()
        self._looked_at: float | None = None
        """When the topics were looked up; None: they have to be, before the next heartbeat."""
        self._reconciling: asyncio.Task[None] | None = None

    def metadata(self) -> GroupMetadata:
        member = self._member
        return GroupMetadata(
            self._config.group_id, member.epoch, member.member_id, self._config.group_instance_id or None
        )

    def _is_member(self) -> bool:
        return self._member.is_in

    def _subscription_changed(self) -> None:
        self._looked_at = None
        self._news.set()

    async def _say_goodbye(self, why: str) -> None:
        try:
            if self._member.may_leave:
                await self._coordinator.ask_once(self._member.leave())
        finally:
            self._member.reset()

    async def _belong(self) -> None:
        try:
            if not self._member.is_in:  # it left, and what it had with it
                await self._handover.lose(self._handover.owned)
            while True:
                self._news.clear()
                try:
                    fine = await self._beat()
                except ClientError as error:
                    if not error.retriable:
                        raise
                    log.info("A heartbeat in group %s failed: %s", self._config.group_id, error)
                    await asyncio.sleep(self._backoff.next_s())
                    continue
                if fine:
                    self._backoff.reset()
                    self._start_reconciling()
                    await self._nap(self._member.interval_ms / 1000)
        finally:
            await self._stop_reconciling()
            self._member.unanswered()

    async def _nap(self, limit_s: float) -> None:
        if self._member.has_news:
            return
        try:
            async with asyncio.timeout(limit_s):
                await self._news.wait()
        except TimeoutError:
            pass

    # Heartbeats.

    async def _beat(self) -> bool:
        """Whether all is well; if not, another one is due at once. Raises what a pause may help against."""
        version = await self._version()
        request = self._member.heartbeat(await self._wish(version), version)
        try:
            answer = await self._coordinator.ask_once(request, version=version, lane=Lane.GROUP)
        except ClientError:
            self._member.unanswered()
            raise
        verdict = self._member.answered(request, answer)
        if verdict is Verdict.FINE:
            return True
        if verdict is Verdict.OUT:
            log.warning("Group %s went on without this member; it joins again.", self._config.group_id)
            await self._stop_reconciling()
            await self._handover.lose(self._handover.owned)
            return False
        if verdict is Verdict.ELSEWHERE:
            self._coordinator.forget()
        error = BrokerSaid(error_code(answer.error_code), f"group {self._config.group_id}", answer.error_message)
        error.retriable = True
        raise error

    async def _version(self) -> int:
        try:
            return await self._coordinator.version(ConsumerGroupHeartbeatRequest)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(error.text, "Use group.protocol=classic with this cluster.") from None

    async def _wish(self, version: int) -> Wish:
        """A pattern that is text is for the broker. What is compiled is looked up here, now and then."""
        subscribed = self._subscriptions
        by_pattern = subscribed.mode is Mode.PATTERN
        if by_pattern and isinstance(subscribed.pattern, str) and version >= CLIENT_NAMES_ITSELF:
            return Wish(frozenset(), subscribed.pattern)
        now = self._cluster.env.clock.monotonic()
        looked_at = self._looked_at
        if looked_at is None or (by_pattern and now - looked_at > self._config.metadata_max_age_ms / 1000):
            self._topics = await self._interest.topics()
            self._looked_at = now
        return Wish(self._topics)

    # The way to the target.

    def _start_reconciling(self) -> None:
        if self._reconciling is None and self._member.is_on_its_way:
            self._reconciling = asyncio.ensure_future(self._reconcile())
            self._reconciling.add_done_callback(self._reconciled)

    async def _stop_reconciling(self) -> None:
        if (task := self._reconciling) is not None:
            task.cancel()
            await asyncio.wait((task,))

    def _reconciled(self, task: asyncio.Task[None]) -> None:
        self._reconciling = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(ClientError(f"The member of group {self._config.group_id} broke: {error!r}."))
            raise error  # to the loop's handler: this is a bug of ours

    async def _reconcile(self) -> None:
        while self._member.is_on_its_way:
            try:
                done = await self._step()
            except ClientError as error:
                if not error.retriable:
                    self._fail(error)
                    return
                log.info("Group %s: the assignment is not taken over yet: %s", self._config.group_id, error)
                done = False
            if not done:
                await asyncio.sleep(NAMES_AGAIN_S)

    async def _step(self) -> bool:
        """As near to the target as names of topics are known. Whether they all are: a topic may be too new for the
        broker that was asked."""
        member = self._member
        assert member.target is not None
        names = await self._interest.names({topic_id for topic_id, _ in member.target})
        known, unknown = resolve(member.target, names)
        if member.is_news(known):
            places = {TopicPartition(names[topic_id], partition) for topic_id, partition in known}
            log.info("Group %s, epoch %d: assigned %s.", self._config.group_id, member.epoch, shown(places))
            await self._handover.revoke(self._handover.owned - places)
            await self._handover.adopt(places)
            member.reached(known)
            self._news.set()
        return not unknown
