"""Producing, by each client: in bulk, one record at a time, and what records in flight take of memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

from client_common import (
    BATCH_BYTES,
    CONFLUENT_QUEUE,
    DEFAULT_BUFFER,
    IN_FLIGHT_BUFFER,
    LATENCY_WARM_UP,
    LINGER_MS,
    WARM_UP,
    Result,
    Watch,
    ask,
    forget_peak,
    make_values,
    peak_bytes,
    percentiles,
    pieces,
    resident_bytes,
)

# Producing in bulk. `given.records` values are there before the clock starts, and the first of them go as a warm-up.


async def produced(given: Any, send: Callable[[list[bytes]], Awaitable[None]], flush: Callable[[], Any]) -> Result:
    values, watch = make_values(given.records), Watch()
    await send(values[:WARM_UP])
    await flush()
    watch.start()
    for piece in pieces(values):
        await send(piece)
    await flush()
    return watch.result(len(values))


def klamm_producer(given: Any, **options: Any) -> Any:
    from klamm.aio import Producer

    shared = {"bootstrap_servers": given.to, "linger_ms": LINGER_MS, "batch_size": BATCH_BYTES}
    return Producer(**{**shared, **options})


async def klamm_produce(given: Any) -> Result:
    """send_many"""
    async with klamm_producer(given) as producer:
        return await produced(given, lambda piece: producer.send_many(given.topic, piece), producer.flush)


async def klamm_produce_one_by_one(given: Any) -> Result:
    """send_soon"""
    async with klamm_producer(given) as producer:

        async def send(piece: list[bytes]) -> None:
            send_soon, topic = producer.send_soon, given.topic
            for value in piece:
                await send_soon(topic, value)

        return await produced(given, send, producer.flush)


def aiokafka_producer(given: Any, **options: Any) -> Any:
    from aiokafka import AIOKafkaProducer

    shared = {"bootstrap_servers": given.to, "linger_ms": LINGER_MS, "max_batch_size": BATCH_BYTES}
    return AIOKafkaProducer(**{**shared, "enable_idempotence": True, **options})


async def aiokafka_produce(given: Any) -> Result:
    """send"""
    async with aiokafka_producer(given) as producer:

        async def send(piece: list[bytes]) -> None:
            for value in piece:
                await producer.send(given.topic, value)

        return await produced(given, send, producer.flush)


async def aiokafka_produce_batches(given: Any) -> Result:
    """send_batch"""
    async with aiokafka_producer(given) as producer:

        async def send(piece: list[bytes]) -> None:
            batch = producer.create_batch()
            for value in piece:
                while batch.append(key=None, value=value, timestamp=None) is None:
                    await producer.send_batch(batch, given.topic, partition=0)
                    batch = producer.create_batch()
            await producer.send_batch(batch, given.topic, partition=0)

        return await produced(given, send, producer.flush)


def kafka_python_producer(given: Any, **options: Any) -> Any:
    from kafka import KafkaProducer

    shared = {"bootstrap_servers": given.to, "linger_ms": LINGER_MS, "batch_size": BATCH_BYTES}
    return KafkaProducer(**{**shared, **options})


async def kafka_python_produce(given: Any) -> Result:
    """send"""
    producer = kafka_python_producer(given)

    async def send(piece: list[bytes]) -> None:
        for value in piece:
            producer.send(given.topic, value)

    async def flush() -> None:
        producer.flush()

    return await produced(given, send, flush)


def confluent_producer(given: Any, **options: Any) -> Any:
    from confluent_kafka import Producer

    shared = {"bootstrap.servers": given.to, "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES}
    return Producer({**shared, "enable.idempotence": True, **CONFLUENT_QUEUE, **options})


async def confluent_produce(given: Any) -> Result:
    """produce"""
    producer = confluent_producer(given)

    async def send(piece: list[bytes]) -> None:
        produce, topic = producer.produce, given.topic
        for value in piece:
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)

    async def flush() -> None:
        producer.flush()

    return await produced(given, send, flush)


async def confluent_produce_batches(given: Any) -> Result:
    """produce_batch"""
    producer = confluent_producer(given)

    async def send(piece: list[bytes]) -> None:
        messages = [{"value": value} for value in piece]
        while messages:
            producer.produce_batch(given.topic, messages)
            messages = [{"value": message["value"]} for message in messages if "_error" in message]
            producer.poll(0.01 if messages else 0)

    async def flush() -> None:
        producer.flush()

    return await produced(given, send, flush)


# One record at a time, linger 0.


async def one_by_one(given: Any, send: Callable[[bytes], Awaitable[Any]]) -> Result:
    values, times = make_values(given.records + LATENCY_WARM_UP), []
    gc.collect()
    for value in values:
        start = time.perf_counter()
        await send(value)
        times.append(time.perf_counter() - start)
    return percentiles(times[LATENCY_WARM_UP:])


async def klamm_latency(given: Any) -> Result:
    """await send"""
    async with klamm_producer(given, linger_ms=0) as producer:
        return await one_by_one(given, lambda value: producer.send(given.topic, value))


async def aiokafka_latency(given: Any) -> Result:
    """await send_and_wait"""
    async with aiokafka_producer(given, linger_ms=0) as producer:
        return await one_by_one(given, lambda value: producer.send_and_wait(given.topic, value))


async def kafka_python_latency(given: Any) -> Result:
    """send, then get"""
    producer = kafka_python_producer(given, linger_ms=0)

    async def send(value: bytes) -> None:
        producer.send(given.topic, value).get(timeout=30)

    return await one_by_one(given, send)


async def confluent_latency(given: Any) -> Result:
    """produce, then flush"""
    producer = confluent_producer(given, **{"linger.ms": 0})

    async def send(value: bytes) -> None:
        producer.produce(given.topic, value)
        producer.flush()

    return await one_by_one(given, send)


# Memory. The broker stands still while all records are sent, so that all of them are on their way at once.


async def in_flight(given: Any, send: Callable[[list[bytes]], Awaitable[Any]], flush: Callable[[], Any]) -> Result:
    values = make_values(given.records)
    await send(values[:WARM_UP])
    await flush()
    gc.collect()
    forget_peak()
    before = resident_bytes()
    ask("stop the broker")
    held = await send(values)
    after = resident_bytes()
    ask("let the broker go on")
    await flush()
    del held
    return {"records": len(values), "grown_bytes": after - before, "peak_bytes": peak_bytes() - before}


async def klamm_memory(given: Any) -> Result:
    """send_many"""
    async with klamm_producer(given, buffer_memory=IN_FLIGHT_BUFFER) as producer:
        return await in_flight(given, lambda values: producer.send_many(given.topic, values), producer.flush)


async def klamm_memory_one_by_one(given: Any) -> Result:
    """send_soon, with what comes back of each"""
    async with klamm_producer(given, buffer_memory=IN_FLIGHT_BUFFER) as producer:

        async def send(values: list[bytes]) -> Any:
            return [await producer.send_soon(given.topic, value) for value in values]

        return await in_flight(given, send, producer.flush)


async def confluent_memory(given: Any) -> Result:
    """produce"""
    producer = confluent_producer(given)

    async def send(values: list[bytes]) -> None:
        for value in values:
            producer.produce(given.topic, value)

    async def flush() -> None:
        producer.flush()

    return await in_flight(given, send, flush)


async def klamm_through(given: Any) -> Result:
    """The broker takes them as they come; the buffer is a third of what is sent."""
    async with klamm_producer(given, buffer_memory=DEFAULT_BUFFER) as producer:
        values = make_values(given.records)
        await producer.send_many(given.topic, values[:WARM_UP])
        await producer.flush()
        gc.collect()
        forget_peak()
        before = resident_bytes()
        await producer.send_many(given.topic, values)
        await producer.flush()
        return {"records": len(values), "peak_bytes": peak_bytes() - before}
