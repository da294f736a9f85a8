"""`klamm pipeline run` as a process, which is killed, stopped and looked at."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm import Consumer
from klamm.core.env.real import real_env
from klamm.records.consuming import ConsumerRecord
from support.pipelines import Folder
from support.spark import Topics

LIMIT_S = 300
KEYS = 7
BROKEN = 10
"""Every so many records one is no JSON."""
PER_BATCH = 40
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a Java that does not live for long."""


class Process:
    """A pipeline as a user runs it. What it says is read line by line."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "klamm", "pipeline", "run", str(folder), "--master", "local[2]", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self.started = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if " is running (" in line:
                self.started.set()
        self.started.set()

    def end(self, how: signal.Signals | None = None) -> int:
        if how is not None:
            self.process.send_signal(how)
        code = self.process.wait(LIMIT_S)
        if how is not signal.SIGKILL:  # then others may have the pipe for a moment
            self._reader.join(LIMIT_S)
        return code


class Story:
    """A pipeline that copies, counts and finds dead letters; what was written to it, and what it has to have done."""

    def __init__(self, path: Path, topics: Topics) -> None:
        self.topics = topics
        self.names = [topics.topic(2), *(topics.topic(1) for _ in range(3))]
        source, self.copied, self.counts, self.dead = self.names
        self.folder = Folder(path, topics)
        self.sent = 0
        self.processes: list[Process] = []
        self.folder.write(
            {
                "spark": {
                    "spark.sql.shuffle.partitions": 2, "spark.driver.memory": "512m",
                    "spark.driver.extraJavaOptions": QUICK,
                },
                "inputs": {
                    "numbers": {
                        "topic": source, "format": "json", "schema": "n int, k string", "starting": "earliest",
                        "dead_letters": self.dead, "options": {"maxOffsetsPerTrigger": PER_BATCH},
                    }
                },
                "flows": {
                    "copied": {"sql": "copied.sql", "output": {"topic": self.copied, "format": "text"}},
                    "counts": {
                        "sql": "counts.sql", "output": {"topic": self.counts, "key": "k", "format": "text"},
                        "mode": "update",
                    },
                },
            },
            copied_sql="SELECT n FROM numbers",
            counts_sql="SELECT k, count(*) AS n FROM numbers GROUP BY k",
        )  # fmt: skip

    def start(self, *options: str) -> Process:
        self.processes.append(Process(self.folder.path, *options))
        return self.processes[-1]

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        self.topics.produce(
            self.names[0], [json.dumps({"n": n, "k": f"k{n % KEYS}"}) if n % BROKEN else f"broken {n}" for n in numbers]
        )
        self.sent += count

    @property
    def good(self) -> list[int]:
        return [n for n in range(self.sent) if n % BROKEN]

    def await_copies(self, count: int) -> None:
        self._await(self.copied, lambda records: len(records) >= count)

    def await_all(self) -> None:
        self.await_copies(len(self.good))
        self._await(self.dead, lambda records: len(records) >= self.sent - len(self.good))
        total = len(self.good)
        self._await(
            self.counts, lambda records: sum({one.key: int(one.value or 0) for one in records}.values()) == total
        )

    def _await(self, topic: str, is_enough: Callable[[list[ConsumerRecord]], bool]) -> None:
        clock = real_env().clock
        deadline_s = clock.monotonic() + LIMIT_S
        found: list[ConsumerRecord] = []
        with Consumer(
            bootstrap_servers=self.topics.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([(topic, 0)])
            while not is_enough(found):
                assert clock.monotonic() < deadline_s, f"{topic} has only {len(found)} records"
                for records in consumer.getmany(timeout_ms=500).values():
                    found += records

    def check(self) -> None:
        """Everything, and nothing twice."""
        assert sorted(map(int, self.topics.values(self.copied))) == self.good
        broken = sorted(int(value.split()[1]) for value in self.topics.values(self.dead))
        assert broken == [n for n in range(self.sent) if n % BROKEN == 0]
        by_key: dict[bytes | None, list[int]] = {}
        for record in self.topics.records(self.counts):
            by_key.setdefault(record.key, []).append(int(record.value or 0))
        for counts in by_key.values():
            assert counts == sorted(set(counts)), "a batch of updates was written twice, or out of order"
        expected = Counter(f"k{n % KEYS}".encode() for n in self.good)
        assert {key: counts[-1] for key, counts in by_key.items()} == expected

    def status(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "klamm", "pipeline", "status", str(self.folder.path), "-n", "1", "-o", "json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def await_status(self, is_so: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Spark tells of a batch after it is written, and only then it is counted."""
        clock = real_env().clock
        deadline_s = clock.monotonic() + LIMIT_S
        while not is_so(queries := self.status()["queries"]):
            assert clock.monotonic() < deadline_s, queries


@pytest.fixture
def story(topics: Topics, tmp_path: Path) -> Iterator[Story]:
    pytest.importorskip("pyspark")
    made = Story(tmp_path / "numbers", topics)
    yield made
    for one in made.processes:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


@pytest.mark.timeout(600)
def test_after_kill_9_it_goes_on_as_if_nothing_had_been(story: Story) -> None:
    story.send(3 * PER_BATCH)
    first = story.start()
    story.await_copies(1)  # of the first batch; the others are under way, or not even begun
    first.end(signal.SIGKILL)
    assert story.status()["state"] == "dead"
    story.send(PER_BATCH)
    second = story.start()
    story.await_all()
    found = story.status()
    assert found["state"] == "running" and {one["name"] for one in found["queries"]} == {"numbers", "copied", "counts"}
    story.await_status(lambda queries: all(one["lag"] == 0 and one["error"] is None for one in queries))
    assert second.end(signal.SIGINT) == 130
    assert not any("Traceback" in line or "Exception" in line for line in second.lines), second.lines
    story.check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again(story: Story, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(8):
        story.send(rng.randrange(20, 400))
        process = story.start()
        process.started.wait(LIMIT_S)
        try:
            process.process.wait(rng.uniform(0, 12))
        except subprocess.TimeoutExpired:
            process.end(signal.SIGKILL)
    assert story.start("--once").end() == 0
    story.check()
    story.send(50)
    last = story.start("--once")
    assert last.end() == 0, last.lines
    assert "copied: 50 rows in, 45 rows out." in last.lines
    story.check()
    assert story.status()["state"] == "done"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_sigterm_is_a_wish_and_no_failure_and_a_mistake_is_a_sentence(story: Story) -> None:
    process = story.start()
    process.started.wait(LIMIT_S)
    assert process.end(signal.SIGTERM) == 0, process.lines
    (story.folder.path / "copied.sql").write_text("SELECT m FROM numbers")
    failed = story.start("--once")
    assert failed.end() == 2
    (line,) = failed.lines
    assert line.startswith(f"{story.folder.path}/copied.sql:1:8: There is no column m.")
