"""One broker through everything that two brokers are compared by. It cannot tell which of them it has.

Every step yields (row, value) pairs. Runs have a length in time, so that a slow broker is not measured longer than a
fast one, and a limit in bytes, so that no log rolls to a second segment while it is measured.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from apache import Kafka
from brokers import Broker
from harness import Bench
from payload import Payload

BATCH_BYTES = 1_000_000
SMALL_BATCH_BYTES = 16_384  # what Java's producer fills by default
IN_FLIGHT = 5
FETCH_BYTES = 1 << 20
RUN_MS = 500
DATA_BYTES = 500_000_000  # of one topic: less than a segment
READ_BYTES = {100: 150_000_000, 1_000: 300_000_000}  # what consumers read, before compression
RATE = 10_000
CONNECTIONS = 8
GONE_TIMEOUT_S = 40.0  # Kafka looks at deleted topics for the first time 30 s after its start
JAVA_RECORDS = {100: 500_000, 1_000: 200_000}  # a third of them to warm up
FLOW_MS, FLOW_WARM_UP_MS = 1_500, 500


class Row(NamedTuple):
    what: str
    unit: str  # a key of versus.UNITS
    aim: float | None = None  # the ratio to reach
    less: bool = False  # less is better
    most: float | None = None  # an aim for Klamm alone: no round above it


class Case(NamedTuple):
    size: int
    partitions: int
    codec: str

    def row(self, verb: str, client: str) -> Row:
        partitions = f"{self.partitions} partition{'s' if self.partitions > 1 else ''}"
        what = f"{verb} {self.size:,} B, {partitions}, {self.codec}, {client}"
        return Row(what, "records/s" if self.size == 100 else "bytes/s", aim=2.0)


CASES = [Case(*case) for case in itertools.product((100, 1_000), (1, 8), ("none", "lz4"))]
Values = Iterator[tuple[Row, float]]


def rows() -> list[Row]:
    """All rows there can be, in the order of the table."""
    found = [case.row("produce", client) for case in CASES for client in ("raw client", "librdkafka")]
    found += [case.row("consume", client) for case in CASES for client in ("raw fetch loop", "librdkafka")]
    found += [small_batches_row(size) for size in (100, 1_000)]
    found += [row(size) for size in JAVA_RECORDS for row in (java_row, java_cpu_row)]
    found += [sequential_row(client, part) for client in SEQUENTIAL for part in PERCENTILES]
    for client in FLOWS:
        found += [*(flow_row(client, part) for part in PERCENTILES), flow_cpu_row(client)]
    found += [small_row(kind, depth) for kind in SMALL for depth in (8, 1)]
    return [*found, START, IDLE]


def small_batches_row(size: int) -> Row:
    return Row(f"produce {size:,} B, 1 partition, none, raw client, 16 KiB batches", *weighed(size))


def java_row(size: int) -> Row:
    return Row(f"produce {size:,} B, 1 partition, none, Java's producer-perf-test", *weighed(size))


def java_cpu_row(size: int) -> Row:
    return Row(f"broker's CPU time for a million of {size:,} B, Java's producer-perf-test", "ms", less=True)


def weighed(size: int) -> tuple[str, None]:
    """Small records are counted, large ones weighed."""
    return "records/s" if size == 100 else "bytes/s", None


def small_row(kind: str, depth: int) -> Row:
    return Row(f"{SMALL[kind]} over {CONNECTIONS} connections, {depth} in flight on each", "requests/s", 1.0)


def sequential_row(client: str, part: str) -> Row:
    return Row(f"sequential produce, {part}, {client}", "us", 1.0, less=True)


def flow_row(client: str, part: str) -> Row:
    return Row(f"end to end at {RATE:,} records/s, {part}, {client}", "us", 1.0, less=True)


def flow_cpu_row(client: str) -> Row:
    return Row(f"end to end at {RATE:,} records/s, broker's CPU time in a second, {client}", "ms", less=True)


PERCENTILES = {"p50": "p50_us", "p99": "p99_us"}
SEQUENTIAL = {"raw client": "raw", "librdkafka, linger 0": "load"}
FLOWS: dict[str, tuple[str, str, dict[str, int]]] = {
    "raw client, 10 records each ms": ("flow", "run", {"each": 10}),
    "librdkafka, linger 5 ms (its default)": ("load", "flow", {"linger": 5}),
    "librdkafka, linger 0": ("load", "flow", {"linger": 0}),
}
SMALL = {"produce": "Produce of one 100 B record", "metadata": "Metadata of one topic"}
START = Row("spawn to first answer", "s", 10.0, less=True)
IDLE = Row("resident memory, idle", "bytes", 8.0, less=True)


class Block:
    """A broker that has just been spawned, and what is done to it."""

    def __init__(self, bench: Bench, payload: Payload, kafka: Kafka | None, broker: Broker, data: Path) -> None:
        self.bench = bench
        self.payload = payload
        self.kafka = kafka  # for its clients
        self.broker = broker
        self.data = data
        self.milliseconds = bench.scaled(RUN_MS)
        self.warmed: list[float] = []  # records a second in the passes of the warm-up
        self._names = itertools.count()

    def steps(self) -> Iterator[tuple[str, Callable[[], Values]]]:
        for case in CASES:
            yield f"{case.size} B, {case.partitions}, {case.codec}", functools.partial(self.throughput, case)
        yield "16 KiB batches", self.small_batches
        yield "producer-perf-test", self.java
        yield "sequential", self.sequential
        yield "end to end", self.flow
        yield "small requests", self.small

    # what every step needs

    @contextlib.contextmanager
    def topic(self, partitions: int = 1, settle_bytes: float = 0) -> Iterator[dict[str, object]]:
        """A new topic that can be used, and that leaves nothing behind."""
        before = self.log_bytes()
        where = {"to": self.broker.address, "topic": f"bench-{next(self._names)}", "partitions": partitions}
        self.bench.tool("raw", "create", **where)
        self.bench.tool("raw", "ready", **where)
        self.bench.settle(settle_bytes)
        yield where
        self.bench.tool("raw", "delete", **where)
        until = time.perf_counter() + (GONE_TIMEOUT_S if self.bench.scale >= 1 else 1.0)
        while self.log_bytes() > before + 1_000_000 and time.perf_counter() < until:
            time.sleep(0.02)

    def log_bytes(self) -> int:
        """Of all segments in its folder. They may go while we look."""
        total = 0
        for folder, _, names in os.walk(self.data):
            for name in names:
                if ".log" in name:
                    with contextlib.suppress(FileNotFoundError):
                        total += os.stat(f"{folder}/{name}").st_size
        return total

    def tool(self, name: str, mode: str, **options: object) -> dict[str, Any]:
        return self.bench.tool(name, mode, **options)

    @property
    def with_librdkafka(self) -> bool:
        return "load" in self.bench.tools

    def raw_produce(self, where: dict[str, object], case: Case, batch_bytes: int, **limits: object) -> dict[str, Any]:
        file = self.payload.batch(case.size, batch_bytes, case.codec)
        return self.tool("raw", "produce", **where, batch_file=file, depth=IN_FLIGHT, **limits)

    # before anything is measured

    def begin(self) -> Values:
        yield START, self.broker.wait_for_answer()
        time.sleep(2 * self.bench.scale)
        yield IDLE, float(self.broker.resident_bytes())

    def warm_up(self, seconds: float) -> None:
        """The same kinds of load as later, over and over: a virtual machine compiles what it has seen often."""
        until = time.perf_counter() + seconds
        with self.topic() as where:  # one for all, so that nobody waits for deleted topics yet
            while time.perf_counter() < until:
                self.warm_up_once(where)

    def warm_up_once(self, where: dict[str, object]) -> None:
        text, packed = Case(100, 1, "none"), Case(1_000, 1, "lz4")
        limits = {"records": 500_000, "milliseconds": 300}
        produced = self.raw_produce(where, text, BATCH_BYTES, **limits)
        self.warmed.append(produced["records_per_s"])
        self.raw_produce(where, packed, BATCH_BYTES, **limits)
        self.raw_produce(where, text, SMALL_BATCH_BYTES, **limits)
        self.tool("raw", "fetch", **where, **limits)
        for kind in SMALL:
            self.tool("raw", "small", **where, kind=kind, connections=CONNECTIONS, depth=8, milliseconds=400)
        self.tool("raw", "latency", to=where["to"], topic=where["topic"], count=1_000, size=100)
        if self.with_librdkafka:
            self.tool("load", "produce", **where, **limits, size=100, linger=5)

    # the steps

    def throughput(self, case: Case) -> Values:
        """Into one topic and out of it again; librdkafka's producer has a topic of its own."""

        def speed(result: dict[str, Any]) -> float:
            rate: float = result["records_per_s"]
            return rate if case.size == 100 else rate * case.size

        file = self.payload.batch(case.size, BATCH_BYTES, case.codec)
        per_batch = BATCH_BYTES // case.size
        limit = int(DATA_BYTES / file.stat().st_size * per_batch)
        wanted = self.bench.scaled(READ_BYTES[case.size] / case.size)
        with self.topic(case.partitions, DATA_BYTES * self.bench.scale) as where:
            made = self.raw_produce(where, case, BATCH_BYTES, records=limit, milliseconds=self.milliseconds)
            yield case.row("produce", "raw client"), speed(made)
            if made["records"] < wanted:
                self.raw_produce(where, case, BATCH_BYTES, records=wanted - made["records"])
            reading = {**where, "records": wanted, "max_bytes": FETCH_BYTES}
            fetched = self.tool("raw", "fetch", **reading, milliseconds=self.milliseconds)
            yield case.row("consume", "raw fetch loop"), speed(fetched)
            if self.with_librdkafka:
                yield case.row("consume", "librdkafka"), speed(self.tool("load", "consume", **reading))
        if not self.with_librdkafka:
            return
        with self.topic(case.partitions, DATA_BYTES * self.bench.scale) as where:
            values = {"values": self.payload.values(case.size), "size": case.size, "codec": case.codec}
            limits = {"records": DATA_BYTES // case.size, "milliseconds": self.milliseconds}
            produced = self.tool("load", "produce", **where, **values, **limits, batch=BATCH_BYTES, linger=5)
            yield case.row("produce", "librdkafka"), speed(produced)

    def small_batches(self) -> Values:
        for size in (100, 1_000):
            with self.topic(1, DATA_BYTES * self.bench.scale) as where:
                limits = {"records": DATA_BYTES // size, "milliseconds": self.milliseconds}
                made = self.raw_produce(where, Case(size, 1, "none"), SMALL_BATCH_BYTES, **limits)
                yield small_batches_row(size), made["records_per_s"] * (1 if size == 100 else size)

    def java(self) -> Values:
        if self.kafka is None:
            return
        for size, count in JAVA_RECORDS.items():
            with self.topic() as where:
                records = self.bench.scaled(count)
                before = self.broker.cpu_seconds()
                rate = self.kafka.producer_perf(
                    self.broker.address,
                    str(where["topic"]),
                    self.bench.client_cores,
                    size=size,
                    records=records,
                    warm=records // 3,
                )
                spent = self.broker.cpu_seconds() - before
                yield java_row(size), rate * (1 if size == 100 else size)
                yield java_cpu_row(size), spent * 1e9 / records

    def sequential(self) -> Values:
        count = self.bench.scaled(5_000)
        for client, name in SEQUENTIAL.items():
            if name not in self.bench.tools:
                continue
            with self.topic() as where:
                options = {key: where[key] for key in ("to", "topic")}
                result = self.tool(name, "latency", **options, count=count, size=100)
            for part, field in PERCENTILES.items():
                yield sequential_row(client, part), result[field]

    def flow(self) -> Values:
        for client, (name, mode, options) in FLOWS.items():
            if name not in self.bench.tools:
                continue
            with self.topic() as where:
                times = {"rate": RATE, "milliseconds": self.bench.scaled(FLOW_MS), "warm_up": FLOW_WARM_UP_MS}
                before, start = self.broker.cpu_seconds(), time.perf_counter()
                result = self.tool(name, mode, to=where["to"], topic=where["topic"], **times, **options)
                share = (self.broker.cpu_seconds() - before) / (time.perf_counter() - start)
            for part, field in PERCENTILES.items():
                yield flow_row(client, part), result[field]
            yield flow_cpu_row(client), share * 1e3

    def small(self) -> Values:
        for kind in SMALL:
            for depth in (8, 1):
                with self.topic(CONNECTIONS) as where:
                    load = {"kind": kind, "connections": CONNECTIONS, "depth": depth}
                    result = self.tool("raw", "small", **where, **load, milliseconds=self.milliseconds)
                yield small_row(kind, depth), result["answers_per_s"]
