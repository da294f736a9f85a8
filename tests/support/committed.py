"""What a consumer finds in a topic, by librdkafka."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, TopicPartition

LIMIT_S = 60


def read_all(bootstrap: str, topic: str, partitions: int = 1, *, committed: bool = True) -> dict[int, list[bytes]]:
    """The values of each partition, up to where they end just now."""
    consumer = Consumer(
        {
            "log_level": 0,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[bytes]] = {index: [] for index in range(partitions)}
    ended: set[int] = set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(LIMIT_S)
            assert message is not None, f"no end of {topic} was seen"
            if message.error() is None:
                found[message.partition()].append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    finally:
        consumer.close()
    return found
