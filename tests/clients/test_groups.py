"""Classic consumer groups with real clients: who reads what, as members come, go, fall silent and come back, and as the
broker does."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from support.process import BrokerProcess

LIMIT_S = 60
OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 4,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Of our own: it does not wait for more members, and allows short sessions."""
    process = BrokerProcess(tmp_path_factory.mktemp("groups") / "data", options=OPTIONS)
    yield process
    assert process.stop() == 0
    assert not [line for line in process.errors if "Traceback" in line], "".join(process.errors)


def create(broker: BrokerProcess, topic: str, partitions: int = 4) -> None:
    admin = AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


class Records:
    """Numbered records, one after the other over the partitions."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: int = 4) -> None:
        self._producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
        self._topic = topic
        self._partitions = partitions
        self._numbers = itertools.count()

    def send(self, count: int) -> set[bytes]:
        sent = {str(number).encode(): number for number in itertools.islice(self._numbers, count)}
        for value, number in sent.items():
            self._producer.produce(self._topic, value, partition=number % self._partitions)
        assert self._producer.flush(30) == 0
        return set(sent)


class Librdkafka:
    """A member through confluent-kafka. `given` counts how often it was assigned something, `taken` the opposite."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str, **config: object) -> None:
        self.given = self.taken = self.lost = 0
        self.values: list[bytes] = []
        self.consumer = Consumer(
            {
                "log_level": 0,
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 1000,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _on_assign(self, consumer: object, partitions: object) -> None:
        self.given += 1

    def _on_revoke(self, consumer: object, partitions: object) -> None:
        self.taken += 1

    def _on_lost(self, consumer: object, partitions: object) -> None:
        self.lost += 1

    def poll(self) -> None:
        for message in self.consumer.consume(500, timeout=0.02):
            error = message.error()
            if error is None:
                self.values.append(message.value())
            else:
                assert error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error

    @property
    def partitions(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # nothing was read since the last time
                raise

    def close(self) -> None:
        self.consumer.close()


class KafkaPython:
    """The same through kafka-python."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str) -> None:
        self.values: list[bytes] = []
        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=100,
            metadata_max_age_ms=1000,
        )

    def poll(self) -> None:
        """Often for a shorter time than a join takes: kafka-python then joins again, over the same connection, and must
        find the rebalance over, not begin another one. But long enough for the answer to a SyncGroup: one that comes
        after the end of a poll is lost to kafka-python 3.0, which then waits for ever."""
        for records in self.consumer.poll(timeout_ms=500).values():
            self.values += [record.value for record in records]

    @property
    def partitions(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


def until(reached: Callable[[], bool], *members: Any) -> None:
    """Let the members poll until it is so."""
    limit = time.monotonic() + LIMIT_S
    while not reached():
        assert time.monotonic() < limit, [(m.partitions, len(m.values)) for m in members]
        for member in members:
            member.poll()


def shared(*members: Any, partitions: int = 4) -> bool:
    """Every partition is somebody's, and nobody has much more than another."""
    parts = [member.partitions for member in members]
    sizes = sorted(len(part) for part in parts)
    return sum(sizes) == partitions == len(set().union(*parts)) and sizes[-1] - sizes[0] <= 1


def state_of(broker: BrokerProcess, group: str) -> Any:
    admin = AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    return admin.describe_consumer_groups([group])[group].result(30)


@pytest.mark.parametrize("kind", [Librdkafka, KafkaPython])
def test_members_share_the_partitions_and_take_over_from_one_that_leaves(
    broker: BrokerProcess, topic: str, kind: type
) -> None:
    create(broker, topic)
    records = Records(broker, topic)
    sent = records.send(40)
    with ExitStack() as stack:
        one = stack.enter_context(closing(kind(broker, topic, topic)))
        until(lambda: len(one.values) == 40, one)
        assert set(one.values) == sent and one.partitions == {0, 1, 2, 3}
        two = stack.enter_context(closing(kind(broker, topic, topic)))
        until(lambda: shared(one, two), one, two)
        sent |= records.send(40)
        until(lambda: set(one.values) | set(two.values) == sent, one, two)
        assert len(one.values) + len(two.values) == 80, "every record was read once: offsets are handed over"
        two.close()
        until(lambda: one.partitions == {0, 1, 2, 3}, one)
        more = records.send(20)
        until(lambda: more <= set(one.values), one)


def test_a_group_that_was_empty_goes_on_where_it_was(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    records = Records(broker, topic)
    records.send(30)
    with closing(Librdkafka(broker, topic, topic, enable_auto_commit=False)) as first:
        until(lambda: len(first.values) == 30, first)
        first.commit()
    assert state_of(broker, topic).state == ConsumerGroupState.EMPTY
    sent = records.send(30)
    with closing(Librdkafka(broker, topic, topic)) as second:
        until(lambda: len(second.values) >= 30, second)
        assert set(second.values) == sent
        described = state_of(broker, topic)
        assert described.state == ConsumerGroupState.STABLE and described.partition_assignor == "range"
        (member,) = described.members
        assert {one.partition for one in member.assignment.topic_partitions} == {0, 1, 2, 3}


def test_more_members_than_partitions_and_the_spare_one_takes_over(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 2)
    with ExitStack() as stack:
        members = [stack.enter_context(closing(Librdkafka(broker, topic, topic))) for _ in range(3)]
        until(lambda: sorted(len(m.partitions) for m in members) == [0, 1, 1], *members)
        until(lambda: all(m.given for m in members), *members)
        gone = next(m for m in members if m.partitions)
        gone.close()
        members.remove(gone)
        until(lambda: shared(*members, partitions=2), *members)


def test_a_static_member_restarts_without_a_rebalance(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    records = Records(broker, topic)
    with ExitStack() as stack:
        stays, goes = (
            stack.enter_context(closing(Librdkafka(broker, topic, topic, group_instance_id=name)))
            for name in ("stays", "goes")
        )
        until(lambda: shared(stays, goes), stays, goes)
        given, taken, had = stays.given, stays.taken, goes.partitions
        goes.close()  # a static member does not say goodbye
        back = stack.enter_context(closing(Librdkafka(broker, topic, topic, group_instance_id="goes")))
        until(lambda: bool(back.partitions), back, stays)
        sent = records.send(40)
        until(lambda: set(stays.values) | set(back.values) >= sent, stays, back)
        assert back.partitions == had
        assert (stays.given, stays.taken) == (given, taken), "it was not disturbed"


def test_a_second_member_with_the_same_instance_id_fences_the_first(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    with closing(Librdkafka(broker, topic, topic, group_instance_id="one")) as first:
        until(lambda: bool(first.partitions), first)
        with closing(Librdkafka(broker, topic, topic, group_instance_id="one")) as second:
            until(lambda: bool(second.partitions), second)
            with pytest.raises(AssertionError, match="Static consumer fenced"):
                until(lambda: False, first)


def test_cooperative_members_keep_what_they_have_while_others_come(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    records = Records(broker, topic)
    sticky = {"partition_assignment_strategy": "cooperative-sticky"}
    with ExitStack() as stack:
        one = stack.enter_context(closing(Librdkafka(broker, topic, topic, **sticky)))
        until(lambda: len(one.partitions) == 4, one)
        two = stack.enter_context(closing(Librdkafka(broker, topic, topic, **sticky)))
        held: set[int] = {0, 1, 2, 3}

        def settled() -> bool:
            held.intersection_update(one.partitions)
            return shared(one, two)

        until(settled, one, two)
        assert len(held) == 2, "two of the four were never taken from it"
        sent = records.send(40)
        until(lambda: set(one.values) | set(two.values) >= sent, one, two)
        two.close()
        until(lambda: len(one.partitions) == 4, one)
        assert one.lost == 0


SILENT = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "session.timeout.ms": 1500,
                     "heartbeat.interval.ms": 100, "log_level": 0})
consumer.subscribe([sys.argv[2]])
while not consumer.assignment():
    consumer.poll(0.05)
print("assigned", flush=True)
while True:
    consumer.poll(1)
"""


def test_a_member_that_is_killed_is_replaced_after_its_session(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    command = [sys.executable, "-c", SILENT, broker.bootstrap, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "assigned\n"
        with closing(Librdkafka(broker, topic, topic)) as other:
            until(lambda: len(other.partitions) == 2, other)
            killed.kill()
            until(lambda: len(other.partitions) == 4, other)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_group_lives_on_through_a_restart_of_the_broker(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, topic: str, how: str
) -> None:
    broker = start_broker(options=OPTIONS)
    create(broker, topic)
    times = {"session_timeout_ms": 45_000, "auto_commit_interval_ms": 100}
    with ExitStack() as stack:
        members = [stack.enter_context(closing(Librdkafka(broker, topic, topic, **times))) for _ in range(2)]
        until(lambda: shared(*members), *members)
        sent = Records(broker, topic).send(40)
        until(lambda: set(members[0].values) | set(members[1].values) == sent, *members)
        for member in members:
            member.commit()
        before = [(m.given, m.taken, m.lost, m.partitions) for m in members]
        getattr(broker, how)()
        broker = start_broker(port=broker.port, options=OPTIONS)
        more = Records(broker, topic).send(40)
        until(lambda: sum(len(m.values) for m in members) >= 80, *members)
        for member in members:
            member.commit()
        assert sorted(v for m in members for v in m.values) == sorted([*sent, *more]), "each once, all of them"
        assert [(m.given, m.taken, m.lost, m.partitions) for m in members] == before, "without a rebalance"
        generation = [(m.given, m.taken) for m in members]
        third = stack.enter_context(closing(Librdkafka(broker, topic, topic, **times)))
        until(lambda: shared(*members, third), *members, third)
        assert [(m.given, m.taken) for m in members] != generation


async def test_aiokafka_members_share_and_take_over(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    records = Records(broker, topic)
    sent = records.send(40)

    async def member() -> tuple[AIOKafkaConsumer, list[bytes]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=100,
            metadata_max_age_ms=1000,
        )
        consumer.subscribe([topic])
        await consumer.start()
        return consumer, []

    async def until_all(reached: Callable[[], bool], *members: tuple[AIOKafkaConsumer, list[bytes]]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not reached():
                for consumer, values in members:
                    for batch in (await consumer.getmany(timeout_ms=20)).values():
                        values += [record.value for record in batch]

    one = await member()
    await until_all(lambda: set(one[1]) == sent, one)
    two = await member()
    await until_all(lambda: len(one[0].assignment()) == len(two[0].assignment()) == 2, one, two)
    sent |= records.send(40)
    await until_all(lambda: {*one[1], *two[1]} == sent, one, two)
    assert len(one[1]) + len(two[1]) == 80
    await two[0].stop()
    await until_all(lambda: len(one[0].assignment()) == 4, one)
    await one[0].stop()
