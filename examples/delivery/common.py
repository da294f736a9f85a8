"""What the examples share: a broker, numbers to send through it, a worker that is killed, a look at what arrived.

The workers themselves use one client or the other: see `with_klamm` and `with_confluent`.
"""

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

import klamm.testing
from klamm import Admin, Consumer, Producer, TopicPartition
from klamm.admin import NewTopic

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
    with klamm.testing.broker() as started:
        yield started.bootstrap


class Stage:
    """Two new topics, `source` with the numbers 0 to 99 in it, and `target`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        name = uuid.uuid4().hex[:8]
        self.source, self.target = f"source-{name}", f"target-{name}"
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(topic, partitions=1) for topic in (self.source, self.target)]).check()
        with Producer(bootstrap_servers=bootstrap) as producer:
            producer.send_many(self.source, [b"%d" % number for number in range(NUMBERS)])

    def work(self) -> None:
        """A worker that is killed in the middle, then one that finishes."""
        for dies in (True, False):
            command = [sys.executable, sys.argv[0], "--bootstrap", self.bootstrap, "--worker", self.source, self.target]
            code = subprocess.run([*command, "--dies"] if dies else command, check=False).returncode
            assert code == (-signal.SIGKILL if dies else 0), f"the worker ended with {code}"
            print("The worker was killed." if dies else "A new worker has done the rest.")

    def arrived(self, isolation: str) -> list[int]:
        """Everything in the target, from its beginning to its end."""
        target = TopicPartition(self.target, 0)
        with Consumer(bootstrap_servers=self.bootstrap, isolation_level=isolation) as consumer:
            consumer.assign([target])
            consumer.seek_to_beginning()
            end = consumer.end_offsets(target)[target]
            numbers: list[int] = []
            while consumer.position(target) < end:
                for records in consumer.getmany(timeout_ms=1000).values():
                    numbers += [int(record.value) for record in records]
            return numbers

    def report(self) -> None:
        arrived = Counter(self.arrived("read_committed"))
        lost = [number for number in range(NUMBERS) if not arrived[number]]
        doubled = [number for number in range(NUMBERS) if arrived[number] > 1]
        print(f"{NUMBERS} numbers were sent, {sum(arrived.values())} arrived.")
        print(f"lost:    {listed(lost)}")
        print(f"doubled: {listed(doubled)}")

    def report_aborted(self) -> None:
        """The same, and what only those see who read uncommitted records."""
        self.report()
        written = Counter(self.arrived("read_uncommitted"))
        aborted = sorted(number for number, times in written.items() if times > 1)
        print(f"written twice, the first time in a transaction that was aborted: {listed(aborted)}")


def listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def die(dies: bool, value: bytes) -> None:
    """As a power cut would: no cleaning up, no goodbye to the group."""
    if dies and int(value) == KILLED_AT:
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
