"""A real broker, killed at random moments under real transactional producers: what is committed is there once, in
order, and nothing else is seen."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.testing.transactions import Fate, History
from support.committed import read_all
from support.process import BrokerProcess

PARTITIONS = 3
TOPIC = "transactions"
LIMIT_S = 100


class Writer(threading.Thread):
    """Transactions, one after another, until told to stop; now and then by a new producer of the same id."""

    def __init__(self, bootstrap: str, name: str, history: History, lock: threading.Lock, seed: int) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.ended = threading.Semaphore(0)
        self.failure: BaseException | None = None
        self._servers = bootstrap
        self._transactional_id = name
        self._history = history
        self._lock = lock
        self._rng = random.Random(seed)
        self._number = 0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                producer = self.producer()
                for _ in range(self._rng.randint(5, 30)):
                    if self.stopping.is_set() or not self._transaction(producer):
                        break
        except BaseException as error:
            self.failure = error

    def producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": 30_000,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        producer.init_transactions(LIMIT_S)
        return producer

    def _transaction(self, producer: Producer) -> bool:
        """Whether this producer may go on."""
        rng = self._rng
        with self._lock:
            transaction = self._history.begin(self._transactional_id)
        producer.begin_transaction()
        for _ in range(rng.randint(1, 30)):
            partition = rng.randrange(PARTITIONS)
            value = f"{self._transactional_id}/{self._number}".encode()
            self._number += 1
            transaction.add(partition, value)
            producer.produce(TOPIC, value, partition=partition)
        if rng.random() < 0.1:
            return False  # left open: the next producer ends it
        commit = rng.random() < 0.7
        try:
            if commit:
                transaction.fate = Fate.UNKNOWN
                producer.commit_transaction(LIMIT_S)
                transaction.fate = Fate.COMMITTED
            else:
                producer.abort_transaction(LIMIT_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(LIMIT_S)  # which says that it was not committed
                transaction.fate = Fate.ABORTED
            return False
        self.ended.release()
        return True


def tell(start_broker: Callable[..., BrokerProcess], data: Path, *, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    broker = start_broker(data, options={"num.partitions": PARTITIONS})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        future.result()
    history, lock = History(), threading.Lock()
    writers = [Writer(broker.bootstrap, f"tx-{i}", history, lock, seed * 10 + i) for i in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(kills):
        for writer in writers:
            for _ in range(rng.randint(1, 20)):
                assert writer.ended.acquire(timeout=LIMIT_S), f"no transaction ends any more: {writer.failure}"
        broker.kill()
        broker = start_broker(data, port=broker.port, options={"num.partitions": PARTITIONS})
    for writer in writers:
        writer.stopping.set()
    for writer in writers:
        writer.join(LIMIT_S)
        assert not writer.is_alive() and writer.failure is None, writer.failure
    # What was left open holds the readers up: whoever takes its id ends it.
    for writer in writers:
        writer.producer()
    read = read_all(broker.bootstrap, TOPIC, PARTITIONS)
    assert not history.problems(read)
    assert sum(one.fate is Fate.COMMITTED for one in history.transactions) >= 2 * kills
    assert broker.stop() == 0


def test_transactions_survive_kills(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    tell(start_broker, tmp_path / "data", kills=3, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2, 8))
def test_transactions_survive_many_kills(start_broker: Callable[..., BrokerProcess], tmp_path: Path, seed: int) -> None:
    tell(start_broker, tmp_path / "data", kills=30, seed=seed)
