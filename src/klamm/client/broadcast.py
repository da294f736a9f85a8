"""Subscribing without a group: every such consumer reads all partitions of its topics.

Takes the place of a membership: it keeps an eye on the topics, new partitions and with a pattern new topics included,
and hands over what it finds when the application comes for records, callbacks and all. There is nobody to commit for.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from klamm.client.backoff import Backoff
from klamm.client.errors import ClientError, ConsumerMisuse
from klamm.client.membership import GroupMetadata, Offset
from klamm.client.metadata import Topic
from klamm.client.subscription import Callback, Mode, Subscriptions
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster

_logger = logging.getLogger("klamm.client")
_SOON_S: Final = 1.0
"""How long until the next look while a topic that was asked for by name is not there."""


class Broadcast:
    def __init__(self, cluster: Cluster, subscriptions: Subscriptions, wake: Callable[[], None]) -> None:
        config = cluster.config
        self.wants_turn = False
        self.failure: ClientError | None = None
        self._cluster = cluster
        self._subscriptions = subscriptions
        self._wake = wake
        self._found: frozenset[TopicPartition] = frozenset()
        self._changed = asyncio.Event()
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, cluster.env.rng)
        self._watching: asyncio.Task[None] | None = None

    # What the consumer asks.

    def changed(self) -> None:
        self._changed.set()
        if self._watching is None and self._subscriptions.is_subscribed:
            self._watching = asyncio.ensure_future(self._watch())

    async def turn(self) -> None:
        self.wants_turn = False
        subscriptions = self._subscriptions
        if not subscriptions.is_subscribed:
            return
        before = frozenset(subscriptions.partitions)
        gone, new = before - self._found, self._found - before
        if gone:
            await _tell(subscriptions.listener.revoked, gone)
        subscriptions.given(sorted(self._found))
        if new:
            await _tell(subscriptions.listener.assigned, new)
        self._wake()

    async def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Offset | None]:
        return dict.fromkeys(places)

    async def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        _refuse()

    def commit_soon(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        _refuse()

    def metadata(self) -> GroupMetadata:
        _refuse()

    async def close(self, timeout_ms: int | None = None, *, commit: bool = True) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,))
            self._watching = None

    # Keeping an eye on the topics.

    async def _watch(self) -> None:
        while True:
            self._changed.clear()
            try:
                wait_s = await self._look()
                self._backoff.reset()
            except ClientError as error:
                if not error.retriable:
                    self.failure = error
                    self._wake()
                    return
                _logger.debug("Looking for topics: %s", error)
                wait_s = self._backoff.next_s()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _look(self) -> float:
        """Once. How long it is good for."""
        subscriptions = self._subscriptions
        if not subscriptions.is_subscribed:
            return self._cluster.config.metadata_max_age_ms / 1000
        topics, listener = subscriptions.topics, subscriptions.listener
        if subscriptions.mode is Mode.PATTERN:
            found = await self._matching(subscriptions.pattern or "")
        else:
            asked = await self._cluster.metadata(sorted(topics), create=self._cluster.config.allow_auto_create_topics)
            found = [topic for topic in asked.topics.values() if not topic.error]
        if (topics, listener) == (subscriptions.topics, subscriptions.listener):
            self._found = frozenset(TopicPartition(topic.name, index) for topic in found for index in topic.partitions)
            if self._found != frozenset(subscriptions.partitions):
                self.wants_turn = True
                self._wake()
        missing = len(topics) > len(found)
        return _SOON_S if missing else self._cluster.config.metadata_max_age_ms / 1000

    async def _matching(self, pattern: str | re.Pattern[str]) -> list[Topic]:
        """A pattern has to match the whole name, as with Java's consumer."""
        compiled = re.compile(pattern)
        hide_internal = self._cluster.config.exclude_internal_topics
        found = (await self._cluster.metadata()).topics.values()
        return [
            topic
            for topic in found
            if compiled.fullmatch(topic.name) and not topic.error and not (hide_internal and topic.internal)
        ]


def _refuse() -> NoReturn:
    raise ConsumerMisuse("Offsets are committed for a group, and this consumer has no group_id.", "Give it one.")


async def _tell(callback: Callback | None, places: Iterable[TopicPartition]) -> None:
    if callback is not None:
        result = callback(sorted(places))
        if inspect.isawaitable(result):
            await result
