"""What the examples share: a broker, numbers to send through it, a worker that is killed, a look at what arrived."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

NUMBERS = 100
BATCH = 10
KILLED_AT = 45
"""The worker kills itself when it has seen this number: in the middle of a batch."""


def wanted_address() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", help="a broker; without one, a Klamm broker is started for the example")
    parser.add_argument("--worker", nargs=2, metavar=("SOURCE", "TARGET"), help=argparse.SUPPRESS)
    parser.add_argument("--dies", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


@contextlib.contextmanager
def broker(address: str | None) -> Iterator[str]:
    if address:
        yield address
        return
    import klamm.testing

    with klamm.testing.broker() as started:
        yield started.bootstrap


class Stage:
    """Two new topics, `source` with the numbers 0 to 99 in it, and `target`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        name = uuid.uuid4().hex[:8]
        self.source, self.target = f"source-{name}", f"target-{name}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic(topic, num_partitions=1, replication_factor=1) for topic in (self.source, self.target)]
        for future in admin.create_topics(topics).values():
            future.result()
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(NUMBERS):
            producer.produce(self.source, str(number))
        producer.flush()

    def work(self) -> None:
        """A worker that is killed in the middle, then one that finishes."""
        for dies in (True, False):
            command = [sys.executable, sys.argv[0], "--bootstrap", self.bootstrap, "--worker", self.source, self.target]
            code = subprocess.run([*command, "--dies"] if dies else command, check=False).returncode
            assert code == (-signal.SIGKILL if dies else 0), f"the worker ended with {code}"
            print("The worker was killed." if dies else "A new worker has done the rest.")

    def arrived(self, isolation: str) -> list[int]:
        """Everything in the target, from its beginning to its end."""
        return [int(message.value()) for message in read_all(self.bootstrap, self.target, isolation)]

    def report(self) -> None:
        arrived = Counter(self.arrived("read_committed"))
        lost = [number for number in range(NUMBERS) if not arrived[number]]
        doubled = [number for number in range(NUMBERS) if arrived[number] > 1]
        print(f"{NUMBERS} numbers were sent, {sum(arrived.values())} arrived.")
        print(f"lost:    {listed(lost)}")
        print(f"doubled: {listed(doubled)}")


def listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def read_all(bootstrap: str, topic: str, isolation: str) -> Iterator[Message]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(10)
            if message is None or message.error():  # the end of the partition
                return
            yield message
    finally:
        consumer.close()


def subscribed(bootstrap: str, group: str, topic: str) -> Consumer:
    """A member of a group that commits only when it is told to."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,  # so long the group waits for the worker that was killed
        }
    )
    consumer.subscribe([topic])
    return consumer


def batches(consumer: Consumer) -> Iterator[list[Message]]:
    """Ten messages at a time, until the last number has come."""
    last = -1
    while last < NUMBERS - 1:
        messages = consumer.consume(BATCH, timeout=30)
        assert messages, "nothing came for 30 s"
        for message in messages:
            if message.error():
                raise RuntimeError(message.error())
        last = int(messages[-1].value())
        yield messages


def die(dies: bool, message: Message) -> None:
    """As a power cut would: no cleaning up, no goodbye to the group."""
    if dies and int(message.value()) == KILLED_AT:
        os.kill(os.getpid(), signal.SIGKILL)


def main(work: Callable[[str, str, str, bool], None], show: Callable[[Stage], None] = Stage.report) -> None:
    options = wanted_address()
    if options.worker:
        work(options.bootstrap, *options.worker, options.dies)
        return
    with broker(options.bootstrap) as bootstrap:
        stage = Stage(bootstrap)
        stage.work()
        show(stage)
