"""Transactions with real clients: librdkafka, kafka-python, aiokafka and Java's, which all do it in versions of their
own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PyTopicPartition
from kafka.structs import OffsetAndMetadata

from support.committed import LIMIT_S, read_all
from support.downloads import FETCH_LIMIT_S
from support.hanging import UNVERIFIED, write_late
from support.java import KafkaTools
from support.process import BrokerProcess

Make = Callable[..., Producer]


@pytest.fixture
def producers(broker: BrokerProcess) -> Iterator[Make]:
    """Transactional producers of librdkafka, ready for their first transaction."""
    made: list[Producer] = []

    def make(transactional_id: str, **options: Any) -> Producer:
        producer = Producer(
            {
                "log_level": 0,
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": transactional_id,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        producer.init_transactions(LIMIT_S)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        producer.purge()


def create(broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions)]).values():
        future.result()


def committed_offset(broker: BrokerProcess, group: str, topic: str) -> int:
    consumer = Consumer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], LIMIT_S)
    consumer.close()
    return int(found.offset)


# ---- librdkafka


def test_committed_records_are_seen_and_aborted_ones_are_not(
    broker: BrokerProcess, topic: str, producers: Make
) -> None:
    create(broker, topic, 3)
    producer = producers(topic)
    for number in range(6):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, b"%d" % number, partition=partition)
        if number % 3 == 1:
            producer.flush(LIMIT_S)  # so that there is something to abort
            producer.abort_transaction(LIMIT_S)
        else:
            producer.commit_transaction(LIMIT_S)
    expected = [b"0", b"2", b"3", b"5"]
    assert read_all(broker.bootstrap, topic, 3) == {0: expected, 1: expected, 2: expected}
    everything = [b"%d" % number for number in range(6)]
    assert read_all(broker.bootstrap, topic, 3, committed=False)[1] == everything


def test_what_is_not_committed_yet_is_not_seen(broker: BrokerProcess, topic: str, producers: Make) -> None:
    create(broker, topic)
    producer = producers(topic)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    producer.flush(LIMIT_S)
    plain = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    plain.produce(topic, b"behind it")
    plain.flush(LIMIT_S)
    assert read_all(broker.bootstrap, topic) == {0: []}
    assert read_all(broker.bootstrap, topic, committed=False) == {0: [b"a", b"behind it"]}
    producer.commit_transaction(LIMIT_S)
    assert read_all(broker.bootstrap, topic) == {0: [b"a", b"behind it"]}


def test_a_second_producer_fences_the_first_and_aborts_what_it_had_open(
    broker: BrokerProcess, topic: str, producers: Make
) -> None:
    create(broker, topic)
    first = producers(topic)
    first.begin_transaction()
    first.produce(topic, b"of the first")
    first.flush(LIMIT_S)
    second = producers(topic)
    second.begin_transaction()
    second.produce(topic, b"of the second")
    second.commit_transaction(LIMIT_S)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(LIMIT_S)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert read_all(broker.bootstrap, topic) == {0: [b"of the second"]}


def test_a_transaction_that_takes_too_long_is_aborted(broker: BrokerProcess, topic: str, producers: Make) -> None:
    create(broker, topic)
    silent = producers(topic, transaction_timeout_ms=1000)
    silent.begin_transaction()
    silent.produce(topic, b"late")
    silent.flush(LIMIT_S)
    other = producers(f"{topic}-other")
    other.begin_transaction()
    other.produce(topic, b"in time")
    other.commit_transaction(LIMIT_S)
    consumer = Consumer(
        {"log_level": 0, "bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(LIMIT_S)  # comes when the first one is out of the way
    assert message is not None and message.value() == b"in time"
    consumer.close()
    with pytest.raises(KafkaException):
        silent.commit_transaction(LIMIT_S)


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    broker: BrokerProcess, topic: str, producers: Make
) -> None:
    create(broker, topic)
    create(broker, f"{topic}-out")
    plain = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    for number in range(4):
        plain.produce(topic, b"%d" % number)
    plain.flush(LIMIT_S)
    consumer = Consumer(
        {
            "log_level": 0,
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    producer = producers(topic)
    for number, commit in enumerate([True, False]):
        message = consumer.poll(LIMIT_S)
        assert message is not None and message.value() == b"%d" % number
        producer.begin_transaction()
        producer.produce(f"{topic}-out", message.value())
        producer.flush(LIMIT_S)
        position = [TopicPartition(topic, 0, message.offset() + 1)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), LIMIT_S)
        if commit:
            producer.commit_transaction(LIMIT_S)
        else:
            producer.abort_transaction(LIMIT_S)
    consumer.close()
    assert committed_offset(broker, topic, topic) == 1
    assert read_all(broker.bootstrap, f"{topic}-out") == {0: [b"0"]}


def test_transactions_go_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    """Open ones too: what the producer wrote before is there, and one marker ends it all."""
    broker = BrokerProcess(tmp_path / "data", options={"num.partitions": 1})
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "transactional.id": "tx"})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce("t", b"committed")
    producer.commit_transaction(LIMIT_S)
    for value in (b"aborted", b"kept"):
        producer.begin_transaction()
        producer.produce("t", value + b" 1")
        producer.flush(LIMIT_S)
        broker.kill()
        broker = BrokerProcess(tmp_path / "data", port=broker.port, options={"num.partitions": 1})
        producer.produce("t", value + b" 2")
        producer.flush(LIMIT_S)
        if value == b"aborted":
            producer.abort_transaction(LIMIT_S)
        else:
            producer.commit_transaction(LIMIT_S)
    assert read_all(broker.bootstrap, "t") == {0: [b"committed", b"kept 1", b"kept 2"]}
    assert broker.stop() == 0


# ---- kafka-python


def test_kafka_python(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
    producer.init_transactions()
    group = f"{topic}-group"
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    for number in range(4):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number).get(LIMIT_S)
        position = {PyTopicPartition(topic, 0): OffsetAndMetadata(number + 1, "", -1)}
        producer.send_offsets_to_transaction(position, group)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    assert consumer.committed(PyTopicPartition(topic, 0)) == 3
    producer.close()
    consumer.close()
    assert read_all(broker.bootstrap, topic) == {0: [b"0", b"2"]}
    reader = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", consumer_timeout_ms=LIMIT_S * 1000
    )
    reader.assign([PyTopicPartition(topic, 0)])
    reader.seek_to_beginning()
    assert [next(reader).value for _ in range(2)] == [b"0", b"2"]
    reader.close()


# ---- aiokafka


async def test_aiokafka(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    partition = AioTopicPartition(topic, 0)
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"0")
            await producer.send_offsets_to_transaction({partition: 7}, f"{topic}-group")
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(topic, b"1")
                await producer.send_offsets_to_transaction({partition: 8}, f"{topic}-group")
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send_and_wait(topic, b"2")
    assert committed_offset(broker, f"{topic}-group", topic) == 7
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([partition])
    async with consumer:
        assert [(await consumer.getone()).value for _ in range(2)] == [b"0", b"2"]


# ---- Java: transaction protocol 2, where the broker adds partitions and every transaction has an epoch of its own


@pytest.mark.timeout(FETCH_LIMIT_S + 300)
def test_javas_producer(broker: BrokerProcess, topic: str, kafka_tools: KafkaTools) -> None:
    create(broker, topic, 2)
    kafka_tools(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "20000"),
        *("--transactional-id", topic, "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )
    assert sum(map(len, read_all(broker.bootstrap, topic, 2).values())) == 2000
    listed = kafka_tools("kafka-transactions", "--bootstrap-server", broker.bootstrap, "list")
    assert any(line.startswith(topic) and "CompleteCommit" in line for line in listed.splitlines()), listed
    described = kafka_tools(
        "kafka-transactions", "--bootstrap-server", broker.bootstrap, "describe", "--transactional-id", topic
    )
    epoch = int(described.splitlines()[1].split()[3])
    assert epoch > 1, f"no epochs of their own: {described}"


@pytest.mark.timeout(FETCH_LIMIT_S + 300)
def test_javas_copier_copies_exactly_once(broker: BrokerProcess, topic: str, kafka_tools: KafkaTools) -> None:
    """Consume, produce and commit offsets in transactions, some of which it aborts and does over again."""
    create(broker, topic, 1)
    create(broker, f"{topic}-out", 2)
    plain = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    sent = [b"%d" % number for number in range(300)]
    for value in sent:
        plain.produce(topic, value)
    plain.flush(LIMIT_S)
    kafka_tools(
        "transactional-message-copier",
        *("--broker-list", broker.bootstrap, "--input-topic", topic, "--input-partition", "0"),
        *("--output-topic", f"{topic}-out", "--consumer-group", topic, "--transactional-id", topic),
        *("--transaction-size", "20", "--enable-random-aborts", "--group-mode", "--use-group-metadata"),
    )
    copied = read_all(broker.bootstrap, f"{topic}-out", 2)
    assert sorted(copied[0] + copied[1], key=int) == sent
    assert all(values == sorted(values, key=int) for values in copied.values())
    assert committed_offset(broker, topic, topic) == 300


@pytest.mark.timeout(FETCH_LIMIT_S + 300)
def test_a_hanging_transaction_is_found_and_ended_by_kafkas_tool(
    start_broker: Callable[..., BrokerProcess], topic: str, kafka_tools: KafkaTools
) -> None:
    broker = start_broker(options=UNVERIFIED)
    create(broker, topic)
    ended, open_ = (
        Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "transactional.id": name})
        for name in (topic, f"{topic}-open")
    )
    for producer in (ended, open_):
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        producer.produce(topic, b"x")
        if producer is ended:
            producer.commit_transaction(LIMIT_S)
            write_late(broker.bootstrap, topic)
    open_.flush(LIMIT_S)

    def found(*arguments: str) -> list[list[str]]:
        lines = kafka_tools("kafka-transactions", "--bootstrap-server", broker.bootstrap, *arguments).splitlines()
        return [line.split() for line in lines[1:]]

    where = ("--topic", topic, "--partition", "0")
    hanging = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    starts = sorted(line[-1] for line in found("describe-producers", *where))
    assert starts == ["2", "3"], "both are open"
    ((*place, _, _, _, start, _, _),) = found(*hanging)
    assert (place, start) == ([topic, "0"], "2"), "only one has no coordinator that would end it"
    found("abort", *where, "--start-offset", start)
    assert found(*hanging) == []
    open_.commit_transaction(LIMIT_S)
    assert read_all(broker.bootstrap, topic) == {0: [b"x", b"x"]}
