"""kafka-python: speaks the newest versions, topic ids included."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from support.process import BrokerProcess
from support.stored import CODEC_NAMES, stored_codecs


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec_round_trips(broker: BrokerProcess, topic: str, codec: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5
    )
    sent = [(f"k{i}".encode(), b"value " * 30, [("h", b"1")]) for i in range(300)]
    futures = [producer.send(topic, key=k, value=v, headers=h) for k, v, h in sent]
    assert [f.get(30).offset for f in futures] == list(range(300))
    producer.close()

    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=30_000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    back = [next(consumer) for _ in range(300)]
    assert [(r.key, r.value, list(r.headers)) for r in back] == sent
    assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 300}
    consumer.close()
    assert stored_codecs(broker.data, topic) == {codec}


def test_a_waiting_consumer_sees_a_record_that_comes_later(broker: BrokerProcess, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send(topic, b"first").get(30)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=30_000, fetch_max_wait_ms=20_000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"first"
    consumer.poll(timeout_ms=50)  # the next fetch is now waiting in the broker
    producer.send(topic, b"second").get(30)
    assert next(consumer).value == b"second"
    consumer.close()
    producer.close()
