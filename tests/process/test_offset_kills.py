"""Groups that commit offsets while their broker is killed at random moments: what was acknowledged is there again."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.process import BrokerProcess

GROUPS = 4
TOPIC = "t"
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


class Committer(threading.Thread):
    """One client of one group without members, which commits ever larger offsets."""

    def __init__(self, bootstrap: str, group: str) -> None:
        super().__init__(daemon=True)
        self.tried = self.acknowledged = 0
        self.stopping = threading.Event()
        self.progress = threading.Condition()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})

    def run(self) -> None:
        while not self.stopping.is_set():
            self.tried += 1
            try:
                (done,) = self._consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.tried)], asynchronous=False)
            except KafkaException:
                continue  # nobody has promised anything
            if done.error is None:
                with self.progress:
                    self.acknowledged = self.tried
                    self.progress.notify_all()
        self._consumer.close()

    def await_more(self, count: int) -> None:
        with self.progress:
            target = self.acknowledged + count
            assert self.progress.wait_for(lambda: self.acknowledged >= target, 100), "commits are stuck"

    def committed(self, bootstrap: str) -> int:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": self.name, **QUIET})
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=60)
        consumer.close()
        return int(found.offset)


def test_kills_lose_no_acknowledged_offset(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    seed = int(os.environ.get("KLAMM_SEED", random.randrange(2**32)))
    print(f"KLAMM_SEED={seed}")
    rng = random.Random(seed)
    # small segments, so that some are rolled and loading has several to read
    options = {"offsets.topic.segment.bytes": 20_000, "offsets.topic.num.partitions": 3}
    broker = start_broker(tmp_path / "data", options=options)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
    committers = [Committer(broker.bootstrap, f"group-{number}") for number in range(GROUPS)]
    for number, committer in enumerate(committers):
        committer.name = f"group-{number}"
        committer.start()
    for _ in range(3):
        for committer in committers:
            committer.await_more(rng.randrange(1, 300))
        broker.kill()
        broker = start_broker(tmp_path / "data", port=broker.port, options=options)
    for committer in committers:
        committer.await_more(1)
    broker.kill()
    for committer in committers:
        committer.stopping.set()
    broker = start_broker(tmp_path / "data", port=broker.port, options=options)
    for committer in committers:
        committer.join(100)
        assert not committer.is_alive()
        assert committer.acknowledged <= committer.committed(broker.bootstrap) <= committer.tried
