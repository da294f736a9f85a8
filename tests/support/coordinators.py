"""What tests of coordinators stand on: a small machine, a driver for any machine without a log, and a coordinator on
real files that can be killed and started again."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from klamm.controller import BrokerRegistration, Controller
from klamm.coordinator.machine import Answer, Machine, Now, Outcome, Producer, Record, Reply
from klamm.coordinator.records import RecordFormat, encode
from klamm.coordinator.runtime import OFFSETS_TOPIC, Coordinator, InternalTopic
from klamm.core.env import Buffer, Env
from klamm.core.env.real import RealFile, RealFiles, real_env
from klamm.core.errors import ErrorCode
from klamm.core.options import Options
from klamm.log.folder import DataFolder
from klamm.log.manager import LogManager
from klamm.metadata.image import BrokerEndpoint, Image
from klamm.metadata.local import LocalStore
from klamm.metadata.publisher import Publisher
from klamm.metadata.replay import Delta
from klamm.metadata.topic_config import log_config
from klamm.replica.manager import ReplicaManager
from klamm.replica.partition import Partition
from klamm.replica.pending import Pending
from klamm.wire.messages.coordinator import OffsetCommitKey, OffsetCommitValue

NODE = 1
M = TypeVar("M", bound=Machine)


class Reflex(Generic[M]):
    """Drives a machine as a shard would, with a list for a log. Records go through their bytes on the way, so a field
    that is not stored is not seen by `replay` either.

    `answers` has what was answered, by reply; `effects` what was asked for."""

    def __init__(self, make: Callable[[], M], known: RecordFormat) -> None:
        self._make = make
        self._known = known
        self.machine = make()
        self.log: list[tuple[bytes, bytes | None, Producer | None] | tuple[Producer, bool]] = []
        self.now = Now(1000.0, 1_700_000_000_000)
        self.effects: list[object] = []
        self.image: Image | None = None

    def do(self, decide: Callable[[M, Now], Outcome]) -> None:
        outcome = decide(self.machine, self.now)
        for record in outcome.records:
            key, value = encode(record)
            self.log.append((key, value, outcome.producer))
            self._replay(self.machine, (key, value, outcome.producer))
        for reply, value in outcome.answers:
            assert isinstance(reply, Note), reply
            reply.set(value)
        self.effects += outcome.effects

    def ask(self, decide: Callable[[M, Reply, Now], Outcome]) -> Note:
        note = Note()
        self.do(lambda machine, now: decide(machine, note, now))
        return note

    def end(self, producer: Producer, committed: bool) -> None:
        """The marker of a transaction."""
        self.log.append((producer, committed))
        self.machine.replay_end(producer, committed)

    def publish(self, image: Image, delta: Delta | None = None) -> None:
        self.image = image
        self.do(lambda machine, now: machine.image_changed(image, delta or Delta(), now))

    def wait(self, seconds: float) -> None:
        """Time passes, and what is due happens when it is due."""
        end = self.now.monotonic + seconds
        while (due := self.machine.next_due) is not None and due <= end:
            self._be_at(max(due, self.now.monotonic))
            self.do(lambda machine, now: machine.tick(now))
        self._be_at(end)

    def _be_at(self, monotonic: float) -> None:
        passed_ms = round((monotonic - self.now.monotonic) * 1000)
        self.now = Now(monotonic, self.now.time_ms + passed_ms)

    def replayed(self) -> M:
        """A machine that knows only the log."""
        machine = self._make()
        for entry in self.log:
            self._replay(machine, entry)
        return machine

    def crash(self) -> None:
        """All that is not in the log is gone; nobody who waits is answered."""
        self.machine = self.replayed()
        if self.image is not None:
            self.publish(self.image)
        self.do(lambda machine, now: machine.loaded(now))

    def _replay(self, machine: M, entry: tuple[Any, ...]) -> None:
        if len(entry) == 2:
            machine.replay_end(*entry)
            return
        key, value, producer = entry
        record = self._known.decode(key, value)
        assert record is not None
        machine.replay(record, producer)


class Note(Pending):
    """A reply that keeps its answer."""

    __slots__ = ()

    @property
    def answer(self) -> Any:
        return self._response


class Ledger:
    """A machine that keeps numbers under names, the least there can be: some put, some wait, some are in a transaction,
    and it can be told when to be ticked."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.pending: dict[Producer, dict[str, int]] = {}
        self.waiting: list[Reply] = []
        self.due: float | None = None
        self.ticks = 0
        self.images: list[Image] = []
        self.events: list[str] = []

    @property
    def durable(self) -> tuple[dict[str, int], dict[Producer, dict[str, int]]]:
        return self.numbers, {producer: held for producer, held in self.pending.items() if held}

    @property
    def next_due(self) -> float | None:
        return self.due

    def put(self, reply: Reply, name: str, number: int, *, only_records: bool = True, note: str = "") -> Outcome:
        return Outcome(
            [number_record(name, number, note)], [Answer(reply, f"{name}={number}")], only_records=only_records
        )

    def get(self, reply: Reply, name: str) -> Outcome:
        return Outcome(answers=[Answer(reply, self.numbers.get(name, "nothing"))])

    def wait(self, reply: Reply) -> Outcome:
        self.waiting.append(reply)
        return Outcome()

    def release(self, answer: str) -> Outcome:
        waiting, self.waiting = self.waiting, []
        return Outcome(answers=[Answer(reply, answer) for reply in waiting])

    def replay(self, record: Record, producer: Producer | None = None) -> None:
        if not isinstance(record.key, OffsetCommitKey):
            return
        assert record.value is None or isinstance(record.value, OffsetCommitValue)
        name = record.key.topic
        numbers = self.numbers if producer is None else self.pending.setdefault(producer, {})
        if record.value is None:
            numbers.pop(name, None)
        else:
            numbers[name] = record.value.offset

    def replay_end(self, producer: Producer, committed: bool) -> None:
        held = self.pending.pop(producer, {})
        if committed:
            self.numbers |= held

    def loaded(self, now: Now) -> Outcome:
        self.events.append("loaded")
        return Outcome()

    def tick(self, now: Now) -> Outcome:
        self.ticks += 1
        self.due = None
        return Outcome([number_record("ticks", self.ticks)])

    def image_changed(self, image: Image, delta: Delta, now: Now) -> Outcome:
        self.images.append(image)
        self.events.append("image")
        return Outcome()

    def resigned(self, error: ErrorCode) -> list[Answer]:
        waiting, self.waiting = self.waiting, []
        return [Answer(reply, f"resigned {error.name}") for reply in waiting]


def number_record(name: str, number: int | None, note: str = "") -> Record:
    value = None if number is None else OffsetCommitValue(offset=number, metadata=note)
    return Record(OffsetCommitKey(group="g", topic=name, partition=0), value)


class FaultyFile(RealFile):
    """A file whose writes fail as long as somebody says so."""

    __slots__ = ()
    failing: ClassVar[int] = 0  # the error number, or 0

    def pwrite(self, data: Buffer, offset: int) -> None:
        if self.failing and self.path.endswith(".log"):
            raise OSError(self.failing, errno.errorcode[self.failing])
        super().pwrite(data, offset)

    def append(self, data: Buffer) -> None:
        if self.failing and self.path.endswith(".log"):
            raise OSError(self.failing, errno.errorcode[self.failing])
        super().append(data)


def faulty_env() -> tuple[Env, type[FaultyFile]]:
    """A real environment, and the class that says whether writing works."""

    class File(FaultyFile):
        __slots__ = ()

    class Files(RealFiles):
        __slots__ = ()
        file_type = File

        def __reduce__(self) -> tuple[type[RealFiles], tuple[()]]:
            return RealFiles, ()  # what a child process gets: its writes do not fail

    real = real_env(seed=1)
    return Env(real.clock, real.rng, Files(), real.executor, real.network, real.processes), File


class Site(Generic[M]):
    """A coordinator on real files. `stop` and `start` again, or `kill` and `start`, is a restart."""

    def __init__(self, path: Path, make: Callable[[], M], topic: InternalTopic = OFFSETS_TOPIC, **options: str) -> None:
        self.env, self.disk = faulty_env()
        self.path = path
        self.options = Options.from_mapping({name.replace("_", "."): value for name, value in options.items()})
        self._make = make
        self._topic = topic

    async def start(self) -> None:
        env = self.env
        self.folder = DataFolder.open(env, str(self.path), node_id=NODE)
        self.store = LocalStore(env, f"{self.path}/metadata")
        publisher = self.publisher = Publisher(await self.store.load())
        self.store.follow(publisher.replay, publisher.reset)
        self.controller = Controller(env, self.store, publisher, self.options)

        def topic_id_for(topic: str, index: int) -> bytes | None:
            state = publisher.image.topics.get(topic)
            return state.id if state is not None and index < len(state.partitions) else None

        self.logs = await LogManager.open(
            env,
            self.folder,
            config_for=lambda topic: log_config(publisher.image, topic, self.options),
            topic_id_for=topic_id_for,
        )
        self.replicas = ReplicaManager(NODE, self.logs, self.options)
        publisher.subscribe(self.replicas.apply)
        self.coordinator: Coordinator[M] = Coordinator(
            self._topic,
            lambda partition: self._make(),
            machine_module=__name__,
            env=env,
            replicas=self.replicas,
            controller=self.controller,
            metadata=publisher,
        )
        await self.controller.start(NODE)
        endpoints = [BrokerEndpoint("PLAINTEXT", "localhost", 9092)]
        await self.controller.register_broker(BrokerRegistration(NODE, env.uuid(), endpoints))
        self.coordinator.start()

    async def stop(self) -> None:
        self.coordinator.close()
        await self.controller.close()
        await self.store.close()
        await self.logs.close()
        self.folder.close()

    async def kill(self) -> None:
        """Nothing is closed: what the next start finds is what was written, as after kill -9. Only that threads which
        are at work would not survive one, so they come to their end first."""
        self.coordinator.close()
        await self.store.close()
        for log in self.logs.logs():
            await log.settle()
        await self.logs.close(False)
        self.folder.close()

    def partition(self, index: int) -> Partition:
        partition = self.replicas.find(self._topic.name, index)
        assert partition is not None
        return partition

    def ask(self, key: str, decide: Callable[[M, Reply, Now], Outcome]) -> Any:
        """The answer, or a Pending; an error code where the coordinator refuses."""
        return self.coordinator.call(key, decide, lambda code: code)  # type: ignore[arg-type,return-value]

    async def answer(self, key: str, decide: Callable[[M, Reply, Now], Outcome]) -> Any:
        return await answered(self.ask(key, decide))

    async def ready(self) -> None:
        """Until nothing loads."""
        while self.coordinator.loading:
            await asyncio.sleep(0)


async def answered(answer: Any) -> Any:
    if not isinstance(answer, Pending):
        return answer
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.then(future.set_result)
    return await asyncio.wait_for(future, 20)
