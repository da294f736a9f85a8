"""The life and deaths of a broker that compacts all the time, from one seed.

Clients write numbered values and tombstones for keys of their own, and know which were acknowledged. The broker is
killed, loses its power or is stopped at any moment, mostly in the middle of a compaction or of a swap; its disk is slow
or full for a while. Whenever it is back, and at the end, the last value of every key must be one that may be the last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from klamm.core.errors import ErrorCode
from klamm.core.options import Options
from klamm.records.batch import iter_batches
from klamm.records.compression import Codec
from klamm.records.record import Record, decode_records, encode_batch
from klamm.server.node import Node
from klamm.testing.sim.broker.client import Client, Lost
from klamm.testing.sim.broker.lab import TRY_AGAIN, error_code
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.incarnation import Killed
from klamm.testing.sim.telling import tell
from klamm.testing.sim.world import SimNode, World
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.wire.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

BROKER: Final = "broker"
PORT: Final = 9092
DATA: Final = "/data"
TOPIC: Final = "compacted"
OPTIONS: Final = {
    "listeners": f"PLAINTEXT://{BROKER}:{PORT}",
    "log.cleaner.backoff.ms": "20",
    "log.retention.check.interval.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "700",
}
KEYS: Final = 8
_PRODUCE_VERSION: Final = 9
_FETCH_VERSION: Final = 11


class Told(NamedTuple):
    """What a story was like, for those who want to know that it was not a dull one."""

    digest: str
    deaths: int
    rounds: int
    written: int


class Key:
    """What was written for one key, by number. Every write is a new number, and is sent once."""

    def __init__(self) -> None:
        self.next = 0
        self.acknowledged = -1
        self.unsure: set[int] = set()  # sent, and nobody knows
        self.tombstones: set[int] = set()

    def check(self, name: str, last: int | None) -> None:
        """`last` is the number of the last record that is there."""
        if last is None:
            if self.acknowledged >= 0 and not self.tombstones & (self.unsure | {self.acknowledged}):
                raise Violation(f"{name} is gone, and number {self.acknowledged} was acknowledged")
        elif last != self.acknowledged and last not in self.unsure:
            raise Violation(f"{name} has number {last}, where {self.acknowledged} is the last one acknowledged")


class Writer:
    def __init__(self, story: Story, name: str) -> None:
        self.keys = {f"{name}/{i}": Key() for i in range(KEYS)}
        self._story = story
        self._name = name
        self._rng = story.world.random(name)

    async def run(self) -> None:
        while not self._story.over:
            try:
                await self._write(await self._story.connect(self._name))
            except Lost:
                pass
            await asyncio.sleep(self._rng.random() * 0.02)

    async def _write(self, client: Client) -> None:
        rng = self._rng
        chosen = [rng.choice(list(self.keys)) for _ in range(rng.choice((1, 1, 3, 10)))]
        now_ms = self._story.world.machine(BROKER).clock.time_ms()
        records: list[Record] = []
        for name in chosen:
            key = self.keys[name]
            value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 20, 100)))
            if value is None:
                key.tombstones.add(key.next)
            records.append(Record(0, now_ms, name.encode(), value, (("n", b"%d" % key.next),)))
            key.unsure.add(key.next)
            key.next += 1
        data = encode_batch(records, codec=rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP)))
        topic = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=data)])
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
        answer = await client.call(request, _PRODUCE_VERSION)
        code = error_code(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            for record in records:
                key = self.keys[(record.key or b"").decode()]
                key.acknowledged = int(record.headers[0][1] or b"")
                key.unsure -= {number for number in key.unsure if number <= key.acknowledged}
            self._story.written += len(records)
        elif code not in TRY_AGAIN:
            raise Violation(f"{self._name}: refused with {code.name}")


class Story:
    def __init__(self, world: World) -> None:
        self.world = world
        self.over = False
        self.deaths = 0
        self.rounds = 0
        self.written = 0
        self._rng = world.random("story")
        self._gate = asyncio.Event()
        self._process: SimNode | None = None
        self._node: Node | None = None
        self._clients: dict[str, Client] = {}
        self._writers = [Writer(self, f"writer{i}") for i in range(self._rng.randint(1, 3))]

    async def run(self) -> None:
        with _mistakes() as mistakes:
            await self._run()
        if mistakes:
            raise Violation(mistakes[0])

    async def _run(self) -> None:
        await self._start(check=False)
        await self._create_topic()
        tasks = [asyncio.get_running_loop().create_task(writer.run()) for writer in self._writers]
        for _ in range(self._rng.randint(2, 5)):
            await self._live(tasks)
        await asyncio.sleep(1.0)
        self.over = True
        for task in tasks:
            await task
        await self._check()
        await self._stop()

    async def connect(self, name: str) -> Client:
        known = self._clients.get(name)
        if known is None or known.lost is not None:
            await self._gate.wait()
            known = self._clients[name] = await Client.connect(self.world.network.view(name), name, BROKER, PORT)
        return known

    # ---- the broker

    async def _live(self, tasks: list[asyncio.Task[None]]) -> None:
        rng, loop = self._rng, asyncio.get_running_loop()
        disk = self.world.machine(BROKER).disk
        power = rng.random() < 0.5
        if rng.random() < 0.7:
            disk.faults.crash(rng.randint(1, rng.choice((50, 500, 3000))), lambda: self._crash(power))
        until = loop.time() + rng.uniform(0.3, 3.0)
        while loop.time() < until and self._process is not None and self._process.alive:
            await asyncio.sleep(rng.random() * 0.3)
            if rng.random() < 0.1:
                disk.fill(rng.choice((0, 300, 5000)))
                loop.call_later(rng.random(), disk.make_room)
            for task in tasks:
                if task.done():
                    task.result()
        if rng.random() < 0.3 and self._process is not None and self._process.alive:
            self._gate.clear()
            try:
                await self._stop()
            except Killed:
                pass
        self._crash(power)
        self.world.machine(BROKER).disk.calm()
        await asyncio.sleep(1.0)
        await self._start(check=True)

    def _crash(self, power: bool) -> None:
        if self._process is not None and self._process.alive:
            self._gate.clear()
            self.deaths += 1
            self._count_rounds()
            (self.world.power_loss if power else self.world.kill)(self._process)

    def _count_rounds(self) -> None:
        running = self._node.running if self._node is not None else None
        if running is not None and running.logs.cleaner is not None:
            self.rounds += running.logs.cleaner.counters.rounds
            if running.logs.cleaner.uncleanable:
                raise Violation("a log is said to be damaged")
        self._node = None

    async def _start(self, *, check: bool) -> None:
        for attempt in range(3):
            process = self._process = self.world.node(BROKER)
            if check and attempt < 2 and self._rng.random() < 0.4:
                power = self._rng.random() < 0.5
                faults = self.world.machine(BROKER).disk.faults
                faults.crash(self._rng.randint(1, 60), lambda power=power: self._crash(power))  # type: ignore[misc]
            try:
                self._node = await process.run(_boot(process))
                break
            except Killed:
                self.world.machine(BROKER).disk.calm()
                await asyncio.sleep(1.0)
        self.world.machine(BROKER).disk.calm()
        if check:
            await self._check()
        self._gate.set()

    async def _stop(self) -> None:
        node, process = self._node, self._process
        assert node is not None and process is not None
        await process.run(_stop(node))
        self._count_rounds()

    async def _create_topic(self) -> None:
        client = await self.connect("admin")
        rng = self._rng
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        configs = {
            "cleanup.policy": "compact",
            "flush.messages": "1",
            "segment.bytes": rng.choice(("1500", "4000")),
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": rng.choice(("0", "100", "2000")),
        }
        topic.configs = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        answer = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert not answer.topics[0].error_code

    # ---- looking

    async def _check(self) -> None:
        last: dict[str, int] = {}
        for record in await self._read_all():
            name = (record.key or b"").decode()
            last[name] = int(record.headers[0][1] or b"")
        for writer in self._writers:
            for name, key in writer.keys.items():
                key.check(name, last.get(name))

    async def _read_all(self) -> list[Record]:
        client = await Client.connect(self.world.network.view("reader"), "reader", BROKER, PORT)
        found: list[Record] = []
        offset = 0
        while True:
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=self._rng.choice((1, 2000)))
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1,
                topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
            )  # fmt: skip
            data = (await client.call(request, _FETCH_VERSION)).responses[0].partitions[0]
            if data.error_code:
                raise Violation(f"the topic cannot be read: {error_code(data.error_code).name}")
            records = bytes(data.records or b"")
            for position, header in iter_batches(records):
                if header.last_offset < offset:
                    raise Violation(f"asked for {offset}, got {header.base_offset} to {header.last_offset}")
                found += [one for one in decode_records(records, position) if one.offset >= offset]
                offset = header.next_offset
            if offset >= data.high_watermark:
                client.close()
                return found

    def told(self) -> Told:
        return Told(self.world.trace.digest(), self.deaths, self.rounds, self.written)


async def _boot(process: SimNode) -> Node:
    node = Node(process.env, DATA, Options.from_mapping(OPTIONS))
    await node.start()
    return node


async def _stop(node: Node) -> None:
    await node.stop()


def run_seed(seed: int, *, trace_into: list[str] | None = None) -> Told:
    """Run one seed to its end; raises what went wrong."""
    return tell(seed, Story, Story.told, trace_into=trace_into)


@contextmanager
def _mistakes() -> Iterator[list[str]]:
    """What the broker's jobs raised and nobody else would hear of."""
    found: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and not isinstance(record.exc_info[1], OSError):  # the disk may be full
                found.append(self.format(record))

    logger, listener = logging.getLogger("klamm.log"), Listener()
    logger.addHandler(listener)
    try:
        yield found
    finally:
        logger.removeHandler(listener)
