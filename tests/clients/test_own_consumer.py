"""Klamm's consumer without a group, on Klamm and on Apache Kafka. What it reads was written by librdkafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.aio import Consumer
from klamm.client.errors import BrokerSaid
from klamm.core.ids import TopicPartition

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(params=["klamm", "kafka"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    server = request.getfixturevalue("broker" if request.param == "klamm" else "apache_kafka")
    return str(server.bootstrap)


def create(bootstrap: str, topic: str, partitions: int) -> list[TopicPartition]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)
    return [TopicPartition(topic, number) for number in range(partitions)]


def write(bootstrap: str, place: TopicPartition, values: Sequence[bytes], **options: object) -> None:
    config = {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 1}
    producer = Producer({**config, **{name.replace("_", "."): value for name, value in options.items()}})
    for value in values:
        producer.produce(place.topic, value, partition=place.partition, headers=[("n", value[-1:])])
    assert producer.flush(30) == 0


async def read(consumer: Consumer, count: int) -> dict[TopicPartition, list[bytes]]:
    found: dict[TopicPartition, list[bytes]] = {}
    async with asyncio.timeout(30):
        while sum(map(len, found.values())) < count:
            for place, records in (await consumer.getmany(1000)).items():
                found.setdefault(place, []).extend(record.value for record in records)
    return found


async def test_many_partitions_are_read_in_a_session_while_they_grow(bootstrap: str, topic: str) -> None:
    places = create(bootstrap, topic, 12)
    values = {place: [b"%d/%d" % (place.partition, number) for number in range(50)] for place in places}
    for place, codec in zip(places, CODECS * 3, strict=False):
        write(bootstrap, place, values[place], compression_type=codec)
    async with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        assert await read(consumer, 600) == values
        for place in places[::3]:
            write(bootstrap, place, [b"more"])
        assert await read(consumer, 4) == {place: [b"more"] for place in places[::3]}
        consumer.seek_to_beginning(places[5])
        consumer.pause(*places[:3])
        write(bootstrap, places[0], [b"late"])
        assert await read(consumer, 50) == {places[5]: values[places[5]]}
        consumer.resume(places[0])
        assert await read(consumer, 1) == {places[0]: [b"late"]}
        sessions = consumer._reading._at_work._sessions.values()
        assert [session.is_open for session in sessions] == [True]


async def test_one_partition_is_read_record_by_record(bootstrap: str, topic: str) -> None:
    (place,) = create(bootstrap, topic, 1)
    write(bootstrap, place, [b"%d" % number for number in range(1000)])
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        expected = 0
        async with asyncio.timeout(30):
            async for record in consumer:
                assert (record.offset, record.value) == (expected, b"%d" % expected)
                assert record.headers == (("n", record.value[-1:]),)
                expected += 1
                if expected == 1000:
                    break
        assert await consumer.position(place) == 1000
        found = await consumer.offsets_for_times({place: record.timestamp})
        assert found[place] is not None and found[place].offset <= 999
        assert await consumer.end_offsets(place) == {place: 1000}
        assert await consumer.beginning_offsets(place) == {place: 0}


@pytest.mark.parametrize("committed", [True, False])
async def test_transactions_are_read_as_the_isolation_level_says(bootstrap: str, topic: str, committed: bool) -> None:
    (place,) = create(bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(30)  # an abort would leave out what was not sent
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    level = "read_committed" if committed else "read_uncommitted"
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=level) as consumer:
        consumer.assign([place])
        expected = [b"%d" % number for number in range(6) if not committed or number % 2 == 0]
        assert await read(consumer, len(expected)) == {place: expected}
        async with asyncio.timeout(30):
            while await consumer.position(place) < 12 and not await consumer.getmany(timeout_ms=100):
                pass  # behind the last marker
        assert consumer.lag(place) == 0
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        producer.flush(30)
        if committed:
            assert await consumer.getmany(timeout_ms=300) == {}
        producer.commit_transaction(30)
        assert await read(consumer, 1) == {place: [b"open"]}


async def test_a_topic_that_is_not_there_is_made_if_that_is_allowed(bootstrap: str, topic: str) -> None:
    async with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", allow_auto_create_topics=False
    ) as consumer:
        assert await consumer.getmany(timeout_ms=300) == {}
        with pytest.raises(BrokerSaid, match="UNKNOWN_TOPIC"):
            await consumer.partitions_for(topic)
    async with Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        reading = asyncio.ensure_future(consumer.getone())
        async with asyncio.timeout(30):
            while not consumer.assignment():
                await asyncio.sleep(0.01)
            write(bootstrap, TopicPartition(topic, 0), [b"first"])
            assert (await reading).value == b"first"
