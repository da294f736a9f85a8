"""A real broker, killed at random moments under a real producer: nothing acknowledged is lost, nothing torn served."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from support.process import BrokerProcess

PARTITIONS = 3
TOPIC = "kills"


class Writer(threading.Thread):
    """Produces numbered records until told to stop and remembers which of them were acknowledged, and where."""

    def __init__(self, bootstrap: str, *, idempotent: bool, seed: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # (partition, offset) -> value
        self.progress = threading.Condition()
        self.stopping = threading.Event()
        self.failed: list[str] = []
        self._rng = random.Random(seed)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "compression.type": self._rng.choice(["none", "lz4", "zstd"]),
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "queue.buffering.max.messages": 20_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            value = f"{number}:".encode() + self._rng.randbytes(self._rng.choice([1, 100, 3000]))
            try:
                self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.1)
        self._producer.flush(120)

    def _delivered(self, error: object, message: object) -> None:
        with self.progress:
            if error is not None:
                self.failed.append(str(error))
            else:
                self.acknowledged[message.partition(), message.offset()] = message.value()
            self.progress.notify_all()

    def await_more(self, count: int) -> None:
        with self.progress:
            target = len(self.acknowledged) + count
            assert self.progress.wait_for(lambda: len(self.acknowledged) >= target, 100), "the producer is stuck"


def read_all(bootstrap: str) -> dict[tuple[int, int], bytes]:
    consumer = Consumer(
        {
            "log_level": 0,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    ends = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in range(PARTITIONS)}
    consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    while len(found) < sum(ends.values()):
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {sum(ends.values())} records could be read"
        assert message.error() is None, message.error()
        found[message.partition(), message.offset()] = message.value()
    consumer.close()
    assert set(found) == {(p, offset) for p, end in ends.items() for offset in range(end)}, "offsets have holes"
    return found


def kill_loop(start_broker: Callable[..., BrokerProcess], data: Path, *, kills: int, idempotent: bool) -> None:
    seed = int(os.environ.get("KLAMM_SEED", random.randrange(2**32)))
    print(f"KLAMM_SEED={seed}")
    rng = random.Random(seed)
    options = {"num.partitions": PARTITIONS, "log.segment.bytes": 1_000_000}
    broker = start_broker(data, options=options)
    writer = Writer(broker.bootstrap, idempotent=idempotent, seed=seed)
    writer.start()
    for _ in range(kills):
        writer.await_more(rng.randrange(1, 4000))
        broker.kill()
        broker = start_broker(data, port=broker.port, options=options)
    writer.await_more(100)
    writer.stopping.set()
    writer.join(120)
    assert not writer.is_alive()
    assert not writer.failed, writer.failed[:3]
    found = read_all(broker.bootstrap)
    lost = {at: value for at, value in writer.acknowledged.items() if found.get(at) != value}
    assert not lost, f"{len(lost)} acknowledged records are lost or changed, first at {min(lost)}"
    if idempotent:
        assert len(found) == len(writer.acknowledged), "records were written twice"
        for partition in range(PARTITIONS):
            numbers = [int(v.split(b":")[0]) for (p, _), v in sorted(found.items()) if p == partition]
            assert numbers == sorted(numbers), "records changed their order"


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_kills_lose_nothing_acknowledged(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, idempotent: bool
) -> None:
    kill_loop(start_broker, tmp_path / "data", kills=6, idempotent=idempotent)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_many_kills_lose_nothing_acknowledged(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, idempotent: bool
) -> None:
    kill_loop(start_broker, tmp_path / "data", kills=100, idempotent=idempotent)
