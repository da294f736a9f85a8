"""Our own producer against Klamm and Apache Kafka: the same calls, the same outcome. Others read what it wrote."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.aio import Producer
from klamm.client import BrokerSaid
from klamm.client.errors import ProducerFenced
from klamm.client.partitioner import partition_for_key
from support.committed import read_all
from support.java import KafkaTools

PARTITIONS = 3


@pytest.fixture(params=["klamm", "apache kafka"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    broker: Any = request.getfixturevalue("broker" if request.param == "klamm" else "apache_kafka")
    return str(broker.bootstrap)


@pytest.fixture
def made(bootstrap: str, topic: str) -> str:
    """A topic with three partitions."""
    admin = AdminClient({"log_level": 0, "bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result()
    return topic


async def values(bootstrap: str, topic: str, *, committed: bool = True) -> dict[int, list[bytes]]:
    return await asyncio.to_thread(read_all, bootstrap, topic, PARTITIONS, committed=committed)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_is_sent_is_read_by_others(bootstrap: str, made: str, codec: str) -> None:
    many = [b"%d" % number for number in range(2000)]
    keys = [b"key-%d" % (number % 70) for number in range(2000)]
    async with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        await producer.send_many(made, many, keys=keys)
        where = await producer.send(made, b"last", key=b"k", headers={"h": b"x"}, timestamp_ms=1_700_000_000_000)
    assert where.partition == partition_for_key(b"k", PARTITIONS)
    found = await values(bootstrap, made)
    for partition in range(PARTITIONS):
        mine = [v for k, v in zip(keys, many, strict=True) if partition_for_key(k, PARTITIONS) == partition]
        assert found[partition][: len(mine)] == mine
    assert found[where.partition][where.offset] == b"last"
    message = await asyncio.to_thread(read_one, bootstrap, made, where.partition, where.offset)
    assert (message.key(), message.headers(), message.timestamp()[1]) == (b"k", [("h", b"x")], 1_700_000_000_000)


def read_one(bootstrap: str, topic: str, partition: int, offset: int) -> Any:
    consumer = Consumer(
        {"log_level": 0, "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, partition, offset)])
    try:
        return consumer.poll(30)
    finally:
        consumer.close()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
async def test_every_acks_setting_writes(bootstrap: str, made: str, acks: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, acks=acks) as producer:
        await producer.send(made, b"first", partition=0)
        await producer.send_many(made, [b"%d" % number for number in range(100)], partition=0)
        await producer.flush()
    expected = [b"first", *(b"%d" % number for number in range(100))]
    while (found := (await values(bootstrap, made))[0]) != expected:
        assert acks == "0" and len(found) < 101  # nobody has promised that it is there by now


async def test_a_record_that_is_too_large_for_the_broker_is_refused_and_the_others_are_written(
    bootstrap: str, made: str
) -> None:
    async with Producer(bootstrap_servers=bootstrap, max_request_size=8 << 20, batch_size=4 << 20) as producer:
        small = [await producer.send_soon(made, b"x" * 300_000, partition=0) for _ in range(5)]  # too large together
        with pytest.raises(BrokerSaid, match="MESSAGE_TOO_LARGE"):
            await producer.send(made, b"x" * (2 << 20), partition=0)
        assert [(await delivery).offset for delivery in small] == [0, 1, 2, 3, 4]


async def test_transactions_commit_abort_and_fence(bootstrap: str, made: str) -> None:
    name = f"{made}-id"
    async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.send(made, b"%d" % number, partition=0)
                await producer.send_many(made, [b"many"] * 10, partition=1)
                await producer.send_offsets({(made, 2): number + 1}, f"{made}-group")
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send(made, b"aborted", partition=0)
                await producer.send_offsets({(made, 2): 99}, f"{made}-group")
                raise ZeroDivisionError
        async with Producer(bootstrap_servers=bootstrap, transactional_id=name) as other:
            with pytest.raises(ProducerFenced):
                async with producer.transaction():
                    await producer.send(made, b"fenced", partition=0)
            async with other.transaction():
                await other.send(made, b"3", partition=0)
    found = await values(bootstrap, made)
    assert (found[0], found[1]) == ([b"0", b"1", b"2", b"3"], [b"many"] * 30)
    consumer = Consumer({"log_level": 0, "bootstrap.servers": bootstrap, "group.id": f"{made}-group"})
    (position,) = await asyncio.to_thread(consumer.committed, [TopicPartition(made, 2)], 30)
    consumer.close()
    assert position.offset == 3


async def test_what_was_not_sent_when_a_transaction_was_aborted_is_no_error_of_the_producer(
    bootstrap: str, made: str
) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=f"{made}-id", linger_ms=60_000) as producer:
        await producer.begin()
        await producer.send_many(made, [b"aborted"] * 10)
        await producer.abort()
        async with producer.transaction():
            await producer.send_many(made, [b"kept"] * 10, partition=0)
        await producer.begin()
        await producer.send_many(made, [b"aborted"] * 10)
        await producer.abort()
        await producer.flush()
    assert (await values(bootstrap, made)) == {0: [b"kept"] * 10, 1: [], 2: []}


async def test_a_commit_that_was_given_up_while_it_wrote_may_be_called_again(bootstrap: str, made: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, transactional_id=f"{made}-id", linger_ms=60_000) as producer:
        for number in range(3):
            await producer.begin()
            await producer.send_many(made, [b"%d" % number] * 100, partition=0)
            committing = asyncio.ensure_future(producer.commit())
            await asyncio.sleep(0)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            await producer.commit()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                async with producer.transaction():
                    await producer.send_many(made, [b"given up"] * 100, partition=0)
        async with producer.transaction():
            await producer.send_many(made, [b"last"], partition=0)
    expected = [b"%d" % number for number in range(3) for _ in range(100)]
    assert (await values(bootstrap, made))[0] == [*expected, b"last"]


async def test_topics_are_created_by_the_first_record_where_the_broker_does_that(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        assert (await producer.send(topic, b"1")).offset == 0


def test_keys_go_to_the_partitions_that_java_chooses(kafka_tools: KafkaTools) -> None:
    cases = [(b"%x" % (number * 7919), 1 + number % 97) for number in range(3000)]
    lines = "".join(f"{key.hex()},{count}\n" for key, count in cases)
    chosen = kafka_tools.source("Partitions.java", stdin=lines).split()
    assert list(map(int, chosen)) == [partition_for_key(key, count) for key, count in cases]
