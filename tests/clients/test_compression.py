"""Real clients and a topic that stores everything in one way, whatever a producer sends."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.records.batch import iter_batches
from klamm.records.compression import Codec
from support.process import BrokerProcess

COUNT = 1500
KINDS = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


def value(i: int) -> bytes:
    """Now and then one that makes its batch large, so that threads and the loop take turns."""
    return b"%d " % i * (5000 if i % 50 == 0 else 5)


@pytest.mark.parametrize("kind", KINDS)
def test_idempotent_producers_of_every_codec_are_stored_in_order(broker: BrokerProcess, topic: str, kind: str) -> None:
    topic = f"{topic[:100]}-{kind}"
    admin = AdminClient({"log_level": 0, "bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"compression.type": kind})])[topic].result(30)
    sent = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "log_level": 0,
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 1,
            }
        )
        for i in range(sent, sent + COUNT // 5):
            producer.produce(topic, value(i), headers=[("number", b"%d" % i)], timestamp=1_700_000_000_000 + i)
        sent += COUNT // 5
        assert producer.flush(60) == 0
    assert consumed(broker, topic) == [(i, value(i), 1_700_000_000_000 + i) for i in range(COUNT)]
    assert stored_codecs(broker.data / "topics" / f"{topic}-0") == {KINDS[kind]}


def consumed(broker: BrokerProcess, topic: str) -> list[tuple[int, bytes, int]]:
    consumer = Consumer(
        {"log_level": 0, "bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, int]] = []
    try:
        while len(found) < COUNT:
            batch = consumer.consume(COUNT - len(found), timeout=30)
            assert batch, f"only {len(found)} of {COUNT} came"
            found += [(int(m.headers()[0][1]), m.value(), m.timestamp()[1]) for m in batch]
    finally:
        consumer.close()
    return found


def stored_codecs(folder: Path) -> set[int]:
    data = (folder / f"{0:020}.log").read_bytes()
    return {header.codec for _, header in iter_batches(data)}
