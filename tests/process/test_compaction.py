"""Compaction in a real broker: with a child process, real files, real clients, and kills."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from klamm.core.env.real import RealFiles
from klamm.log.repair import survey
from support.process import BrokerProcess

HASTY = {"log.cleaner.backoff.ms": 20, "auto.create.topics.enable": "false"}
TOPIC = "compacted"
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(data, options=HASTY)
    yield process
    process.stop()


def create(bootstrap: str, **changes: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (made,) = admin.create_topics([NewTopic(TOPIC, 1, config=COMPACT | changes)]).values()
    made.result(30)


def producer(bootstrap: str, **options: Any) -> Producer:
    return Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 1, "batch.num.messages": 50, **options}
    )


def fill(bootstrap: str, rounds: int, keys: int = 20, **options: Any) -> None:
    sender = producer(bootstrap, **options)
    for number in range(rounds):
        for key in range(keys):
            noise = random.Random(f"{number} {key}").randbytes(50)  # to keep its size when it is compressed
            sender.produce(TOPIC, b"%d." % number + noise, key=f"k{key}".encode(), partition=0)
        sender.flush(30)


def read_all(bootstrap: str) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) up to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "nothing comes any more"
            error = message.error()
            if error is None:
                found.append((message.offset(), message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def read_compacted(bootstrap: str, at_most: int) -> list[tuple[int, bytes, bytes | None]]:
    while len(found := read_all(bootstrap)) > at_most:
        pass
    return found


def log_names(data: Path) -> list[str]:
    return os.listdir(data / "topics" / f"{TOPIC}-0")


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_every_client_reads_a_compacted_topic_and_so_does_the_next_broker(
    broker: BrokerProcess, data: Path, codec: str
) -> None:
    create(broker.bootstrap)
    fill(broker.bootstrap, 60, **{"compression.type": codec})
    found = read_compacted(broker.bootstrap, 400)
    last = {key: value for _, key, value in found}
    assert {key: value.split(b".")[0] for key, value in last.items() if value} == {b"k%d" % i: b"59" for i in range(20)}
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(offsets) and offsets[-1] == 1199

    reader = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=1000)
    reader.assign([PythonTopicPartition(TOPIC, 0)])
    reader.seek_to_beginning()
    assert {message.key: message.value for message in reader} == last
    reader.close()
    other = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
    await other.start()
    other.assign([AioTopicPartition(TOPIC, 0)])
    await other.seek_to_beginning()
    seen: dict[bytes, bytes] = {}
    while await other.position(AioTopicPartition(TOPIC, 0)) < 1200:
        for messages in (await other.getmany(timeout_ms=1000)).values():
            seen |= {message.key: message.value for message in messages}
    await other.stop()
    assert seen == last

    assert broker.stop() == 0
    assert not [name for name in log_names(data) if name.endswith((".swap", ".cleaned"))]
    assert not survey(RealFiles(), str(data / "topics" / f"{TOPIC}-0")).damages
    again = BrokerProcess(data, options=HASTY)
    try:
        assert {key: value for _, key, value in read_all(again.bootstrap)} == last
        fill(again.bootstrap, 1)
    finally:
        assert again.stop() == 0
    assert not any("Traceback" in line for line in broker.errors + again.errors)


def test_a_deleted_key_is_gone_in_the_end(broker: BrokerProcess) -> None:
    create(broker.bootstrap)
    sender = producer(broker.bootstrap)
    sender.produce(TOPIC, b"1", key=b"gone", partition=0)
    sender.produce(TOPIC, None, key=b"gone", partition=0)
    sender.flush(30)
    rounds = 0
    while b"gone" in {key for _, key, _ in read_all(broker.bootstrap)}:
        fill(broker.bootstrap, 10)
        rounds += 1
    assert rounds


def test_a_record_without_a_key_is_an_error_of_its_producer(broker: BrokerProcess) -> None:
    create(broker.bootstrap)
    errors: list[Any] = []
    sender = producer(broker.bootstrap)
    sender.produce(TOPIC, b"v", partition=0, on_delivery=lambda error, _: errors.append(error))
    sender.flush(30)
    assert errors[0].code() == KafkaError.INVALID_RECORD


def test_compaction_can_be_switched_on_for_a_topic_that_has_records_without_keys(broker: BrokerProcess) -> None:
    create(broker.bootstrap, **{"cleanup.policy": "delete"})
    sender = producer(broker.bootstrap)
    for number in range(1000):
        sender.produce(TOPIC, b"x" * 50, key=None if number % 2 else b"k", partition=0)
    sender.flush(30)
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])]
    ).values()
    done.result(30)
    fill(broker.bootstrap, 5)
    assert len(read_compacted(broker.bootstrap, 700)) >= 21


def test_committed_offsets_survive_compaction_and_a_kill(data: Path) -> None:
    options = HASTY | {
        "auto.create.topics.enable": "true",
        "offsets.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": 10_000,
        "log.cleaner.min.cleanable.ratio": 0.01,
    }
    folder = data / "topics" / "__consumer_offsets-0"
    broker = BrokerProcess(data, options=options)
    fill(broker.bootstrap, 1)
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    for number in range(300):
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, number)], asynchronous=False)
    while len(list(folder.glob("*.log"))) > 3:  # 300 commits are more
        consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)  # only reads: whoever writes might outrun it
    broker.kill()
    consumer.close()
    broker = BrokerProcess(data, options=options)
    again = Consumer(config | {"bootstrap.servers": broker.bootstrap})
    (found,) = again.committed([TopicPartition(TOPIC, 0)], timeout=30)
    assert found.offset == number
    again.close()
    assert broker.stop() == 0
    assert not any("Traceback" in line for line in broker.errors)


def test_the_tools_read_what_compaction_leaves(broker: BrokerProcess, data: Path) -> None:
    create(broker.bootstrap)
    fill(broker.bootstrap, 60)
    last = {key: value for _, key, value in read_compacted(broker.bootstrap, 400)}
    consumed = klamm("consume", TOPIC, "--exit-at-end", "--bootstrap", broker.bootstrap, "--format", "%k\\n")
    assert {line.encode() for line in consumed.splitlines()} == set(last)
    assert broker.stop() == 0
    assert "damage" not in klamm("log", "check", str(data))
    dumped = klamm("log", "dump", str(sorted((data / "topics" / f"{TOPIC}-0").glob("*.log"))[0]))
    assert "error" not in dumped


def klamm(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "klamm", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
def test_no_last_value_is_lost_whenever_the_broker_is_killed(data: Path, seed: int) -> None:
    """Also in the middle of a compaction, of which there is always one."""
    rng = random.Random(seed)
    broker = BrokerProcess(data, options=HASTY)
    create(broker.bootstrap)
    port = broker.port
    acknowledged: dict[bytes, int] = {}

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            number = int(message.value().split(b".")[0])
            acknowledged[message.key()] = max(number, acknowledged.get(message.key(), -1))

    sender = producer(
        broker.bootstrap, **{"enable.idempotence": True, "reconnect.backoff.max.ms": 100, "message.timeout.ms": 100_000}
    )
    for number in range(6000):
        while True:
            try:
                sender.produce(
                    TOPIC,
                    b"%d." % number + b"x" * 50,
                    key=b"k%d" % rng.randrange(50),
                    partition=0,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                sender.poll(0.1)
        sender.poll(0)
        if number % 1000 == 999:
            for _ in range(rng.randrange(2000)):
                sender.poll(0)
            broker.kill()
            broker = BrokerProcess(data, port=port, options=HASTY)
    assert sender.flush(60) == 0
    try:
        assert len(acknowledged) == 50
        for _ in range(3):
            last: dict[bytes, int] = {}
            for _, key, value in read_all(broker.bootstrap):
                assert value is not None
                number = int(value.split(b".")[0])
                assert number > last.get(key, -1), "out of order"
                last[key] = number
            assert last == acknowledged
        read_compacted(broker.bootstrap, 2000)
    finally:
        assert broker.stop() == 0
    assert not any("Traceback" in line for line in broker.errors)
