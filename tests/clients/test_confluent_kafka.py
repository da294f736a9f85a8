"""librdkafka through confluent-kafka: the client that most Python people use."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.process import BrokerProcess
from support.stored import CODEC_NAMES, stored_codecs

RECORDS = [
    (b"key", b"value", [("one", b"1"), ("empty", b""), ("null", None)]),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (b"", b"", []),
    (None, None, []),
    (b"large", b"x" * 900_000, []),
]


def produce(bootstrap: str, topic: str, records: list, **config: object) -> list[int]:
    offsets: list[int] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer(
        {"log_level": 0, "bootstrap.servers": bootstrap, "linger.ms": 5, "message.timeout.ms": 30_000, **config}
    )
    for key, value, headers in records:
        producer.produce(topic, key=key, value=value, headers=headers, on_delivery=delivered)
    assert producer.flush(30) == 0
    return offsets


def consume(bootstrap: str, topic: str, count: int, start: int = OFFSET_BEGINNING) -> list:
    consumer = Consumer(
        {"log_level": 0, "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    messages: list = []
    try:
        while len(messages) < count:
            batch = consumer.consume(count - len(messages), timeout=30)
            assert batch, f"only {len(messages)} of {count} came"
            for message in batch:
                assert message.error() is None, message.error()
            messages.extend(batch)
    finally:
        consumer.close()
    return messages


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec_round_trips_and_stays_compressed_on_disk(broker: BrokerProcess, topic: str, codec: str) -> None:
    records = RECORDS + [(str(i).encode(), b"compressible " * 20, []) for i in range(500)]
    offsets = produce(broker.bootstrap, topic, records, **{"compression.type": codec, "acks": "all"})
    assert sorted(offsets) == list(range(len(records)))
    back = consume(broker.bootstrap, topic, len(records))
    assert [(m.key(), m.value(), m.headers() or []) for m in back] == records
    assert codec in stored_codecs(broker.data, topic)
    if codec != "none":
        assert stored_codecs(broker.data, topic) <= {codec, "none"}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_level_delivers(broker: BrokerProcess, topic: str, acks: str) -> None:
    records = [(None, str(i).encode(), []) for i in range(1000)]
    produce(broker.bootstrap, topic, records, acks=acks)
    assert [m.value() for m in consume(broker.bootstrap, topic, 1000)] == [value for _, value, _ in records]


def test_an_idempotent_producer_keeps_order(broker: BrokerProcess, topic: str) -> None:
    records = [(None, str(i).encode(), []) for i in range(5000)]
    produce(broker.bootstrap, topic, records, **{"enable.idempotence": True, "batch.num.messages": 100})
    assert [m.value() for m in consume(broker.bootstrap, topic, 5000)] == [value for _, value, _ in records]


def test_offsets_are_found_by_time_and_at_both_ends(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    for i in range(10):
        producer.produce(topic, value=str(i).encode(), timestamp=1_700_000_000_000 + i * 1000)
        producer.flush(30)
    consumer = Consumer(
        {"log_level": 0, "bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 10)
        found = consumer.offsets_for_times([TopicPartition(topic, 0, 1_700_000_004_500)], timeout=30)
        assert found[0].offset == 5
        assert [m.value() for m in consume(broker.bootstrap, topic, 3, start=7)] == [b"7", b"8", b"9"]
    finally:
        consumer.close()


def test_topics_are_created_listed_and_deleted(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])[topic].result(30)
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 3
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(30)
    with pytest.raises(KafkaException, match="TOPIC_EXCEPTION"):
        admin.create_topics([NewTopic("not/valid", num_partitions=1)])["not/valid"].result(30)
    admin.delete_topics([topic])[topic].result(30)
    assert topic not in admin.list_topics(timeout=30).topics
    assert not list((broker.data / "topics").glob(f"{topic}-*"))


def test_a_record_above_the_limit_is_refused_and_the_rest_goes_on(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"log_level": 0, "bootstrap.servers": broker.bootstrap, "message.max.bytes": 5_000_000})
    errors: list = []
    producer.produce(topic, value=b"x" * 2_000_000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors[0].name() == "MSG_SIZE_TOO_LARGE"
    assert produce(broker.bootstrap, topic, [(None, b"small", [])]) == [0]
