"""Groups, transactions and compaction of one broker, as two brokers are compared by them. See side.py.

Members of groups and producers of transactions are our own, because a library's pauses would be measured instead:
librdkafka waits 3 s between heartbeats and tens of milliseconds before it asks again. Its transactions have a row of
their own. The members that come together as quickly as they can are a C program (join.c): a hundred in Python
(members.py) take more time than a broker does. They have a row, too, because they join one by one, as consumers do that
are started one by one.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from brokers import Broken, pinned_to
from harness import BENCH
from side import CONNECTIONS, Block, Row, Values

COORDINATION_SETTINGS = [
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "log.cleaner.backoff.ms=100",
]
MEMBERS, HEARTBEAT_MS = 100, 100
JOINS, PYTHON_JOINS = 15, 3  # of which the median is the value of a round
WARM_JOINS = 30  # in each pass of the warm-up: after five, Kafka still takes twice its time
FEW_MEMBERS, FEW_HEARTBEAT_MS, SESSION_MS = 20, 300, 6_000
TXN_RECORDS, TXN_MS = 100, 2_000
COMPACTED_BYTES, COMPACTED_SIZE, KEYS = 1_000_000_000, 100, 100_000
SEGMENT_BYTES, KEYED_BATCH_BYTES, KEYED_BATCHES = 100 << 20, 250_000, 40
COMPACTION_TIMEOUT_S = 300.0
SETTLED_S = 1.0
IDLE_RUNS = 5
MEMBERS_TIMEOUT_S = 150

FIRST_GROUP = Row(f"the first group of a fresh broker, {MEMBERS} members, until all have a record", "ms", less=True)
JOIN = Row(f"{MEMBERS} members join a group until all have their first record", "ms", 2.0, less=True)
PYTHON_JOIN = Row("the same, members in Python, each joins as soon as it is connected", "ms", less=True)
LEAVE = Row(f"one of {FEW_MEMBERS} leaves, until the others go on", "ms", less=True, most=1_000)
SILENT = Row(
    f"one of {FEW_MEMBERS} falls silent (session {SESSION_MS // 1000} s), until the others go on",
    "ms",
    less=True,
    most=SESSION_MS + 1_000,
)
COMPACTION = Row("compaction of 1 GB, 100 B, 100,000 keys", "bytes/s", 0.5)
IDLE_P99 = Row("sequential produce before the compaction, p99", "us", less=True)
BUSY_P99 = Row("sequential produce during the compaction, p99", "us", less=True)
BUSY_TIMES = Row("sequential produce, p99 during the compaction over p99 before", "times", less=True, most=2.0)


def commits_row(depth: int) -> Row:
    return Row(f"offset commits over {CONNECTIONS} connections, {depth} in flight on each", "requests/s", 1.0)


def transactions_row(client: str) -> Row:
    return Row(f"transactions of {TXN_RECORDS} records, {client}", "each s", 1.0)


TXN_CLIENTS = {"1 raw producer": 1, "8 raw producers": 8}
LIBRDKAFKA = "librdkafka, 1 producer"


def coordination_rows() -> list[Row]:
    found = [FIRST_GROUP, JOIN, PYTHON_JOIN, LEAVE, SILENT, commits_row(8), commits_row(1)]
    found += [transactions_row(client) for client in (*TXN_CLIENTS, LIBRDKAFKA)]
    return [*found, COMPACTION, IDLE_P99, BUSY_P99, BUSY_TIMES]


class Coordination(Block):
    def steps(self) -> Iterator[tuple[str, Callable[[], Values]]]:
        yield "joining", self.joining
        yield "leaving", self.leaving
        yield "commits", self.commits
        yield "transactions", self.transactions
        yield "compaction", self.compaction

    def members(self, mode: str, **options: object) -> dict[str, Any]:
        command = [sys.executable, str(BENCH / "members.py"), mode]
        for option, value in options.items():
            command += ["--" + option.replace("_", "-"), str(value)]
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=MEMBERS_TIMEOUT_S,
            preexec_fn=pinned_to(*self.bench.client_cores),
            check=False,
        )
        if run.returncode != 0:
            raise Broken(f"members {mode} failed: {run.stderr.strip()[-300:]}")
        result: dict[str, Any] = json.loads(run.stdout)
        return result

    def join(self, where: dict[str, object], members: int) -> float:
        """The seconds until the members of a new group have their first record."""
        options = {"members": members, "heartbeat_ms": HEARTBEAT_MS}
        seconds: float = self.tool("join", "run", **where, group=self.group(), **options)["seconds"]
        return seconds

    @contextlib.contextmanager
    def filled_topic(self, partitions: int) -> Iterator[dict[str, object]]:
        """One batch in each partition."""
        with self.topic(partitions) as where:
            self.tool("raw", "produce", **where, records=10 * partitions, size=100, batch=1_000)
            yield {"to": where["to"], "topic": where["topic"]}

    def group(self) -> str:
        return f"group-{next(self._names)}"

    # before anything is measured

    def begin(self) -> Values:
        self.broker.wait_for_answer()
        with self.filled_topic(MEMBERS) as where:
            yield FIRST_GROUP, self.join(where, MEMBERS) * 1e3

    def warm_up_once(self, where: dict[str, object]) -> None:
        super().warm_up_once(where)
        self.tool("raw", "small", **where, kind="commit", connections=CONNECTIONS, depth=8, milliseconds=500)
        with self.filled_topic(MEMBERS) as filled:
            for _ in range(WARM_JOINS):
                self.join(filled, MEMBERS)
            self.members("join", **filled, group=self.group(), members=FEW_MEMBERS, heartbeat_ms=HEARTBEAT_MS)
            self.members("transactions", **filled, producers=8, milliseconds=500, id=self.group())

    # the steps

    def joining(self) -> Values:
        options = {"members": MEMBERS, "heartbeat_ms": HEARTBEAT_MS}
        with self.filled_topic(MEMBERS) as where:
            yield JOIN, statistics.median(self.join(where, MEMBERS) for _ in range(JOINS)) * 1e3
            runs = [self.members("join", **where, group=self.group(), **options) for _ in range(PYTHON_JOINS)]
        yield PYTHON_JOIN, statistics.median(run["seconds"] for run in runs) * 1e3

    def leaving(self) -> Values:
        options = {"members": FEW_MEMBERS, "heartbeat_ms": FEW_HEARTBEAT_MS, "session_ms": SESSION_MS}
        with self.filled_topic(FEW_MEMBERS) as where:
            for row, how in ((LEAVE, "leave"), (SILENT, "silent")):
                result = self.members("rebalance", **where, group=self.group(), how=how, **options)
                yield row, result["seconds"] * 1e3

    def commits(self) -> Values:
        for depth in (8, 1):
            with self.topic(CONNECTIONS) as where:
                load = {"kind": "commit", "connections": CONNECTIONS, "depth": depth}
                result = self.tool("raw", "small", **where, **load, milliseconds=2 * self.milliseconds)
            yield commits_row(depth), result["answers_per_s"]

    def transactions(self) -> Values:
        length = {"records": TXN_RECORDS, "milliseconds": self.bench.scaled(TXN_MS)}
        for client, producers in TXN_CLIENTS.items():
            with self.topic(producers) as where:
                place = {"to": where["to"], "topic": where["topic"]}
                result = self.members("transactions", **place, producers=producers, id=self.group(), **length)
            yield transactions_row(client), result["transactions_per_s"]
        if self.with_librdkafka:
            with self.topic() as where:
                place = {"to": where["to"], "topic": where["topic"]}
                result = self.tool("load", "transactions", **place, id=self.group(), **length)
            yield transactions_row(LIBRDKAFKA), result["transactions_per_s"]

    def compaction(self) -> Values:
        """A topic is filled as one that is only deleted from, and then becomes a compacted one."""
        name = f"compacted-{next(self._names)}"
        self.klamm("topic", "create", name, "-p", "1", "-c", f"segment.bytes={SEGMENT_BYTES}")
        where = {"to": self.broker.address, "topic": name, "partitions": 1}
        self.tool("raw", "ready", **where)
        with self.topic() as other:
            load = {"to": other["to"], "topic": other["topic"], "size": 100}
            runs = [self.tool("raw", "latency", **load, count=2_000)["p99_us"] for _ in range(IDLE_RUNS)]
            idle = statistics.median(runs)
            yield IDLE_P99, idle
            self.fill(where)
            self.bench.settle()
            folder = next(path for path in self.data.rglob(f"{name}-0") if path.is_dir())
            before = log_bytes(folder)
            settings = ["cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01"]
            self.klamm("config", "set", "topic", name, *settings)
            watch = Watch(folder, before)
            busy = [
                self.tool("raw", "latency", **load, count=2_000, warm_up=100)["p99_us"] for _ in iter(watch.busy, False)
            ]
        if not watch.seconds or not busy:
            raise Broken(f"not compacted in {COMPACTION_TIMEOUT_S:.0f} s: {log_bytes(folder) / 1e6:.0f} MB are left")
        yield COMPACTION, before / watch.seconds
        yield BUSY_P99, statistics.median(busy)
        yield BUSY_TIMES, statistics.median(busy) / idle

    def fill(self, where: dict[str, object]) -> None:
        per_batch = KEYED_BATCH_BYTES // (COMPACTED_SIZE + 12)
        total = self.bench.scaled(COMPACTED_BYTES / COMPACTED_SIZE)
        each = max(per_batch, total // KEYED_BATCHES)
        for number in range(KEYED_BATCHES):
            file = self.payload.keyed(COMPACTED_SIZE, KEYS, KEYED_BATCH_BYTES, number)
            self.tool("raw", "produce", **where, batch_file=file, records=each, depth=5)

    def klamm(self, *arguments: str) -> None:
        command = [str(Path(sys.executable).parent / "klamm"), *arguments, "--bootstrap", self.broker.address]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if run.returncode != 0:
            raise Broken(f"klamm {' '.join(arguments)}: {run.stderr.strip()}")


class Watch:
    """Looks at a log's folder until it has become small and stays so."""

    def __init__(self, folder: Path, before: int) -> None:
        self.seconds = 0.0  # from now to the last change
        self._folder = folder
        self._before = before
        self._done = threading.Event()
        threading.Thread(target=self._look, daemon=True).start()

    def busy(self) -> bool:
        return not self._done.is_set()

    def _look(self) -> None:
        start = changed = time.perf_counter()
        size = self._before
        while time.perf_counter() - start < COMPACTION_TIMEOUT_S:
            now, found = time.perf_counter(), log_bytes(self._folder)
            if found != size:
                size, changed = found, now
            # the active segment stays as it is, the others shrink to a few percent
            if size < self._before / 2 and now - changed > SETTLED_S:
                self.seconds = changed - start
                break
            time.sleep(0.02)
        self._done.set()


def log_bytes(folder: Path) -> int:
    """Of the segments in force, not of those that are being written or are about to go."""
    total = 0
    for entry in os.scandir(folder):
        if entry.name.endswith(".log"):
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat().st_size
    return total
