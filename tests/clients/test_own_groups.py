"""Klamm's consumer in groups: with others of its kind on Klamm and on Apache Kafka, and beside members of other
libraries in one group, whichever of them leads it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.aio import Consumer
from support.downloads import FETCH_LIMIT_S
from support.java import KafkaTools
from support.process import BrokerProcess

LIMIT_S = 60
PARTITIONS = 4
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 100, "auto_offset_reset": "earliest"}
JAVA = "org.apache.kafka.clients.consumer."

pytestmark = pytest.mark.timeout(FETCH_LIMIT_S + 300)


class Member(Protocol):
    """`partitions` are those that it has now, `read` partitions and offsets of all it was given."""

    partitions: set[int]
    read: list[tuple[int, int]]

    async def leave(self) -> None: ...


class Group:
    """A topic with a group that has its name."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.members: list[Member] = []
        self.sent = 0
        self._at = {"log_level": 0, "bootstrap.servers": bootstrap}
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        admin = AdminClient(self._at)
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(LIMIT_S)

    def tell(self) -> None:
        """Something has happened to a member; from any thread."""
        self._loop.call_soon_threadsafe(self._news.set)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not reached():
                await self._news.wait()
                self._news.clear()

    def send(self) -> None:
        producer = confluent_kafka.Producer(self._at)
        for number in range(40):
            producer.produce(self.topic, b"x", partition=number % PARTITIONS)
        assert producer.flush(LIMIT_S) == 0
        self.sent += 40

    @property
    def read(self) -> list[tuple[int, int]]:
        return sorted(place for member in self.members for place in member.read)

    @property
    def everything(self) -> list[tuple[int, int]]:
        return [(partition, offset) for partition in range(PARTITIONS) for offset in range(self.sent // PARTITIONS)]

    def committed(self) -> list[int]:
        consumer = confluent_kafka.Consumer({**self._at, "group.id": self.topic})
        wanted = [confluent_kafka.TopicPartition(self.topic, index) for index in range(PARTITIONS)]
        found = consumer.committed(wanted, LIMIT_S)
        consumer.close()
        return [one.offset for one in found]

    def join(self, member: Member) -> Member:
        self.members.append(member)
        return member


class Ours:
    def __init__(self, group: Group, **options: Any) -> None:
        self.read: list[tuple[int, int]] = []
        self.partitions: set[int] = set()
        self._group = group
        self._consumer = Consumer(bootstrap_servers=group.bootstrap, group_id=group.topic, **{**QUICK, **options})
        self._stop = False
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        self._consumer.subscribe(
            self._group.topic, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._revoked
        )
        async with self._consumer as consumer:
            while not self._stop:
                for place, records in (await consumer.getmany(timeout_ms=50)).items():
                    assert place.partition in self.partitions
                    self.read += [(record.partition, record.offset) for record in records]
                    self._group.tell()

    def _assigned(self, places: list[Any]) -> None:
        self.partitions |= {place.partition for place in places}
        self._group.tell()

    async def _revoked(self, places: list[Any]) -> None:
        self.partitions -= {place.partition for place in places}
        self._group.tell()

    async def leave(self) -> None:
        self._stop = True
        await self._task


class Librdkafka:
    def __init__(self, group: Group, **options: Any) -> None:
        self.read: list[tuple[int, int]] = []
        self.partitions: set[int] = set()
        self._group = group
        given = {name.replace("_", "."): value for name, value in {**QUICK, **options}.items()}
        if given.get("group.protocol") == "consumer":
            del given["heartbeat.interval.ms"]
        at = {"log_level": 0, "bootstrap.servers": group.bootstrap, "group.id": group.topic}
        self._consumer = confluent_kafka.Consumer({**at, **given})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.subscribe([self._group.topic])
        while not self._stop.is_set():
            record = self._consumer.poll(0.05)
            if record is not None and record.error() is None:
                self.read.append((record.partition(), record.offset()))
            now = {place.partition for place in self._consumer.assignment()}
            if record is not None or now != self.partitions:
                self.partitions = now
                self._group.tell()
        self._consumer.close()

    async def leave(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)


class Aiokafka:
    def __init__(self, group: Group, assignor: Any) -> None:
        self.read: list[tuple[int, int]] = []
        self._group = group
        self._consumer = aiokafka.AIOKafkaConsumer(
            group.topic,
            bootstrap_servers=group.bootstrap,
            group_id=group.topic,
            partition_assignment_strategy=[assignor],
            **QUICK,
        )
        self._task = asyncio.ensure_future(self._run())
        self._stop = False

    @property
    def partitions(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    async def _run(self) -> None:
        await self._consumer.start()
        while not self._stop:
            for place, records in (await self._consumer.getmany(timeout_ms=50)).items():
                self.read += [(place.partition, record.offset) for record in records]
            self._group.tell()
        await self._consumer.stop()

    async def leave(self) -> None:
        self._stop = True
        await self._task


class Java:
    """A verifiable consumer, which tells all that happens to it."""

    def __init__(self, group: Group, tools: KafkaTools, folder: Path, *arguments: str) -> None:
        self.partitions: set[int] = set()
        self.read: list[tuple[int, int]] = []
        self._group = group
        at = ["--bootstrap-server", group.bootstrap, "--topic", group.topic, "--group-id", group.topic]
        (folder / "properties").write_text("heartbeat.interval.ms=100\n")
        at += ["--command-config", str(folder / "properties")]
        self._process = tools.start("kafka-verifiable-consumer", *at, *arguments)
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(json.loads(line))
            self._group.tell()

    def _take(self, event: dict[str, Any]) -> None:
        given = event.get("partitions", [])
        if event["name"] == "partitions_assigned":
            self.partitions |= {place["partition"] for place in given}
        elif event["name"] == "partitions_revoked":
            self.partitions -= {place["partition"] for place in given}
        elif event["name"] == "records_consumed":
            for place in given:
                self.read += [(place["partition"], n) for n in range(place["minOffset"], place["maxOffset"] + 1)]

    async def leave(self) -> None:
        """Twice is once."""
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, LIMIT_S)
        await asyncio.to_thread(self._reader.join, LIMIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


async def play(group: Group, first: Callable[[], Member], second: Callable[[], Member]) -> None:
    """One reads all, two share, the other takes over; nothing is left out."""
    group.send()
    one = group.join(first())
    await group.until(lambda: len(one.read) >= group.sent)
    two = group.join(second())
    await group.until(lambda: len(one.partitions) == len(two.partitions) == 2 and not one.partitions & two.partitions)
    group.send()
    await group.until(lambda: len(set(group.read)) == group.sent)
    await one.leave()
    await group.until(lambda: len(two.partitions) == PARTITIONS)
    group.send()
    await group.until(lambda: len(set(group.read)) == group.sent)
    await two.leave()
    assert sorted(set(group.read)) == group.everything
    assert group.committed() == [group.sent // PARTITIONS] * PARTITIONS


@pytest.fixture
async def group(broker: BrokerProcess, topic: str) -> AsyncIterator[Group]:
    made = Group(broker.bootstrap, topic)
    yield made
    for member in made.members:
        if isinstance(member, Java):
            await member.leave()


PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range"},
    "roundrobin": {"partition_assignment_strategy": "roundrobin"},
    "sticky": {"partition_assignment_strategy": "sticky"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("protocol", ["range", "sticky", "cooperative", "consumer"])
@pytest.mark.parametrize("cluster", ["broker", "apache_kafka"])
async def test_members_of_ours_share_and_nothing_is_read_twice(
    request: pytest.FixtureRequest, topic: str, cluster: str, protocol: str
) -> None:
    group = Group(request.getfixturevalue(cluster).bootstrap, topic)
    options = PROTOCOLS[protocol]
    await play(group, lambda: Ours(group, **options), lambda: Ours(group, **options))
    assert group.read == group.everything


@pytest.mark.parametrize(
    ("protocol", "ours_first"),
    [("range", True), ("roundrobin", False), ("cooperative", True), ("cooperative", False), ("consumer", True)],
)
async def test_beside_librdkafka(group: Group, protocol: str, ours_first: bool) -> None:
    options = PROTOCOLS[protocol]
    members = [lambda: Ours(group, **options), lambda: Librdkafka(group, **options)]
    await play(group, *(members if ours_first else reversed(members)))


@pytest.mark.parametrize(
    ("protocol", "theirs", "ours_first"),
    [("sticky", StickyPartitionAssignor, True), ("roundrobin", RoundRobinPartitionAssignor, False)],
)
async def test_beside_aiokafka(group: Group, protocol: str, theirs: Any, ours_first: bool) -> None:
    members = [lambda: Ours(group, **PROTOCOLS[protocol]), lambda: Aiokafka(group, theirs)]
    await play(group, *(members if ours_first else reversed(members)))


@pytest.mark.parametrize(
    ("protocol", "theirs", "ours_first"),
    [
        ("sticky", ("--assignment-strategy", f"{JAVA}StickyAssignor"), True),
        ("sticky", ("--assignment-strategy", f"{JAVA}StickyAssignor"), False),
        ("cooperative", ("--assignment-strategy", f"{JAVA}CooperativeStickyAssignor"), True),
        ("cooperative", ("--assignment-strategy", f"{JAVA}CooperativeStickyAssignor"), False),
    ],
)
async def test_beside_java(
    group: Group, kafka_tools: KafkaTools, tmp_path: Path, protocol: str, theirs: tuple[str, ...], ours_first: bool
) -> None:
    members = [lambda: Ours(group, **PROTOCOLS[protocol]), lambda: Java(group, kafka_tools, tmp_path, *theirs)]
    await play(group, *(members if ours_first else reversed(members)))
    assert group.read == group.everything, "something was read twice"
