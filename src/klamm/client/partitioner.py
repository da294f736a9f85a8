"""Which partition a record goes to.

- by default: by its key, as the Java client does; without one, to the partition that is being filled. When its batch is
  full, or as many bytes as make a batch have gone there, another one is chosen at random (KIP-480); the shorter a
  partition's queue, the likelier it is (KIP-794), so that slow brokers get less;
- `sticky`: the same, but each new batch goes to another partition, and all are as likely;
- `round_robin`: one after the other, keys or not;
- a function of the key, all partitions and those that have a leader, as in kafka-python and aiokafka.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random  # noqa: TID251 - the type; instances come from the environment
from typing import TYPE_CHECKING, Protocol

from klamm.client.batches import Batch, Queue
from klamm.client.errors import BrokerSaid, ConfigError
from klamm.client.metadata import Topic
from klamm.core.env import Buffer
from klamm.core.errors import ErrorCode
from klamm.records.kernel import murmur2

if TYPE_CHECKING:
    from klamm.client.config import ClientConfig

Choice = Callable[[Buffer | None, Sequence[int], Sequence[int]], int]
"""`choice(key, partitions, available)` is one of the partitions."""
IsStalled = Callable[[int], bool]
"""Whether this broker has taken nothing for longer than partitioner.availability.timeout.ms."""


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def checked(topic: Topic, partition: int) -> int:
    """The partition that the caller chose, if there is one."""
    if partition in topic.partitions:
        return partition
    there = f"there is no partition {partition}; it has {partitions_of(topic)}"
    error = BrokerSaid(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name, there)
    error.topic, error.partition = topic.name, partition
    raise error


def partitions_of(topic: Topic) -> str:
    """Which there are, in words."""
    last = len(topic.partitions) - 1
    return f"the partitions 0 to {last}" if last else "only partition 0"


class Route:
    """A topic with the queues of its partitions, in their order, and what a partitioner has to remember of it."""

    __slots__ = ("batch", "current", "produced", "queues", "topic", "turn")

    def __init__(self, topic: Topic, queues: list[Queue]) -> None:
        self.topic = topic
        self.queues = queues
        self.current: Queue | None = None  # where records without a key go
        self.batch: Batch | None = None  # the last one that was begun there
        self.produced = 0  # bytes in the batches before it, since it became the current one
        self.turn = -1

    def available(self) -> list[int]:
        return [index for index, partition in self.topic.partitions.items() if partition.leader >= 0]


class Partitioner(Protocol):
    by_key: bool
    """Whether keys go where `partition_for_key` says."""
    each: bool
    """Whether every record is a choice of its own. If not, those without a key that counts fill batch after batch."""

    def pick(self, route: Route, key: Buffer | None) -> Queue:
        """Where the next record goes."""

    def begin(self, route: Route, queue: Queue, key: Buffer | None) -> Queue:
        """The queue that was picked has no batch with room for it: where one should be begun."""

    def begun(self, route: Route, batch: Batch, key: Buffer | None) -> None:
        """That is where it was begun."""


class Default:
    def __init__(
        self, rng: Random, batch_size: int, is_stalled: IsStalled, *, ignore_keys: bool = False, adaptive: bool = True
    ) -> None:
        self.by_key = not ignore_keys
        self.each = False
        self._rng = rng
        self._batch_size = batch_size
        self._is_stalled = is_stalled
        self._adaptive = adaptive

    def pick(self, route: Route, key: Buffer | None) -> Queue:
        if key is not None and self.by_key:
            return route.queues[(murmur2(key) & 0x7FFFFFFF) % len(route.queues)]
        return route.current or self._move_on(route)

    def begin(self, route: Route, queue: Queue, key: Buffer | None) -> Queue:
        if key is not None and self.by_key:
            return queue
        if route.batch is not None:
            route.produced += route.batch.size if route.batch is queue.open else route.batch.payload_bytes
            route.batch = None
        # One that is full, or enough in those that did not have the time to get full.
        if queue.open is not None or route.produced >= self._batch_size:
            return self._move_on(route)
        return queue

    def begun(self, route: Route, batch: Batch, key: Buffer | None) -> None:
        if key is None or not self.by_key:
            route.batch = batch

    def _move_on(self, route: Route) -> Queue:
        partitions = route.topic.partitions
        led = route.available()
        ready = [index for index in led if not self._is_stalled(partitions[index].leader)] or led
        chosen = self._choose(route, ready or list(partitions))
        route.current, route.batch, route.produced = route.queues[chosen], None, 0
        return route.current

    def _choose(self, route: Route, partitions: list[int]) -> int:
        if len(partitions) == 1:
            return partitions[0]
        if not self._adaptive:
            return self._rng.choice(partitions)
        lengths = [len(route.queues[index].waiting) for index in partitions]
        longest = max(lengths)
        return self._rng.choices(partitions, [longest + 1 - length for length in lengths])[0]


class Sticky(Default):
    """Each batch to another partition than the one before it, where there is one (KIP-480)."""

    def begin(self, route: Route, queue: Queue, key: Buffer | None) -> Queue:
        if key is not None and self.by_key:
            return queue
        return queue if route.batch is None else self._move_on(route)

    def _choose(self, route: Route, partitions: list[int]) -> int:
        before = None if route.current is None else route.current.place.partition
        return self._rng.choice([index for index in partitions if index != before] or partitions)


class RoundRobin:
    by_key = False
    each = True

    def pick(self, route: Route, key: Buffer | None) -> Queue:
        route.turn += 1
        available = route.available() or list(route.topic.partitions)
        return route.queues[available[route.turn % len(available)]]

    def begin(self, route: Route, queue: Queue, key: Buffer | None) -> Queue:
        return queue

    def begun(self, route: Route, batch: Batch, key: Buffer | None) -> None:
        pass


class Custom(RoundRobin):
    def __init__(self, choice: Choice) -> None:
        self._choice = choice

    def pick(self, route: Route, key: Buffer | None) -> Queue:
        chosen = self._choice(key, list(route.topic.partitions), route.available())
        return route.queues[checked(route.topic, chosen)]


def partitioner(given: str | Choice | None, config: ClientConfig, rng: Random, is_stalled: IsStalled) -> Partitioner:
    """The one that a name, a class of Java's or a function stands for."""
    if callable(given):
        return Custom(given)
    name = (given or config.partitioner_class).rpartition(".")[2]
    ignore_keys, adaptive = config.partitioner_ignore_keys, config.partitioner_adaptive_partitioning_enable
    if name in ("", "default"):
        return Default(rng, config.batch_size, is_stalled, ignore_keys=ignore_keys, adaptive=adaptive)
    if name in ("sticky", "UniformStickyPartitioner", "DefaultPartitioner"):
        ignore_keys = ignore_keys or name == "UniformStickyPartitioner"
        return Sticky(rng, config.batch_size, is_stalled, ignore_keys=ignore_keys)
    if name in ("round_robin", "RoundRobinPartitioner"):
        return RoundRobin()
    raise ConfigError(
        f"partitioner.class={name} is not known.", "Choose default, sticky or round_robin, or give a function."
    )
