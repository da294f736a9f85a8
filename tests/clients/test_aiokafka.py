"""aiokafka: asyncio, and the oldest versions of the core APIs (no flexible ones)."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from support.process import BrokerProcess
from support.stored import CODEC_NAMES, stored_codecs


@pytest.mark.parametrize("codec", CODEC_NAMES)
async def test_every_codec_round_trips(broker: BrokerProcess, topic: str, codec: str) -> None:
    sent = [(f"k{i}".encode(), b"value " * 30) for i in range(300)]
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
        linger_ms=5,
    ) as producer:
        deliveries = [await producer.send(topic, value, key=key) for key, value in sent]
        assert [(await d).offset for d in deliveries] == list(range(300))

    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    async with consumer:
        await consumer.seek_to_beginning()
        back = [await consumer.getone() for _ in range(300)]
        assert [(r.key, r.value) for r in back] == sent
        assert (await consumer.end_offsets([TopicPartition(topic, 0)])).popitem()[1] == 300
    assert stored_codecs(broker.data, topic) == {codec}
