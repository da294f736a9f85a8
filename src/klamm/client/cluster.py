"""A cluster as its users see it: ask any broker, the controller or a certain one; know who leads what.

    async with await Cluster.connect(config, env) as cluster:
        print((await cluster.metadata()).topics)

Requests are sent once. What is worth retrying (metadata, looking up offsets, fetching, producing) retries above this,
where it is known to be safe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from klamm import wire
from klamm.client import metadata as meta
from klamm.client.config import ClientConfig
from klamm.client.connection import Connection
from klamm.client.errors import BrokerSaid, ClientError, ConnectionLost, NotReachable, UnsupportedVersion, error_code
from klamm.client.metadata import Broker, Leader, Metadata, Partition, Topic
from klamm.client.nodes import Lane, Nodes
from klamm.core.env import Env
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from klamm.client.fetcher import Fetcher
    from klamm.client.offsets import OffsetFound, Wanted
    from klamm.client.sender import OnBatch, Sender

NOBODY_THERE: Final = "Is a broker running there?"
CONTROLLER: Final = -(1 << 31)
"""Stands for the broker that is the controller, or passes requests on to it."""

log = logging.getLogger("klamm.client")


class Cluster:
    def __init__(self, config: ClientConfig, env: Env) -> None:
        """Knows nothing yet; `connect` makes one that does."""
        self.config = config
        self.env = env
        self.nodes = Nodes(env, config)
        self._timeout_s = config.request_timeout_ms / 1000
        self._known = meta.EMPTY
        self._known_at = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._in_use: set[str] = set()  # the topics that are kept track of

    @classmethod
    async def connect(cls, config: ClientConfig, env: Env) -> Cluster:
        """Find the cluster through `bootstrap.servers`, each tried once. `NotReachable` names them all and why."""
        for warning in config.warnings:
            log.warning("%s", warning if warning.endswith("?") else f"{warning}.")
        cluster = cls(config, env)
        try:
            found = await cluster.metadata(())
        except BaseException:
            await cluster.close()
            raise
        brokers = ", ".join(str(broker) for broker in found.brokers.values())
        log.debug("Found the cluster %s; its brokers: %s.", found.cluster_id, brokers)
        return cluster

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait((self._refreshing,))
        await self.nodes.close()

    # Requests.

    async def request(
        self,
        message: wire.Request,
        *,
        node: int | None = None,
        version: int | None = None,
        timeout_ms: int | None = None,
        lane: Lane = Lane.MAIN,
    ) -> Any:
        """Ask one broker (any, the `CONTROLLER`, or this one) and wait for the answer, which is of the response class
        that belongs to the message. The version is the highest that both sides have, unless one is given."""
        connection = await self.connection(node, lane)
        timeout_s = self._timeout_s if timeout_ms is None else timeout_ms / 1000
        return await connection.request(message, version=version, timeout_s=timeout_s)

    async def version(self, message: type[wire.Request], *, node: int | None = None) -> int:
        """The version that `request` would use, for messages that have to be put differently in different ones."""
        return (await self.connection(node)).versions.best(message)

    async def connection(self, node: int | None = None, lane: Lane = Lane.MAIN) -> Connection:
        if node == CONTROLLER:
            node = self._known.controller_id
        if node is not None and node >= 0:
            try:
                return await self.nodes.connection(node, lane)
            except NotReachable as error:
                raise NotReachable(error.attempts, error.hint or self._advertised_hint(node)) from None
        return await self._any_connection(lane)

    async def _any_connection(self, lane: Lane) -> Connection:
        attempts: list[tuple[str, str]] = []
        hint = ""
        for node in self.nodes.candidates():
            try:
                return await self.nodes.connection(node, lane)
            except NotReachable as error:
                attempts += [attempt for attempt in error.attempts if attempt not in attempts]
                hint = hint or error.hint
        raise NotReachable(attempts, hint or (NOBODY_THERE if attempts else "Say where, with bootstrap_servers."))

    def _advertised_hint(self, node: int) -> str:
        if self.nodes.address(node) in self.config.bootstrap_servers:
            return "Is the broker still running?"
        return (
            f"The cluster gave this address for broker {node}: if it cannot be reached from here, "
            "advertised.listeners of that broker should name one that can."
        )

    # Metadata.

    @property
    def known(self) -> Metadata:
        """What was last heard of the brokers, and of the topics in use."""
        return self._known

    async def metadata(self, topics: Sequence[str] | None = None, *, create: bool = False) -> Metadata:
        """Ask now. None: all topics; an empty list: brokers only. What is wrong with a topic is in its `error`.
        With `create`, a topic that does not exist is made if the brokers allow it, and is there a moment later."""
        answer = await self._ask_anybody(meta.question(topics, create=create))
        if answer.error_code:
            raise BrokerSaid(error_code(answer.error_code), "metadata")
        found = meta.read_answer(answer)
        if not found.brokers:
            raise ConnectionLost("The cluster lists no brokers; it may still be starting.")
        self._learn(found)
        return found

    async def _ask_anybody(self, message: MetadataRequest) -> MetadataResponse:
        """As often as there are brokers: one may have gone without our noticing, and asking again does no harm."""
        for _ in self.nodes.candidates():
            connection = await self._any_connection(Lane.MAIN)
            if connection.versions.best(MetadataRequest) < meta.OLDEST_VERSION:
                raise UnsupportedVersion(f"The broker at {connection.address} is too old: Kafka 0.11 is the least.")
            try:
                answer: MetadataResponse = await connection.request(message, timeout_s=self._timeout_s)
                return answer
            except ConnectionLost:
                continue
        answer = await self.request(message)
        return answer

    def _learn(self, found: Metadata) -> None:
        used = {name: topic for name, topic in found.topics.items() if name in self._in_use}
        self._known = meta.merge(self._known, replace(found, topics=used))
        self._known_at = self.env.clock.monotonic()
        self.nodes.update(found.brokers)

    def learn_leader(self, place: TopicPartition, leader: Leader, brokers: Mapping[int, Broker]) -> bool:
        """What an answer said in passing; see `metadata.with_leader`. Whether it is new."""
        before, self._known = self._known, meta.with_leader(self._known, place, leader, brokers)
        if self._known is before:
            return False
        self.nodes.update(self._known.brokers)
        return True

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Ask again about all topics in use, to which these belong from now on. Callers at the same time share one
        request."""
        self._in_use.update(topics)
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        await asyncio.sleep(0)  # so that all who need it in this turn of the loop are in
        await self.metadata(sorted(self._in_use))

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # looked at, should nobody wait any more

    def forget(self, topics: Iterable[str]) -> None:
        """These are not in use any longer."""
        gone = set(topics)
        self._in_use -= gone
        if gone & self._known.topics.keys():
            kept = {name: topic for name, topic in self._known.topics.items() if name not in gone}
            self._known = replace(self._known, topics=kept)

    def is_stale(self) -> bool:
        """Whether what is known is older than metadata.max.age.ms."""
        return self.env.clock.monotonic() - self._known_at > self.config.metadata_max_age_ms / 1000

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """The topic as it was last heard of; asked for if it never was. It is in use from now on. `BrokerSaid` if there
        is none."""
        return (await self.topics([name], create=create))[name]

    async def topics(self, names: Iterable[str], *, create: bool = False) -> dict[str, Topic]:
        """The same for several, with one request for all that are not known."""
        wanted = list(names)
        self._in_use.update(wanted)
        unknown = [name for name in wanted if name not in self._known.topics]
        asked = (await self.metadata(unknown, create=create)).topics if unknown else {}
        found = {name: asked.get(name) or self._known.topics.get(name) for name in wanted}
        for name, topic in found.items():
            if topic is None or topic.error:
                raise BrokerSaid(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error, name)
        return {name: topic for name, topic in found.items() if topic is not None}

    def leader(self, topic: str, partition: int) -> Partition | None:
        """The partition as last heard of, if it has a leader whose address is known."""
        found = self._known.topics.get(topic)
        if found is None:
            return None
        known = found.partitions.get(partition)
        return known if known is not None and known.leader in self._known.brokers else None

    # What stands on this; each imported when it is first used.

    async def offsets(self, wanted: Wanted, *, read_committed: bool = False) -> dict[TopicPartition, OffsetFound]:
        """For each partition the offset at a time, or with EARLIEST or LATEST one of its ends."""
        from klamm.client.offsets import find_offsets

        return await find_offsets(self, wanted, read_committed=read_committed)

    def sender(self, *, on_batch: OnBatch | None = None) -> Sender:
        """Produce with the options of this cluster's config; see `klamm.client.sender`."""
        from klamm.client.sender import Sender

        return Sender(self, on_batch=on_batch)

    def fetcher(
        self,
        start: Mapping[tuple[str, int], int],
        *,
        end: Mapping[tuple[str, int], int] | None = None,
        on_trouble: Callable[[ClientError], None] | None = None,
    ) -> Fetcher:
        """Read these partitions from these offsets on (up to `end`); see `klamm.client.fetcher`."""
        from klamm.client.fetcher import Fetcher

        return Fetcher(self, start, end=end, on_trouble=on_trouble)

    def metrics(self) -> dict[str, float]:
        """What this client has counted of its connections, by the names that Java's clients have for it."""
        return self.nodes.stats.snapshot()

    @property
    def brokers(self) -> Mapping[int, Broker]:
        return self._known.brokers
