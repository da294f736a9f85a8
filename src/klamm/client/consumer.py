"""Reading records.

    async with Consumer("greetings", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
        async for record in consumer:
            print(record.topic, record.partition, record.offset, record.value)

A consumer belongs to one event loop, and one task reads from it at a time. It is the face of four parts: `subscription`
knows what is read and how far, `intake` fetches, `places` finds out where to begin, and a `membership` talks to the
group. What has not been taken yet waits as the broker sent it and is bounded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from klamm.client.cluster import Cluster
from klamm.client.config import ClientConfig
from klamm.client.errors import Closed, ConsumerMisuse
from klamm.client.membership import Membership, Offset
from klamm.client.reset import EARLIEST_RESET, LATEST_RESET, ResetPolicy
from klamm.client.subscription import Callback, Listener, Subscriptions
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from klamm.client.membership import GroupMetadata
    from klamm.core.env import Env


class Consumer:
    """Options are Kafka's, as keyword arguments with underscores, or with dots in `config`."""

    def __init__(
        self,
        *topics: str,
        config: Mapping[str, object] | None = None,
        env: Env | None = None,
        **options: Any,
    ) -> None:
        self.config = ClientConfig.from_options(config, options)
        self.subscriptions = Subscriptions(ResetPolicy.parse(self.config.auto_offset_reset))
        if topics:
            self.subscriptions.subscribe(topics, Listener())
        self._env = env
        self._own_env = env is None
        self._cluster: Cluster | None = None
        self._group: Membership | None = None
        self._news = asyncio.Event()

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect, and join the group if topics are subscribed to. `NotReachable` if no broker is to be found."""
        if self._env is None:
            from klamm.core.env.real import real_env

            self._env = real_env()
        self._cluster = await Cluster.connect(self.config, self._env)
        if self.config.group_id:
            from klamm.client.group import member_of

            self._group = member_of(self._cluster, self.subscriptions, self._news.set)
            self._group.changed()

    async def close(self) -> None:
        """Leave the group, and end. Positions are committed first if that is automatic."""
        if self._group is not None:
            await self._group.close()
        if self._cluster is not None:
            await self._cluster.close()
        if self._own_env and self._env is not None:
            self._env.executor.close()
        self._group = self._cluster = None

    # What is read.

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Share these topics with the other members of the group, in place of what was subscribed to before. Callbacks
        get lists of partitions, and are awaited if they can be."""
        listener = Listener(on_assigned, on_revoked, on_lost)
        if pattern is not None:
            self.subscriptions.subscribe_pattern(pattern, listener)
        else:
            self.subscriptions.subscribe([topics] if isinstance(topics, str) else topics, listener)
        self._changed()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions, and only these, without sharing them with anybody."""
        self.subscriptions.assign(partitions)
        self._changed()

    def unsubscribe(self) -> None:
        self.subscriptions.unsubscribe()
        self._changed()

    def _changed(self) -> None:
        if self._group is not None:
            self._group.changed()
        self._news.set()

    def assignment(self) -> set[TopicPartition]:
        return set(self.subscriptions.partitions)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give out nothing of these until `resume`; positions stay."""
        self.subscriptions.pause(partitions)

    def resume(self, *partitions: tuple[str, int]) -> None:
        self.subscriptions.resume(partitions)

    def paused(self) -> set[TopicPartition]:
        return self.subscriptions.paused()

    # Where.

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        self.subscriptions.seek(partition, offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Of these partitions, or of all. The offset is looked up in the background."""
        self._reset(partitions, EARLIEST_RESET)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        self._reset(partitions, LATEST_RESET)

    def _reset(self, partitions: Iterable[tuple[str, int]], policy: ResetPolicy) -> None:
        for place in list(partitions) or list(self.subscriptions.partitions):
            self.subscriptions.reset(place, policy)

    # Commits.

    def _member(self) -> Membership:
        if self._cluster is None:
            raise Closed("This consumer is not open.", "Use it in an `async with` block, or call `start` first.")
        if self._group is None:
            raise ConsumerMisuse("Offsets are committed for a group, and this consumer has no group_id.")
        return self._group

    async def commit(self, offsets: Mapping[tuple[str, int], int | Offset] | None = None) -> None:
        """Commit these offsets (of the next records to read), or all positions, and wait for it."""
        await self._member().commit(self._to_commit(offsets))

    def commit_soon(self, offsets: Mapping[tuple[str, int], int | Offset] | None = None) -> None:
        """The same without waiting; a failure is logged only."""
        self._member().commit_soon(self._to_commit(offsets))

    def _to_commit(self, offsets: Mapping[tuple[str, int], int | Offset] | None) -> dict[TopicPartition, Offset]:
        if offsets is None:
            return {place: Offset(*at) for place, at in self.subscriptions.consumed().items()}
        return {TopicPartition(*place): at if isinstance(at, Offset) else Offset(at) for place, at in offsets.items()}

    async def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, Offset | None]:
        """What the group has committed of these, or of all that are assigned."""
        places = [TopicPartition(*place) for place in partitions] or list(self.subscriptions.partitions)
        return await self._member().committed(places)

    def group_metadata(self) -> GroupMetadata:
        """For `Producer.send_offsets`."""
        return self._member().metadata()
