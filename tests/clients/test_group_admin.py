"""Offsets and groups as administrators see them: confluent-kafka (librdkafka), kafka-python, and Kafka's own tool."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as Place

from support.downloads import FETCH_LIMIT_S
from support.java import KafkaTools
from support.process import BrokerProcess

RECORDS = 10


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Of our own: it does not wait for more members."""
    options = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", options=options)
    yield process
    assert process.stop() == 0
    assert not [line for line in process.errors if "Traceback" in line], "".join(process.errors)


@pytest.fixture
def rd(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})


@pytest.fixture
def py(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def filled(broker: BrokerProcess, rd: AdminClient, topic: str) -> str:
    """A topic of two partitions with some records in each."""
    rd.create_topics([NewTopic(topic, 2)])[topic].result(30)
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    for number in range(2 * RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    return topic


@contextmanager
def member(broker: BrokerProcess, group: str, topic: str) -> Iterator[Consumer]:
    """A consumer that has its partitions."""
    options = {"log_level": 0, "bootstrap.servers": broker.bootstrap, "client.id": "jane", "enable.auto.commit": False}
    consumer = Consumer({**options, "group.id": group})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def result(futures: dict[Any, Any]) -> Any:
    """Of the one thing that was asked for."""
    (future,) = futures.values()
    return future.result(30)


def test_librdkafka_lists_describes_resets_and_deletes(broker: BrokerProcess, rd: AdminClient, filled: str) -> None:
    group = f"g-{filled}"
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(filled, 0, 4), TopicPartition(filled, 1, 5)])
    result(rd.alter_consumer_group_offsets([offsets]))
    found = result(rd.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert {p.partition: p.offset for p in found.topic_partitions} == {0: 4, 1: 5}
    listed = rd.list_consumer_groups(states={ConsumerGroupState.EMPTY}, types={ConsumerGroupType.CLASSIC}).result(30)
    assert (group, True) in [(one.group_id, one.is_simple_consumer_group) for one in listed.valid]
    with member(broker, group, filled):
        described = result(rd.describe_consumer_groups([group]))
        assert described.state == ConsumerGroupState.STABLE
        (who,) = described.members
        assert who.client_id == "jane" and len(who.assignment.topic_partitions) == 2
        refused = result(rd.alter_consumer_group_offsets([offsets])).topic_partitions
        assert [place.error.code() for place in refused] == [KafkaError.UNKNOWN_MEMBER_ID] * 2
        with pytest.raises(KafkaException):
            result(rd.delete_consumer_groups([group]))
    result(rd.delete_consumer_groups([group]))
    listed = rd.list_consumer_groups().result(30)
    assert group not in [one.group_id for one in listed.valid]


def test_kafka_python_lists_describes_resets_and_deletes(
    broker: BrokerProcess, py: KafkaAdminClient, filled: str
) -> None:
    group = f"g-{filled}"
    py.alter_group_offsets(group, {Place(filled, 0): OffsetAndMetadata(4, "note", -1)})
    assert py.list_group_offsets(group)[group][Place(filled, 0)].offset == 4
    assert group in [one["group_id"] for one in py.list_groups()]
    with member(broker, group, filled):
        assert py.describe_groups([group])[group]["group_state"] == "Stable"
        assert "NonEmptyGroupError" in str(py.delete_groups([group]))
    py.delete_groups([group])
    assert group not in [one["group_id"] for one in py.list_groups()]


@pytest.mark.timeout(FETCH_LIMIT_S + 300)
def test_kafkas_own_tool_describes_resets_and_deletes(
    broker: BrokerProcess, rd: AdminClient, kafka_tools: KafkaTools, filled: str
) -> None:
    group = f"g-{filled}"
    at = ["--bootstrap-server", broker.bootstrap]
    with member(broker, group, filled) as consumer:
        consumer.commit(offsets=[TopicPartition(filled, 0, 4)], asynchronous=False)
        described = kafka_tools("kafka-consumer-groups", *at, "--describe", "--group", group)
        assert re.search(rf"{group}\s+{filled}\s+0\s+4\s+10\s+6\s+jane-\S+\s+/127.0.0.1\s+jane", described)
        assert re.search(rf"{group}\s+{filled}\s+1\s+-\s+10\s+-\s+jane-", described)
    to_latest = ["--reset-offsets", "--group", group, "--topic", filled, "--to-latest", "--execute"]
    kafka_tools("kafka-consumer-groups", *at, *to_latest)
    found = result(rd.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert {p.partition: p.offset for p in found.topic_partitions} == {0: RECORDS, 1: RECORDS}
    assert "deletion" in kafka_tools("kafka-consumer-groups", *at, "--delete", "--group", group).lower()
    assert group not in [one.group_id for one in rd.list_consumer_groups().result(30).valid]
