"""Which topics a subscription comes to, and how many partitions they have: asked of the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable

from klamm.client.cluster import Cluster
from klamm.client.errors import ConfigError
from klamm.client.subscription import Mode, Subscriptions


class Interest:
    def __init__(self, cluster: Cluster, subscriptions: Subscriptions) -> None:
        self._cluster = cluster
        self._subscriptions = subscriptions

    async def topics(self) -> frozenset[str]:
        """By name; for a pattern those that match it now. What does not exist is asked for so that brokers make it, if
        they do that."""
        subscribed = self._subscriptions
        if subscribed.mode is Mode.PATTERN and subscribed.pattern is not None:
            return await self._matching(_compiled(subscribed.pattern))
        missing = subscribed.topics - self._cluster.known.topics.keys()
        if missing and self._cluster.config.allow_auto_create_topics:
            await self._cluster.metadata(sorted(missing), create=True)
        return subscribed.topics

    async def _matching(self, pattern: re.Pattern[str]) -> frozenset[str]:
        known = await self._cluster.metadata()
        internal_too = not self._cluster.config.exclude_internal_topics
        return frozenset(
            name
            for name, topic in known.topics.items()
            if pattern.fullmatch(name) and (internal_too or not topic.internal) and not topic.error
        )

    async def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each of these has. Those that are not there, or not for us, are left out."""
        wanted = sorted(topics)
        if not wanted:
            return {}
        found = await self._cluster.metadata(wanted)
        return {
            name: max(topic.partitions) + 1
            for name, topic in found.topics.items()
            if topic.partitions and not topic.error
        }

    async def names(self, ids: set[bytes]) -> dict[bytes, str]:
        """The names of topics by their ids, as far as they can be found."""
        found = {topic.id: name for name, topic in self._cluster.known.topics.items()}
        if not ids <= found.keys():
            found |= {topic.id: name for name, topic in (await self._cluster.metadata()).topics.items()}
        return {topic_id: found[topic_id] for topic_id in ids & found.keys()}


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    if not isinstance(pattern, str):
        return pattern
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"The pattern {pattern!r} is no regular expression: {error}.") from None
