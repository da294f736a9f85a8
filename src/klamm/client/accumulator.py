"""Records that wait to be sent: in one queue for each partition, within buffer.memory.

Takes records one by one (`append`) or in columns (`extend`), chooses their partitions, and begins batches. Pure but for
the clock: nothing is sent and nobody waits here. `on_batch` is called when a batch was begun, which may mean that
another is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klamm.client.batches import Batch, BatchResult, Queue, Share
from klamm.client.budget import Budget
from klamm.client.config import ClientConfig
from klamm.client.delivery import Delivery
from klamm.client.errors import BrokerSaid, ClientError
from klamm.client.metadata import Topic
from klamm.client.partitioner import Partitioner, Route, checked
from klamm.core.env import Buffer, Env
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.batch import header_bytes
from klamm.records.building import NOT_A_RECORD
from klamm.records.kernel import Builder, spread
from klamm.records.record import Headers

MAX_TIMESTAMP_MS: Final = 2**63 - 1
CHUNK_RECORDS: Final = 4096
"""Of columns, so many are taken at a time: everybody else on the loop waits meanwhile, for less than a millisecond."""
SLACK_BYTES: Final = 8 << 20
"""By so much buffer.memory may be exceeded by a chunk that goes to many partitions."""

_new = tuple.__new__  # half the time of calling a NamedTuple

Tell = Callable[[BatchResult], None]


class Columns(NamedTuple):
    """Many records for one topic. What is not None has the length of `values`; one timestamp may stand for all."""

    values: Sequence[Buffer | None]
    keys: Sequence[Buffer | None] | None
    timestamps: Sequence[int] | int
    headers: Sequence[Headers] | None
    partitions: Sequence[int] | None
    tell: Tell

    def row(self, index: int) -> tuple[int, Buffer | None, Buffer | None, Headers | None]:
        """Timestamp, key, value and headers of one."""
        times = self.timestamps
        return (
            times if isinstance(times, int) else times[index],
            None if self.keys is None else self.keys[index],
            self.values[index],
            None if self.headers is None else self.headers[index],
        )


class Accumulator:
    def __init__(self, env: Env, config: ClientConfig, partitioner: Partitioner, on_batch: Callable[[], None]) -> None:
        self.queues: dict[TopicPartition, Queue] = {}
        self.used_at: dict[str, float] = {}  # when a topic's last batch was begun
        self.active: dict[TopicPartition, Queue] = {}  # those that have something to send
        self.memory = Budget(env, "buffer.memory", config.buffer_memory)
        self._clock = env.clock
        self._partitioner = partitioner
        self._on_batch = on_batch
        self._routes: dict[str, Route] = {}
        self._room = config.batch_size - header_bytes
        self._most = config.max_request_size - header_bytes

    def _route(self, topic: Topic) -> Route:
        """Made anew whenever something was heard of the topic."""
        route = self._routes.get(topic.name)
        if route is None or route.topic is not topic:
            places = [TopicPartition(topic.name, index) for index in topic.partitions]
            queues = [self.queues.get(place) or self.queues.setdefault(place, Queue(place)) for place in places]
            before, route = route, Route(topic, queues)
            if before is not None:
                route.turn = before.turn
                if before.current in queues:  # a topic that was made anew may have fewer
                    route.current, route.batch, route.produced = before.current, before.batch, before.produced
            self._routes[topic.name] = route
        return route

    def forget_idle(self, before: float) -> list[str]:
        """Topics without a batch since then. Their queues stay, with the sequences of what was written."""
        busy = {place.topic for place in self.active}
        idle = [topic for topic, at in self.used_at.items() if at < before and topic not in busy]
        for topic in idle:
            del self.used_at[topic]
            self._routes.pop(topic, None)
        return idle

    # One by one.

    def append(
        self,
        topic: Topic,
        value: Buffer | None,
        key: Buffer | None,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        """Where it was put. The caller has seen to it that there is room in `memory`."""
        route = self._routes.get(topic.name)
        if route is None or route.topic is not topic:
            route = self._route(topic)
        if timestamp_ms is None:
            timestamp_ms = self._clock.time_ms()
        elif not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
            raise ClientError(f"A timestamp of {timestamp_ms} ms cannot be: they go from 0 to {MAX_TIMESTAMP_MS}.")
        if partition is not None:
            checked(topic, partition)
        try:
            batch, number = self._put(route, partition, timestamp_ms, key, value, headers)
        except NOT_A_RECORD as error:
            raise not_a_record(topic.name, error) from error
        return _new(Delivery, (batch, number, timestamp_ms))

    def _put(
        self,
        route: Route,
        partition: int | None,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Headers | None,
    ) -> tuple[Batch, int]:
        """The batch and the number of the record in it. (Every record of `send` comes here: no call too many.)"""
        queue = self._partitioner.pick(route, key) if partition is None else route.queues[partition]
        batch = queue.open
        if batch is not None:
            builder = batch.builder
            before = builder.size
            number = builder.append(timestamp_ms, key, value, headers, self._room)
            if number >= 0:
                self.memory.used += builder.size - before
                return batch, number
        if partition is None:
            moved = self._partitioner.begin(route, queue, key)
            if moved is not queue and moved.open is not None:  # keys have begun a batch there
                return self._put(route, moved.place.partition, timestamp_ms, key, value, headers)
            queue = moved
        batch = self._begin(queue, timestamp_ms, key, value, headers)
        if partition is None:
            self._partitioner.begun(route, batch, key)
        return batch, 0

    def _begin(
        self, queue: Queue, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers | None
    ) -> Batch:
        """A batch with its first record, which may be larger than batch.size."""
        builder = Builder()
        if builder.append(timestamp_ms, key, value, headers, self._most) < 0:
            error = BrokerSaid(
                ErrorCode.MESSAGE_TOO_LARGE,
                queue.place.topic,
                f"a record is larger than max.request.size={self._most + header_bytes} allows",
            )
            error.topic, error.partition = queue.place
            raise error
        batch = Batch(queue.place, self._clock.monotonic(), builder)
        queue.begin(batch)
        self.memory.used += builder.size
        self.active[queue.place] = queue
        self.used_at[queue.place.topic] = batch.created
        self._on_batch()
        return batch

    # In columns.

    def chosen(self, topic: Topic, columns: Columns) -> Columns:
        """The same with the partitions of all records, if each of them is a choice of its own."""
        if columns.partitions:
            checked(topic, columns.partitions[0])  # the caller's choice is one for all
        if columns.partitions is not None or not self._partitioner.each:
            return columns
        route = self._route(topic)
        keys = [None] * len(columns.values) if columns.keys is None else columns.keys
        return columns._replace(partitions=[self._partitioner.pick(route, key).place.partition for key in keys])

    def extend(self, topic: Topic, columns: Columns, start: int) -> int:
        """Take records from index `start` on: a chunk of them, or until the memory is used up. The index of the first
        that is left."""
        route = self._route(topic)
        stop = min(start + CHUNK_RECORDS, len(columns.values))
        if self._room * len(route.queues) > SLACK_BYTES:
            stop = self._affordable(columns.values, start, stop)
        touched: dict[Batch, int] = {}
        together = columns.partitions is None and (columns.keys is None or not self._partitioner.by_key)
        try:
            return (self._fill if together else self._spread)(route, columns, start, stop, touched)
        except NOT_A_RECORD as error:
            raise not_a_record(topic.name, error) from error
        finally:
            for batch, first in touched.items():
                count = batch.builder.count - first
                if count:
                    batch.shares.append(Share(columns.tell, first, count))

    def _affordable(self, values: Sequence[Buffer | None], start: int, stop: int) -> int:
        """Where to stop so that there is memory for it, about. (Otherwise that is looked at when a batch is full, and
        large batches of many partitions may take a whole chunk of large records before.)"""
        left = max(self.memory.limit - self.memory.used, SLACK_BYTES)
        for index in range(start, stop):
            value = values[index]
            left -= len(value) if isinstance(value, (bytes, bytearray)) else 0
            if left < 0:
                return index + 1
        return stop

    def _fill(self, route: Route, columns: Columns, start: int, stop: int, touched: dict[Batch, int]) -> int:
        """One batch after the other."""
        values, keys, timestamps, headers, _, _ = columns
        while start < stop and self.memory.has_room:
            batch = self._partitioner.pick(route, None).open
            if batch is not None:
                builder = batch.builder
                touched.setdefault(batch, builder.count)
                before = builder.size
                start = builder.extend(values, keys, timestamps, headers, start, stop, self._room)
                self.memory.used += builder.size - before
            if start < stop:  # it goes elsewhere, or is no record
                batch, number = self._put(route, None, *columns.row(start))
                touched.setdefault(batch, number)
                start += 1
        return start

    def _spread(self, route: Route, columns: Columns, start: int, stop: int, touched: dict[Batch, int]) -> int:
        """Each record to a partition of its own."""
        values, keys, timestamps, headers, partitions, _ = columns
        builders: list[Builder | None] = [None] * len(route.queues)
        for index, queue in enumerate(route.queues):
            if queue.open is not None:
                builders[index] = queue.open.builder
                touched[queue.open] = queue.open.builder.count
        while start < stop and self.memory.has_room:
            start, partition, size = spread(
                builders, values, keys, timestamps, headers, partitions, start, stop, self._room
            )
            self.memory.used += size
            if start < stop:
                batch, number = self._put(route, None if partition < 0 else partition, *columns.row(start))
                touched.setdefault(batch, number)
                builders[batch.place.partition] = batch.builder
                start += 1
        return start


def not_a_record(topic: str, error: Exception) -> ClientError:
    wrong = ClientError(f"{topic}: a record cannot be written: {error}.", "Keys and values are bytes, or None.")
    wrong.topic = topic
    return wrong
