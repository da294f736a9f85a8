"""Klamm's consumer and an Apache Kafka of two brokers: the nearest replica (KIP-392), leaders that move (KIP-951), a
follower that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm.aio import Admin, Consumer, Producer
from klamm.client.admin.topics import NewTopic
from klamm.client.nodes import Lane
from klamm.core.ids import TopicPartition
from support.apache_kafka import ApacheKafka
from support.java import KafkaTools
from support.two_kafkas import SecondBroker

OPTIONS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@pytest.fixture(scope="module")
def brokers(
    tool: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ApacheKafka, SecondBroker]]:
    tools, folder = KafkaTools(tool), tmp_path_factory.mktemp("two-kafkas")
    first = ApacheKafka(tools, folder / "1", options={**OPTIONS, "broker.rack": "a"})
    second = SecondBroker(tools, folder / "2", first, {**OPTIONS, "broker.rack": "b"})
    try:
        first.start()
        second.start()
        yield first, second
    finally:
        second.kill()
        first.kill()


async def make(bootstrap: str, topic: str) -> TopicPartition:
    """With its leader on the first broker, and a follower on the second."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        (await admin.create_topics([NewTopic(topic, assignments=[[1, 2]])])).check()
    return TopicPartition(topic, 0)


async def write(bootstrap: str, topic: str, *values: bytes) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            await producer.send(topic, value, partition=0)


async def read(consumer: Consumer, count: int) -> list[bytes]:
    async with asyncio.timeout(60):
        return [(await consumer.getone()).value for _ in range(count)]


def consumer_of(bootstrap: str, **options: Any) -> Consumer:
    return Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50, **options)


async def test_a_consumer_reads_from_the_replica_in_its_rack(
    brokers: tuple[ApacheKafka, SecondBroker], topic: str
) -> None:
    bootstrap = brokers[0].bootstrap
    place = await make(bootstrap, topic)
    values = [b"%d" % number for number in range(100)]
    await write(bootstrap, topic, *values[:50])
    async with consumer_of(bootstrap, client_rack="b") as consumer:
        consumer.assign([place])
        assert await read(consumer, 50) == values[:50]
        assert consumer.subscriptions.state(place).preferred == 2
        asked = _asked(consumer, 1)
        await write(bootstrap, topic, *values[50:])
        assert await read(consumer, 50) == values[50:]
        assert _asked(consumer, 1) == asked, "the leader is left alone"
        assert _asked(consumer, 2) > 2


async def _until_idle(consumer: Consumer, node: int) -> None:
    assert consumer._cluster is not None
    connection = consumer._cluster.nodes.existing(node, Lane.FETCH)
    assert connection is not None
    while connection.in_flight:
        assert await consumer.getmany(timeout_ms=10) == {}


def _asked(consumer: Consumer, node: int) -> int:
    assert consumer._cluster is not None
    connection = consumer._cluster.nodes.existing(node, Lane.FETCH)
    return 0 if connection is None else connection.last_id


async def test_a_leader_that_moves_is_followed_without_asking_for_metadata(
    brokers: tuple[ApacheKafka, SecondBroker], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = brokers[0].bootstrap
    place = await make(bootstrap, topic)
    await write(bootstrap, topic, b"before")
    async with consumer_of(bootstrap) as consumer, Admin(bootstrap_servers=bootstrap) as admin:
        consumer.assign([place])
        assert await read(consumer, 1) == [b"before"]
        assert consumer._cluster is not None
        refreshed: list[object] = []
        ask = consumer._cluster.metadata

        async def metadata(*topics: Any, **options: Any) -> Any:
            refreshed.append(topics)
            return await ask(*topics, **options)

        monkeypatch.setattr(consumer._cluster, "metadata", metadata)
        # Nothing is fetched while it moves: the old leader might not know the new one yet, nor the new one itself.
        consumer.pause(place)
        await _until_idle(consumer, 1)
        (await admin.alter_reassignments({place: [2, 1]})).check()
        (await admin.elect_leaders([place])).check()
        await write(bootstrap, topic, b"after")
        consumer.resume(place)
        assert await read(consumer, 1) == [b"after"]
        leader = consumer._cluster.leader(*place)
        assert leader is not None
        assert leader.leader == 2
        assert not refreshed


async def test_when_the_replica_in_the_rack_dies_the_leader_is_read_from(
    brokers: tuple[ApacheKafka, SecondBroker], topic: str
) -> None:
    first, second = brokers
    place = await make(first.bootstrap, topic)
    await write(first.bootstrap, topic, b"1", b"2")
    async with consumer_of(first.bootstrap, client_rack="b") as consumer:
        consumer.assign([place])
        assert await read(consumer, 2) == [b"1", b"2"]
        second.kill()
        await write(first.bootstrap, topic, b"3")
        assert await read(consumer, 1) == [b"3"]
