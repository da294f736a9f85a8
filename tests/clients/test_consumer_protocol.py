"""The consumer protocol (KIP-848) with librdkafka and Apache Kafka's consumer: `group.protocol=consumer`."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from support.downloads import FETCH_LIMIT_S
from support.java import KafkaTools
from support.process import BrokerProcess

LIMIT_S = 60
PARTITIONS = 4
OPTIONS = {
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 50,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 3000,
    "group.consumer.assignment.interval.ms": 0,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
}

OTHER_PROCESS = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer"})
consumer.subscribe([sys.argv[2]])
while True:
    consumer.poll(0.1)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Of our own: heartbeats come often, so that nobody waits for the next one."""
    process = BrokerProcess(tmp_path_factory.mktemp("consumers") / "data", options=OPTIONS)
    yield process
    assert process.stop() == 0
    assert not [line for line in process.errors if "Traceback" in line], "".join(process.errors)


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return admin_of(broker)


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})


def create(admin: AdminClient, topic: str, partitions: int = PARTITIONS) -> None:
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


def produce(broker: BrokerProcess, topic: str, count: int, first: int = 0, partitions: int = PARTITIONS) -> list[bytes]:
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    values = [str(number).encode() for number in range(first, first + count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(30) == 0
    return values


class Member:
    def __init__(self, broker: BrokerProcess, group: str, *topics: str, **config: object) -> None:
        self.given: list[list[tuple[str, int]]] = []
        self.taken: list[list[tuple[str, int]]] = []
        self.values: list[bytes] = []
        self.errors: list[KafkaError] = []
        self.consumer = Consumer(
            {
                "log_level": 0,
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        self.consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self.given.append([(p.topic, p.partition) for p in partitions]),
            on_revoke=lambda _, partitions: self.taken.append([(p.topic, p.partition) for p in partitions]),
        )

    def poll(self) -> None:
        for message in self.consumer.consume(500, timeout=0.02):
            error = message.error()
            if error is None:
                self.values.append(message.value())
            elif not error.retriable() and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                self.errors.append(error)

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return sorted((p.topic, p.partition) for p in self.consumer.assignment())

    def has_read(self, offset: int) -> bool:
        """All of its partitions, up to this offset."""
        return all(one.offset == offset for one in self.consumer.position(self.consumer.assignment()))

    def close(self) -> None:
        self.consumer.close()


def until(members: list[Member], condition: Callable[[], bool]) -> None:
    """Have the members poll until it is so."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, [(m.partitions, len(m.values), m.given, m.taken, m.errors) for m in members]
        for member in members:
            member.poll()


def everything(topic: str, partitions: int = PARTITIONS) -> list[tuple[str, int]]:
    return [(topic, number) for number in range(partitions)]


def shared(members: list[Member], topic: str) -> bool:
    owned = sorted(one for member in members for one in member.partitions)
    sizes = [len(member.partitions) for member in members]
    return owned == everything(topic) and max(sizes) - min(sizes) <= 1


def describe(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group], request_timeout=30)[group].result(30)


def test_members_share_the_partitions_and_take_over_from_who_leaves(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    create(admin, topic)
    values = produce(broker, topic, 100)
    with ExitStack() as stack:
        members = [stack.enter_context(closing(Member(broker, topic, topic)))]
        until(members, lambda: len(members[0].values) == 100)
        assert members[0].partitions == everything(topic)
        members += [stack.enter_context(closing(Member(broker, topic, topic))) for _ in range(2)]
        until(members, lambda: shared(members, topic))
        values += produce(broker, topic, 100, first=100)
        # The new ones begin at the start, because nobody has committed.
        until(members, lambda: {value for m in members for value in m.values} == set(values))
        members.pop().close()
        until(members, lambda: shared(members, topic))
        assert not any(member.errors for member in members)


def test_the_group_is_described_and_listed(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    with closing(Member(broker, topic, topic, client_id="me", group_remote_assignor="range")) as member:
        until([member], lambda: member.partitions == everything(topic))
        until([member], lambda: describe(admin, topic).state is ConsumerGroupState.STABLE)
        group = describe(admin, topic)
        assert group.type is ConsumerGroupType.CONSUMER
        assert group.partition_assignor == "range"
        (one,) = group.members
        assert (one.client_id, one.host) == ("me", "/127.0.0.1")
        for assignment in (one.assignment, one.target_assignment):
            assert sorted((p.topic, p.partition) for p in assignment.topic_partitions) == everything(topic)
        listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(30)
        assert topic in {one.group_id for one in listed.valid}
    assert describe(admin, topic).state is ConsumerGroupState.EMPTY
    admin.delete_consumer_groups([topic])[topic].result(30)


def test_a_member_that_dies_is_out_when_its_session_ends(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, topic)
    with closing(Member(broker, topic, topic)) as member:
        until([member], lambda: member.partitions == everything(topic))
        other = subprocess.Popen([sys.executable, "-c", OTHER_PROCESS, broker.bootstrap, topic])
        try:
            until([member], lambda: len(member.partitions) == PARTITIONS // 2)
        finally:
            other.kill()
            other.wait()
        until([member], lambda: member.partitions == everything(topic))


def test_new_partitions_are_assigned(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, topic, 1)
    with closing(Member(broker, topic, topic)) as member:
        until([member], lambda: member.partitions == everything(topic, 1))
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        until([member], lambda: member.partitions == everything(topic, 3))


def test_topics_by_regular_expression(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, f"{topic}-one", 1)
    create(admin, f"{topic}-two", 2)
    create(admin, f"other-{topic}", 1)
    with closing(Member(broker, topic, f"^{topic}-.*")) as member:
        until([member], lambda: member.partitions == [*everything(f"{topic}-one", 1), *everything(f"{topic}-two", 2)])


def test_an_expression_that_cannot_be_used_is_an_error(broker: BrokerProcess, topic: str) -> None:
    """Back references are fine with librdkafka's own engine; in time linear in the input there are none."""
    with closing(Member(broker, topic, r"^(a)\1")) as member:
        until([member], lambda: bool(member.errors))
        assert member.errors[0].code() == KafkaError._FATAL
        assert "regular expression is not valid" in member.errors[0].str()


def test_a_static_member_that_restarts_gets_its_partitions_and_nobody_notices(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    create(admin, topic)
    first = Member(broker, topic, topic, group_instance_id="one")
    with closing(Member(broker, topic, topic, group_instance_id="two")) as second:
        until([first, second], lambda: shared([first, second], topic))
        before = first.partitions
        moves = len(second.given), len(second.taken)
        first.close()
        with closing(Member(broker, topic, topic, group_instance_id="one")) as again:
            until([again, second], lambda: again.partitions == before)
            assert (len(second.given), len(second.taken)) == moves


def test_a_second_member_with_the_same_instance_id_is_refused(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    create(admin, topic)
    with closing(Member(broker, topic, topic, group_instance_id="one")) as first:
        until([first], lambda: first.partitions == everything(topic))
        with closing(Member(broker, topic, topic, group_instance_id="one")) as second:
            until([first, second], lambda: bool(second.errors))
            assert second.errors[0].code() == KafkaError._FATAL
            assert "instance ID is still used" in second.errors[0].str()
            assert first.partitions == everything(topic)


def test_a_group_goes_to_the_other_protocol_and_back_when_it_is_empty(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    create(admin, topic)
    produce(broker, topic, 8)
    for count, protocol in enumerate(("classic", "consumer", "classic"), 1):
        with closing(Member(broker, topic, topic, group_protocol=protocol)) as member:
            until([member], lambda member=member: len(member.values) == 8)  # type: ignore[misc]
            member.consumer.commit(asynchronous=False)
        produce(broker, topic, 8, first=8 * count)


def test_a_group_survives_the_brokers_death(start_broker: Callable[..., BrokerProcess], topic: str) -> None:
    """Members go on where they were, with the partitions they had and the offsets they have committed."""
    broker = start_broker(options=OPTIONS)
    create(admin_of(broker), topic)
    produce(broker, topic, 100)
    members = [Member(broker, topic, topic) for _ in range(2)]
    with closing(members[0]), closing(members[1]):
        until(members, lambda: shared(members, topic) and all(member.has_read(25) for member in members))
        for member in members:
            member.consumer.commit(asynchronous=False)
        before = [member.partitions for member in members]
        broker.kill()
        broker = start_broker(Path(broker.data), port=broker.port, options=OPTIONS)
        values = produce(broker, topic, 100, first=1000)
        until(members, lambda: set(values) <= {value for m in members for value in m.values})
        assert [member.partitions for member in members] == before
        committed = Consumer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "group.id": topic})
        with closing(committed):
            found = committed.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 30)
        assert [one.offset for one in found] == [25] * PARTITIONS


@pytest.mark.timeout(FETCH_LIMIT_S + 300)
def test_apache_kafkas_consumer_and_its_tools(
    kafka_tools: KafkaTools, start_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    """They join, describe the group, and read the records of the group that we have written."""
    broker = start_broker(options={**OPTIONS, "offsets.topic.num.partitions": 1})
    create(admin_of(broker), topic)
    values = produce(broker, topic, 40)
    at = ["--bootstrap-server", broker.bootstrap]
    arguments = ["--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "40"]
    read = kafka_tools("kafka-console-consumer", *at, *arguments, "--command-property", "group.protocol=consumer")
    assert sorted(read.split()) == sorted(value.decode() for value in values)
    with closing(Member(broker, topic, topic, client_id="me")) as member:
        until([member], lambda: member.partitions == everything(topic))
        shown = kafka_tools("kafka-consumer-groups", *at, "--describe", "--group", topic, "--members", "--verbose")
        assert re.search(rf"{topic}\s+\S+\s+/127.0.0.1\s+me\s+4 ", shown), shown
    assert broker.stop() == 0
    (log,) = (broker.data / "topics" / "__consumer_offsets-0").glob("*.log")
    dumped = kafka_tools("kafka-dump-log", "--offsets-decoder", "--files", str(log))
    lines = [line for line in dumped.splitlines() if f'"groupId":"{topic}"' in line]
    assert {int(kind) for line in lines for kind in re.findall(r'key: {"type":"(\d+)"', line)} >= {3, 5, 6, 7, 8}, (
        dumped
    )
    assert '"assignmentEpochs":[' in dumped
