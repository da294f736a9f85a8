"""Reading records.

    async with Consumer("greetings", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
        async for record in consumer:
            print(record.topic, record.partition, record.offset, record.value)

A consumer belongs to one event loop, and one task reads from it at a time. It is the face of four parts: `subscription`
knows what is read and how far, `intake` fetches, `places` finds out where to begin, and a `membership` talks to the
group. What has not been taken yet waits as the broker sent it and is bounded.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from klamm.client.cluster import Cluster
from klamm.client.config import ClientConfig
from klamm.client.deserializing import AnyDeserializer, Deserializing
from klamm.client.errors import Closed, TimedOut
from klamm.client.membership import Membership, Offset
from klamm.client.offsets import EARLIEST, LATEST
from klamm.client.reading import Chunk, Reading
from klamm.client.reset import EARLIEST_RESET, LATEST_RESET, ResetPolicy
from klamm.client.subscription import Callback, Listener, Subscriptions
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from klamm.client.cursor import Rest
    from klamm.client.membership import GroupMetadata
    from klamm.client.metadata import Partition, Topic
    from klamm.client.offsets import OffsetFound
    from klamm.core.env import Env
    from klamm.records.consuming import ConsumerRecord


class Consumer:
    """Options are Kafka's, as keyword arguments with underscores, or with dots in `config`."""

    def __init__(
        self,
        *topics: str,
        config: Mapping[str, object] | None = None,
        env: Env | None = None,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        **options: Any,
    ) -> None:
        """Read these topics (or what `subscribe` and `assign` say later). Deserializers: see `deserializing`."""
        self.config = ClientConfig.from_options(config, options)
        self.subscriptions = Subscriptions(ResetPolicy.parse(self.config.auto_offset_reset))
        if topics:
            self.subscriptions.subscribe(topics, Listener())
        self._reading = Reading(self.subscriptions, Deserializing.of(key_deserializer, value_deserializer))
        self._env = env
        self._own_env = env is None
        self._cluster: Cluster | None = None
        self._group: Membership | None = None

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Whoever breaks off in the middle of its work has not done what it was given last: that comes again.
        await self._end(None, commit=kind is None or self._reading.is_done)

    async def start(self) -> None:
        """Connect, and join the group if topics are subscribed to. `NotReachable` if no broker is to be found."""
        if self._reading.is_closed:
            raise Closed("This consumer was closed.", "Make another one.")
        if self._env is None:
            from klamm.core.env.real import real_env

            self._env = real_env()
        try:
            self._cluster = await Cluster.connect(self.config, self._env)
        except BaseException:
            self._close_env()  # so that it can be tried again
            raise
        self._group = self._join(self._cluster)
        self._reading.start(self._cluster, self._group)
        self._changed()

    def _join(self, cluster: Cluster) -> Membership:
        if self.config.group_id:
            from klamm.client.group import member_of

            return member_of(cluster, self.subscriptions, self._reading.changed)
        from klamm.client.broadcast import Broadcast

        return Broadcast(cluster, self.subscriptions, self._reading.changed)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Leave the group, and end. Positions are committed first if that is automatic. Brokers are waited for no
        longer than `timeout_ms`, by default 10 s in all. (At the end of an `async with` block that an exception has
        left, nothing is committed, unless the consumer was just being asked for records.)"""
        await self._end(timeout_ms, commit=True)

    async def _end(self, timeout_ms: int | None, *, commit: bool) -> None:
        try:
            if self._group is not None:
                await self._group.close(timeout_ms, commit=commit)  # callbacks may still use the consumer
        finally:
            self._group = None
            await self._reading.close()
            if self._cluster is not None:
                await self._cluster.close()
            self._close_env()
            self._cluster = None

    def _close_env(self) -> None:
        if self._own_env and self._env is not None:
            self._env.executor.close()
            self._env = None

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
        self._reading.changed()

    def assignment(self) -> set[TopicPartition]:
        return set(self.subscriptions.partitions)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give out nothing of these until `resume`; positions stay."""
        self.subscriptions.pause(partitions)
        self._reading.changed()

    def resume(self, *partitions: tuple[str, int]) -> None:
        self.subscriptions.resume(partitions)
        self._reading.changed()

    def paused(self) -> set[TopicPartition]:
        return self.subscriptions.paused()

    # Records.

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Ends when the consumer is closed."""
        try:
            record = self._reading.quick()
            return record if record is not None else await self.getone()
        except Closed:
            if self._reading.is_closed:
                raise StopAsyncIteration from None
            raise

    async def getone(self) -> ConsumerRecord:
        """The next record, of whichever partition; waits until there is one."""
        record = await self._reading.one()
        assert record is not None  # without a time limit it comes or raises
        return record

    async def getmany(
        self, max_records: int | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What there is, up to `max_records` (by default `max_poll_records`). If there is nothing it waits: until there
        is something, or for as long as `timeout_ms` says; then the answer is empty."""
        limit = self.config.max_poll_records if max_records is None else max_records
        return await self._reading.many(limit, _seconds(timeout_ms))

    async def batches(self, max_records: int | None = None) -> AsyncIterator[Chunk]:
        """Records in lists, each of one partition, as they come: `async for batch in consumer.batches()`."""
        limit = self.config.max_poll_records if max_records is None else max_records
        while (chunk := await self._reading.chunk(limit)) is not None:
            yield chunk

    async def undecoded(self) -> AsyncIterator[Rest]:
        """What brokers sent, batch by batch, for those who decode it in their own way. Taking it moves the position."""
        while (rest := await self._reading.rest()) is not None:
            yield rest

    async def arrow(
        self,
        *,
        max_rows: int | None = None,
        headers: bool = False,
        timeout_ms: int | None = None,
        until: Mapping[tuple[str, int], int] | None = None,
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """Records as columns, `max_rows` at a time at most: `async for batch in consumer.arrow()`. See `klamm.arrow`.

        Each record batch holds what has come, of one partition or several. With `timeout_ms` it ends when nothing came
        for so long; with `until`, when the positions of these partitions are at these offsets or beyond, at once also
        where there are no records in front of them. (The last record batch may have records beyond.)"""
        from klamm.client.arrow import MAX_BYTES, MAX_ROWS, Columns

        columns = Columns(headers=headers)
        limit = MAX_ROWS if max_rows is None else max_rows
        while await self._reading.pour(columns.table, limit, MAX_BYTES, _seconds(timeout_ms), until):
            yield columns.take()

    # Where.

    def seek(self, partition: tuple[str, int], offset: int | Offset) -> None:
        """Go on from this offset. With the leader epoch that belongs to it (`committed` has it) it is noticed if the
        log was cut there since."""
        at = offset if isinstance(offset, Offset) else Offset(offset)
        self.subscriptions.seek(partition, at.offset, at.leader_epoch)
        self._reading.changed()

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Of these partitions, or of all. The offset is looked up in the background."""
        self._reset(partitions, EARLIEST_RESET)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        self._reset(partitions, LATEST_RESET)

    def _reset(self, partitions: Iterable[tuple[str, int]], policy: ResetPolicy) -> None:
        for place in list(partitions) or list(self.subscriptions.partitions):
            self.subscriptions.reset(place, policy)
        self._reading.changed()

    async def position(self, partition: tuple[str, int]) -> int:
        """The offset of the next record that will be given out; waits until it is known where that is."""
        state = self.subscriptions.state(partition)
        limit_s = self.config.default_api_timeout_ms / 1000
        if not await self._reading.until(lambda: state.offset >= 0, limit_s):
            raise TimedOut(f"There was no position for {state.place} within {limit_s:g} s.")
        return state.offset

    def lag(self, partition: tuple[str, int]) -> int | None:
        """How many offsets there are behind the position; None until something was fetched."""
        state = self.subscriptions.state(partition)
        committed_only = self.config.isolation_level == "read_committed"
        end = state.last_stable_offset if committed_only else state.high_watermark
        return max(0, end - state.offset) if end >= 0 and state.offset >= 0 else None

    def metrics(self) -> dict[str, float]:
        """Totals and gauges by the names that Java's consumer has for them."""
        lags = [lag for place in self.subscriptions.partitions if (lag := self.lag(place)) is not None]
        return {**self._open().metrics(), **self._reading.metrics(), "records-lag-max": max(lags, default=0)}

    async def offsets_for_times(
        self, times_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetFound | None]:
        """For each partition the first record at or after a time; None where there is none."""
        found = await self._open().offsets(times_ms)
        return {place: at if at.offset >= 0 else None for place, at in found.items()}

    async def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The offsets behind the last records; with read_committed, behind the last that can be read."""
        return await self._ends(partitions, LATEST)

    async def _ends(self, partitions: Iterable[tuple[str, int]], which: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, which)
        read_committed = self.config.isolation_level == "read_committed"
        found = await self._open().offsets(wanted, read_committed=read_committed)
        return {place: at.offset for place, at in found.items()}

    # The cluster.

    async def partitions_for(self, topic: str) -> Mapping[int, Partition]:
        """The topic's partitions, with their leaders and replicas. `BrokerSaid` if there is no such topic."""
        return (await self._open().topic(topic)).partitions

    async def topics(self) -> dict[str, Topic]:
        """All topics that this client may see, the brokers' own left out."""
        found = await self._open().metadata()
        return {name: topic for name, topic in found.topics.items() if not topic.internal}

    def _open(self) -> Cluster:
        if self._cluster is None:
            raise Closed("This consumer is not open.", "Use it in an `async with` block, or call `start` first.")
        return self._cluster

    # Commits.

    def _member(self) -> Membership:
        self._open()
        assert self._group is not None
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


def _seconds(timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else timeout_ms / 1000
