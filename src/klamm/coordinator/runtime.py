"""The coordinators of a broker: which shard a group or a transactional id belongs to, and the life of the shards.

A `Coordinator` runs the partitions of one internal topic that this broker leads. It makes the topic when somebody
first asks for a coordinator. A shard whose log is empty begins when it is first called; the others load in the
background from the start of the broker on. Handlers use `call`:

    def handle(ctx, request):
        return ctx.broker.groups.call(request.group_id, lambda m, reply, now: m.classic.join(reply, now, ...), refuse)

A broker that nobody asks for a coordinator must pay nothing for this: what a shard needs is imported with the first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from klamm.coordinator.counters import Counters
from klamm.coordinator.java_hash import partition_for
from klamm.core.errors import BrokerError, ErrorCode
from klamm.log.results import Rejected

if TYPE_CHECKING:
    from klamm.controller import Controller
    from klamm.coordinator.calls import Call
    from klamm.coordinator.loading import Loaded
    from klamm.coordinator.machine import Machine, Now, Outcome, Producer
    from klamm.coordinator.records import RecordFormat
    from klamm.coordinator.shard import Shard
    from klamm.coordinator.shared import Services
    from klamm.core.env import Env
    from klamm.log.results import Appended
    from klamm.metadata.image import Image
    from klamm.metadata.publisher import Publisher
    from klamm.metadata.replay import Delta
    from klamm.records.record import EndMarker
    from klamm.replica.manager import ReplicaManager
    from klamm.replica.pending import Pending
    from klamm.wire.schema import Response

    M = TypeVar("M", bound=Machine)
else:
    M = TypeVar("M")

LOADS_AT_A_TIME: Final = 2
"""Shards that read their logs: each holds some megabytes at most, and all of them share the loop."""
IMPORT_DELAY_S: Final = 0.002
"""After the topic was created: the answer has left by then, and the client connects to its coordinator."""
MAX_KEYS: Final = 10_000
"""Keys whose partition is remembered: hashing one as Java does takes longer than all else on the way to its shard."""

_logger = logging.getLogger(__name__)


class InternalTopic(NamedTuple):
    """What a coordinator keeps its records in. The options are those it is created with, unless somebody has created it
    by hand."""

    name: str
    partitions: str
    replication: str
    segment_bytes: str
    known: Callable[[], RecordFormat]
    min_isr: str | None = None


def _group_records() -> RecordFormat:
    from klamm.coordinator.records import GROUPS

    return GROUPS


def _transaction_records() -> RecordFormat:
    from klamm.coordinator.records import TRANSACTIONS

    return TRANSACTIONS


OFFSETS_TOPIC: Final = InternalTopic(
    "__consumer_offsets",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    _group_records,
)
TRANSACTIONS_TOPIC: Final = InternalTopic(
    "__transaction_state",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
    _transaction_records,
    "transaction.state.log.min.isr",
)


def _import_all(modules: Sequence[str]) -> None:
    for module in modules:
        import_module(module)


def _no_effects(partition: int, effect: object) -> None:
    raise AssertionError(f"nobody was told what to do with {effect!r}")


class Coordinator(Generic[M]):
    """Made before the node serves; `start` when it does. `on_effect` may be set until then. `make` imports the module
    of the machine; its name is told so that it can be there before it is needed."""

    def __init__(
        self,
        topic: InternalTopic,
        make: Callable[[int], M],
        *,
        machine_module: str,
        env: Env,
        replicas: ReplicaManager,
        controller: Controller,
        metadata: Publisher,
        counters: Counters | None = None,
    ) -> None:
        self.topic = topic
        self.counters = counters or Counters()
        self.on_effect: Callable[[int, object], None] = _no_effects
        self._make = make
        self._machine_module = machine_module
        self._env = env
        self._replicas = replicas
        self._controller = controller
        self._metadata = metadata
        self._shards: dict[int, Shard[M]] = {}
        self._slots: dict[str, int] = {}  # which partition a key belongs to
        self._topic_id = b""
        self._count = 0
        self._services: Services | None = None
        self._creating: asyncio.Task[ErrorCode] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._loaded = (0, 0)  # records and bytes, until all that loads is loaded
        self._started = self._closed = False
        metadata.subscribe(self._apply)

    # ---- what handlers use

    def call(
        self, key: str, decide: Callable[[M, Call, Now], Outcome], refuse: Callable[[ErrorCode], Response]
    ) -> Response | Pending:
        """Have the machine that this key belongs to decide. The answer, or where it will be."""
        index = self._slots.get(key)
        if index is None:
            index = self._remember(key)
        shard = self._shards.get(index) or self._open(index)
        if isinstance(shard, ErrorCode):
            return refuse(shard)
        call = shard.call(decide, refuse)
        response = call.take() if call.done else None
        return call if response is None else response

    def run(self, partition: int, decide: Callable[[M, Now], Outcome]) -> asyncio.Future[None]:
        """An event that is no request, such as the end of an effect. The future is done when what came of it is
        committed; BrokerError if it cannot be: then the machine that comes next starts from the log."""
        shard = self._shards.get(partition) or self._open(partition)
        if isinstance(shard, ErrorCode):
            from klamm.coordinator.calls import fail

            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            fail(refused, shard)
            return refused
        return shard.run(decide)

    def write_marker(
        self, partition: int, producer: Producer, marker: EndMarker, transaction_version: int = 0
    ) -> Appended | Rejected:
        """Append a transaction's end to a partition of this topic. It is safe when the partition's high watermark has
        passed it. Rejected with a coordinator's error while the shard is not there."""
        shard = self._shards.get(partition) or self._open(partition)
        if isinstance(shard, ErrorCode):
            return Rejected(shard, "")
        return shard.write_marker(producer, marker, transaction_version)

    def partition_of(self, key: str) -> int:
        """-1 while the topic is not there."""
        index = self._slots.get(key)
        return self._remember(key) if index is None else index

    def shards(self) -> Iterator[tuple[int, M]]:
        """The machines that there are. Those of empty logs are not, until they are called."""
        for index, shard in list(self._shards.items()):
            if shard.machine is not None:
                yield index, shard.machine

    def shard_states(self) -> tuple[int, int]:
        """How many shards load, and how many take requests."""
        shards = self._shards.values()
        return sum(shard.loading for shard in shards), sum(shard.machine is not None for shard in shards)

    async def settled(self) -> ErrorCode:
        """NONE when everything that `shards` shows now is committed; else why it will not be."""
        try:
            for shard in list(self._shards.values()):
                if not shard.is_settled:
                    await shard.settled()
        except BrokerError as error:
            return error.code
        return ErrorCode.NONE

    @property
    def loading(self) -> bool:
        """Whether there is more than `shards` tells of."""
        return self._starting is not None or any(shard.loading for shard in self._shards.values())

    @property
    def has_topic(self) -> bool:
        return self._count > 0

    async def ensure_topic(self) -> ErrorCode:
        """Create the topic if it is not there: NONE when it can be used. However many ask, it is created once."""
        if self._count:
            return ErrorCode.NONE
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._creating is None:
            self._creating = asyncio.get_running_loop().create_task(self._create())
        return await asyncio.shield(self._creating)

    # ---- the topic

    async def _create(self) -> ErrorCode:
        from klamm.controller import NewTopic

        topic, options = self.topic, self._controller.options
        brokers = len(self._metadata.image.live_brokers())
        configs: list[tuple[str, str | None]] = [
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(options.get_int(topic.segment_bytes))),
        ]
        replication = max(1, min(options.get_int(topic.replication), brokers))
        if topic.min_isr is not None:
            configs.append(("min.insync.replicas", str(options.get_int(topic.min_isr))))
        new = NewTopic(topic.name, options.get_int(topic.partitions), replication, configs=configs)
        try:
            (created,) = await self._controller.create_topics([new])
        finally:
            self._creating = None
        if created.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            asyncio.get_running_loop().call_later(IMPORT_DELAY_S, self._import_ahead)
            return ErrorCode.NONE
        _logger.warning("the topic %s cannot be created: %s", topic.name, created.message or created.error.name)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _remember(self, key: str) -> int:
        if not self._count:
            return -1
        if len(self._slots) >= MAX_KEYS:
            self._slots.clear()
        index = self._slots[key] = partition_for(key, self._count)
        return index

    # ---- shards

    def start(self) -> None:
        """The node serves: load what there is to load."""
        self._started = True
        if self._unopened():
            self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        """A broker that has just begun to answer is not held up by what its coordinators have to import."""
        try:
            await self._import()
        finally:
            self._starting = None
            self._open_all()

    def _import_ahead(self) -> None:
        if not self._closed:
            self._import()

    def _import(self) -> asyncio.Future[None]:
        """What shards and machines are made of, in a thread: it takes longer than to answer any request."""
        return self._env.executor.submit(_import_all, ("klamm.coordinator.shard", self._machine_module))

    def close(self) -> None:
        """The node stops: whoever waits is answered, and nobody is taken any more."""
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        self._resign_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _resign_all(self, error: ErrorCode) -> None:
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            shard.resign(error)

    def _open_all(self) -> None:
        """Those with something in their log; the others begin when they are called."""
        if self._started and not self._closed:
            for index in self._unopened():
                self._open(index)

    def _unopened(self) -> list[int]:
        """Partitions that this broker leads, with something in their log, and without a shard."""
        found = []
        for index in range(self._count):
            partition = self._replicas.find(self.topic.name, index)
            log = None if partition is None or partition.error else partition.log
            if index not in self._shards and log is not None and log.start_offset != log.next_offset:
                found.append(index)
        return found

    def _open(self, index: int) -> Shard[M] | ErrorCode:
        """The shard of a partition that this broker leads, or why there is none."""
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self._replicas.find(self.topic.name, index) if index >= 0 else None
        if partition is None or not self._started:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if partition.error:
            return ErrorCode.NOT_COORDINATOR
        from klamm.coordinator.shard import Shard

        shard = Shard(index, partition, lambda: self._make(index), self._shared())
        self._shards[index] = shard
        shard.start()
        return shard

    def _shared(self) -> Services:
        if self._services is None:
            from klamm.coordinator.loading import Turns
            from klamm.coordinator.shared import Services

            self._services = Services(
                env=self._env,
                loop=asyncio.get_running_loop(),
                known=self.topic.known(),
                turns=Turns(LOADS_AT_A_TIME),
                counters=self.counters,
                on_loaded=self._on_loaded,
                image=lambda: self._metadata.image,
                on_effect=lambda partition, effect: self.on_effect(partition, effect),
            )
        return self._services

    def _on_loaded(self, loaded: Loaded) -> None:
        """One line in the log for all that loads at a time."""
        records, size_bytes = self._loaded
        self._loaded = records, size_bytes = records + loaded.records, size_bytes + loaded.size_bytes
        if not self.loading:
            self._loaded = (0, 0)
            _logger.info("%s is loaded: %d records, %d bytes", self.topic.name, records, size_bytes)

    # ---- metadata

    def _apply(self, image: Image, delta: Delta) -> None:
        topic = image.topics.get(self.topic.name)
        topic_id = b"" if topic is None else bytes(topic.id)
        count = 0 if topic is None else len(topic.partitions)
        if topic_id != self._topic_id:  # deleted, and maybe created anew
            self._resign_all(ErrorCode.NOT_COORDINATOR)
        if topic_id != self._topic_id or count != self._count:
            self._topic_id, self._count = topic_id, count
            self._slots.clear()
        if any(change.new is topic for change in delta.changed):
            self._open_all()  # of some, this broker may have become the leader
        for shard in list(self._shards.values()):
            try:
                if shard.machine is not None:
                    shard.image_changed(image, delta)
                elif not shard.loading and not shard.partition.error:
                    shard.start()  # it leads again
            except Exception as error:  # noqa: BLE001 - other subscribers must not miss this image
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a coordinator failed on new metadata: {error}", "exception": error}
                )
