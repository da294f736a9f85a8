"""Kills a Spark application that writes to a topic, and processes of it, at random moments; then looks at the topic.

Kills(bootstrap, folder, seed=17).run(50)
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from klamm import Admin, Producer
from klamm.admin import NewTopic
from support.committed import read_all

if TYPE_CHECKING:
    from support.spark_cluster import StandaloneCluster

PROGRAM = Path(__file__).with_name("sink_driver.py")
LIMIT_S = 300
PARTITIONS = 3


@dataclass
class Killed:
    drivers: int = 0
    workers: int = 0
    """Python processes: of tasks, or of the driver's side of source and sink."""
    failed_queries: int = 0

    @property
    def all(self) -> int:
        return self.drivers + self.workers


class Application:
    """One life of the program."""

    def __init__(self, *arguments: str, cluster: StandaloneCluster | None = None) -> None:
        self._cluster = cluster
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (it is as long there as this)
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def await_started(self) -> int:
        """How many queries have failed before this one started."""
        failed = 0
        while not (line := self.lines.get(timeout=LIMIT_S)).startswith("started"):
            failed += line.startswith("failed")
        return failed

    def python_workers(self) -> list[int]:
        found = descendants(self.process.pid, *(self._cluster.pids if self._cluster else ()))
        return [pid for pid in found if b"pyspark" in command(pid) and b"java" not in command(pid).split(b"\0")[0]]

    def last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def kill(self) -> None:
        """The driver, with its executors if they are in it. Python processes find out by themselves, a bit later."""
        doomed = [pid for pid in descendants(self.process.pid) if b"java" in command(pid).split(b"\0")[0]]
        for pid in (*doomed, self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)


def descendants(*roots: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1])
    found = list(roots)
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[len(roots) :]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Kills:
    def __init__(self, bootstrap: str, folder: Path, seed: int, cluster: StandaloneCluster | None = None) -> None:
        self.killed = Killed()
        self._rng = random.Random(seed)
        self._bootstrap = bootstrap
        self._cluster = cluster
        master = cluster.url if cluster else "local[2,3]"
        self._arguments = (bootstrap, str(folder / "checkpoint"), str(seed), master)
        self._rows = 0

    def run(self, kills: int, each_life: int = 5) -> Killed:
        """`each_life`: so many kills end an application, the last of which is its own."""
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            admin.create_topics([NewTopic("in", partitions=PARTITIONS), NewTopic("out", partitions=PARTITIONS)]).check()
            with Producer(bootstrap_servers=self._bootstrap) as producer:
                while self.killed.all < kills:
                    self._live(producer, min(each_life, kills - self.killed.all))
                self._add(producer)
            self._finish()
            self._check(admin)
        return self.killed

    def _live(self, producer: Producer, kills: int) -> None:
        application = Application(*self._arguments, cluster=self._cluster)
        try:
            self.killed.failed_queries += application.await_started()
            enough = self.killed.all + kills - 1
            while self.killed.all < enough:
                self._work(producer, application)
                workers = application.python_workers()
                with contextlib.suppress(ProcessLookupError, IndexError):
                    os.kill(self._rng.choice(workers), signal.SIGKILL)
                    self.killed.workers += 1
                    print(self.killed, flush=True)
            self._work(producer, application)
        finally:
            application.kill()
            self.killed.drivers += 1
            print(self.killed, flush=True)

    def _work(self, producer: Producer, application: Application) -> None:
        """Something to copy, and a random time to do it in."""
        self._add(producer)
        with contextlib.suppress(subprocess.TimeoutExpired):
            application.process.wait(self._rng.uniform(0.2, 3))
            raise AssertionError(f"it has ended by itself: {list(application.lines.queue)} {application.last_words()}")
        while not application.lines.empty():
            self.killed.failed_queries += application.lines.get().startswith("failed")

    def _add(self, producer: Producer) -> None:
        count = self._rng.randint(50, 300)
        values = [b"%d" % number for number in range(self._rows, self._rows + count)]
        self._rows += count
        producer.send_many("in", values, keys=[value[-2:] for value in values])
        producer.flush()

    def _finish(self) -> None:
        application = Application(*self._arguments, "--once")
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                application.process.wait(LIMIT_S)
            code = application.process.poll()
            assert code == 0, (code, list(application.lines.queue), application.last_words())
        finally:
            application.kill()

    def _check(self, admin: Admin) -> None:
        found = Counter(value for values in read_all(self._bootstrap, "out", PARTITIONS).values() for value in values)
        twice = [value for value, times in found.items() if times > 1]
        lost = [number for number in range(self._rows) if b"%d" % number not in found]
        assert (twice, lost) == ([], []), self.killed
        assert found.total() == self._rows
        assert admin.list_transactions(states=["Ongoing"]) == []
