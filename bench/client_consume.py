"""Consuming, by each client: as objects, and by ours as Arrow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from client_common import AT_ONCE, CONFLUENT_CONSUMER, Result, Watch

# Consuming. The clock starts when the first records are there.


async def consumed(given: Any, lots: AsyncIterator[int]) -> Result:
    """`lots` gives the number of records of each answer, when the application has them."""
    watch, count = Watch(), -1
    async for found in lots:
        if count < 0 and found:
            watch.start()
            count, wanted = 0, given.records - found
        elif count >= 0:
            count += found
            if count >= wanted:
                break
    return watch.result(count)


def klamm_consumer(given: Any) -> Any:
    from klamm.aio import Consumer

    consumer = Consumer(bootstrap_servers=given.to, auto_offset_reset="earliest")
    consumer.assign([(given.topic, 0)])
    return consumer


def klamm_consume(touch: bool) -> Callable[[Any], Awaitable[Result]]:
    async def lots(consumer: Any) -> AsyncIterator[int]:
        while True:
            found = await consumer.getmany(AT_ONCE)
            if touch:
                sum_of(len(record.value) for records in found.values() for record in records)
            yield sum(map(len, found.values()))

    async def run(given: Any) -> Result:
        async with klamm_consumer(given) as consumer:
            return await consumed(given, lots(consumer))

    return run


def sum_of(lengths: Iterable[int]) -> None:
    assert sum(lengths) >= 0


async def klamm_arrow(given: Any) -> Result:
    async def lots(consumer: Any) -> AsyncIterator[int]:
        async for record_batch in consumer.arrow():
            yield record_batch.num_rows

    async with klamm_consumer(given) as consumer:
        return await consumed(given, lots(consumer))


async def klamm_decode(given: Any) -> Result:
    """What was fetched before, as record batches: the decoding alone."""
    from klamm import arrow

    chunks, records = [], 0
    async with klamm_consumer(given) as consumer:
        async for chunk in consumer.undecoded():
            chunks.append(chunk._replace(data=bytes(chunk.data)))
            records = chunk.next_offset
            if records >= given.records:
                break
    arrow.schema()  # which imports pyarrow
    watch, count = Watch(), 0
    watch.start()
    for record_batch in arrow.batches(chunks):
        count += record_batch.num_rows
    return watch.result(count)


def aiokafka_consume(touch: bool) -> Callable[[Any], Awaitable[Result]]:
    async def run(given: Any) -> Result:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(bootstrap_servers=given.to, auto_offset_reset="earliest", enable_auto_commit=False)

        async def lots() -> AsyncIterator[int]:
            while True:
                found = await consumer.getmany(max_records=AT_ONCE, timeout_ms=1000)
                if touch:
                    sum_of(len(record.value) for records in found.values() for record in records)
                yield sum(map(len, found.values()))

        async with consumer:
            consumer.assign([TopicPartition(given.topic, 0)])
            return await consumed(given, lots())

    return run


def kafka_python_consume(touch: bool) -> Callable[[Any], Awaitable[Result]]:
    async def run(given: Any) -> Result:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=given.to, auto_offset_reset="earliest", enable_auto_commit=False)
        consumer.assign([TopicPartition(given.topic, 0)])

        async def lots() -> AsyncIterator[int]:
            while True:
                found = consumer.poll(timeout_ms=1000, max_records=AT_ONCE)
                if touch:
                    sum_of(len(record.value) for records in found.values() for record in records)
                yield sum(map(len, found.values()))

        return await consumed(given, lots())

    return run


def confluent_consume(touch: bool) -> Callable[[Any], Awaitable[Result]]:
    async def run(given: Any) -> Result:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        shared = {"bootstrap.servers": given.to, "group.id": "bench", "enable.auto.commit": False}
        consumer = Consumer({**shared, **CONFLUENT_CONSUMER})
        consumer.assign([TopicPartition(given.topic, 0, OFFSET_BEGINNING)])

        async def lots() -> AsyncIterator[int]:
            while True:
                found = consumer.consume(AT_ONCE, timeout=1.0)
                if touch:
                    sum_of(len(message.value()) for message in found)
                yield len(found)

        return await consumed(given, lots())

    return run
