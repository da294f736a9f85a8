"""What is measured, one function for each section of the results.

Each yields rows as it goes: what was measured, what the aim is, one value per round, and next to it, where there is
one, what the bare peer reached in the same round with the same bytes on the same cores.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from brokers import Broken, Klamm, first_answer
from harness import Bench

BATCH_BYTES = 1_000_000
IN_FLIGHT = 5
FETCH_BYTES = 1 << 20
IDLE_CONNECTIONS = 500
SMALL_CONNECTIONS = 8
MANY_TOPICS, MANY_PARTITIONS = 10, 10_000
GROWTH_BATCH_BYTES = 32_000
RECORD_OVERHEAD = 10  # what a record takes beyond its value, more or less
CPU_OF_A_GB = "broker's CPU time for 1 GB (raw client)"  # says something even on a machine that is not quiet


class Row(NamedTuple):
    what: str
    aim: str
    unit: str  # a key of report.UNITS
    values: list[float]
    ratios: Sequence[float] = ()


CASES = [(100, 1), (100, 8), (1_000, 1), (1_000, 8)]
PRODUCE_AIMS = {100: ">= 2.5M records/s", 1_000: ">= 1 GB/s, ratio >= 0.5"}
FETCH_AIMS = {100: ">= 3.5M records/s", 1_000: ">= 1.7 GB/s, ratio >= 0.5"}


def case_name(size: int, partitions: int) -> str:
    return f"{size:,} B, {partitions} partition{'s' if partitions > 1 else ''}"


def case_records(bench: Bench, size: int) -> int:
    return bench.scaled(5_000_000 if size == 100 else 1_000_000)


def measure(size: int) -> tuple[str, str]:
    """Small records are counted, large ones weighed: the field of a tool's result, and its unit."""
    return ("records_per_s", "records/s") if size == 100 else ("bytes_per_s", "bytes/s")


def lag_rows(broker: Klamm) -> Iterator[Row]:
    lag = broker.loop_lag_ms()
    if lag is not None:
        yield Row("longest loop lag in this section", "", "ms", [lag])


def produce(bench: Bench) -> Iterator[Row]:
    """librdkafka, and prepared requests from the raw client, against the bare sink."""
    with bench.broker() as broker, bench.data_folder() as folder, bench.peer("sink", folder / "sink") as sink:
        broker.loop_lag_ms()
        for size, partitions in CASES:
            yield from produce_case(bench, broker, sink, size, partitions)
        yield from lag_rows(broker)


def produce_case(bench: Bench, broker: Klamm, sink: str, size: int, partitions: int) -> Iterator[Row]:
    key, unit = measure(size)
    values: dict[str, list[float]] = {"raw": [], "load": []}
    ratios: dict[str, list[float]] = {"raw": [], "load": []}
    cpu: list[float] = []
    records = case_records(bench, size)
    for turn in range(bench.rounds):
        bare = 0.0
        for tool in ("raw", "load"):
            if tool not in bench.tools:
                continue
            where = {"to": broker.address, "topic": f"{tool}-{size}-{partitions}-{turn}", "partitions": partitions}
            bench.tool("raw", "create", **where)
            bench.settle(records * (size + RECORD_OVERHEAD))
            extra = {"depth": IN_FLIGHT} if tool == "raw" else {"linger": 5}
            before = broker.cpu_seconds()
            result = bench.tool(tool, "produce", **where, records=records, size=size, batch=BATCH_BYTES, **extra)
            spent = broker.cpu_seconds() - before
            bench.tool("raw", "delete", **where)
            if tool == "raw":
                fed = result["seconds"] * result["bytes_per_s"]
                bench.settle(fed)
                cpu.append(spent * 1e3 / (fed / 1e9))
                bare = bench.tool(
                    "bare", "feed", to=sink, bytes=int(fed), chunk=result["request_bytes"], depth=IN_FLIGHT
                )["bytes_per_s"]
            values[tool].append(result[key])
            ratios[tool].append(result["bytes_per_s"] / bare)
    for tool, client in (("load", "librdkafka"), ("raw", "raw client")):
        if values[tool]:
            yield Row(f"{case_name(size, partitions)}, {client}", PRODUCE_AIMS[size], unit, values[tool], ratios[tool])
    yield Row(f"{case_name(size, partitions)}, {CPU_OF_A_GB}", "", "ms", cpu)


def fetch(bench: Bench) -> Iterator[Row]:
    """librdkafka and the raw fetch loop, from page cache, against the bare source."""
    with bench.broker() as broker, bench.data_folder() as folder:
        broker.loop_lag_ms()
        for size, partitions in CASES:
            yield from fetch_case(bench, broker, folder / "source", size, partitions)
        yield from lag_rows(broker)


def fetch_case(bench: Bench, broker: Klamm, file: Path, size: int, partitions: int) -> Iterator[Row]:
    key, unit = measure(size)
    values: dict[str, list[float]] = {"raw": [], "load": []}
    ratios: dict[str, list[float]] = {"raw": [], "load": []}
    cpu: list[float] = []
    where = {"to": broker.address, "topic": f"fetch-{size}-{partitions}", "partitions": partitions}
    bench.tool("raw", "create", **where)
    filled = bench.tool("raw", "produce", **where, records=case_records(bench, size), size=size, batch=BATCH_BYTES)
    total = int(filled["seconds"] * filled["bytes_per_s"])
    with bench.peer("sink", file) as sink:  # the source's file: as many bytes, as fresh in the page cache
        bench.tool("bare", "feed", to=sink, bytes=total, chunk=filled["request_bytes"])
    bench.settle()
    reading = {**where, "records": filled["records"], "max_bytes": FETCH_BYTES}
    with bench.peer("source", file) as source:
        for _ in range(bench.rounds):
            before = broker.cpu_seconds()
            raw = bench.tool("raw", "fetch", **reading)
            cpu.append((broker.cpu_seconds() - before) * 1e3 / (raw["received_bytes"] / 1e9))
            chunk = int(raw["received_bytes"] / raw["answers"])
            bare = bench.tool("bare", "drain", to=source, bytes=total, chunk=chunk, file_bytes=file.stat().st_size)
            values["raw"].append(raw[key])
            ratios["raw"].append(raw["bytes_per_s"] / bare["bytes_per_s"])
            if "load" in bench.tools:
                load = bench.tool("load", "consume", **reading)
                values["load"].append(load[key])
                ratios["load"].append(load["bytes_per_s"] / bare["bytes_per_s"])
    bench.tool("raw", "delete", **where)
    file.unlink()
    for tool, client in (("load", "librdkafka"), ("raw", "raw fetch loop")):
        if values[tool]:
            yield Row(f"{case_name(size, partitions)}, {client}", FETCH_AIMS[size], unit, values[tool], ratios[tool])
    yield Row(f"{case_name(size, partitions)}, {CPU_OF_A_GB}", "", "ms", cpu)


def latency(bench: Bench) -> Iterator[Row]:
    """One record of 100 B at a time, acks=all; the peer writes as many bytes to a file and answers."""
    found: dict[str, list[dict[str, float]]] = {"raw": [], "load": [], "bare": []}
    with bench.broker() as broker, bench.data_folder() as folder, bench.peer("sink", folder / "sink") as sink:
        where = {"to": broker.address, "topic": "latency"}
        bench.tool("raw", "create", **where)
        broker.loop_lag_ms()
        for _ in range(bench.rounds):
            bench.settle()
            raw = bench.tool("raw", "latency", **where, count=bench.scaled(20_000), size=100)
            found["raw"].append(raw)
            found["bare"].append(
                bench.tool("bare", "ping", to=sink, chunk=raw["request_bytes"], count=bench.scaled(20_000))
            )
            if "load" in bench.tools:
                found["load"].append(bench.tool("load", "latency", **where, count=bench.scaled(10_000), size=100))
        for field, aim in (("p50_us", "<= 120 us"), ("p99_us", "<= 1,000 us")):
            bare = [result[field] for result in found["bare"]]
            for tool, client in (("load", "librdkafka, linger 0"), ("raw", "raw client")):
                values = [result[field] for result in found[tool]]
                if values:
                    ratios = [b / v for b, v in zip(bare, values, strict=True)]
                    yield Row(f"{field[:3]}, {client}", aim, "us", values, ratios)
        yield from lag_rows(broker)


def small(bench: Bench) -> Iterator[Row]:
    """Requests of some 100 bytes over 8 connections, so many in flight on each."""
    with bench.broker() as broker:
        where = {"to": broker.address, "topic": "small", "partitions": 8}
        bench.tool("raw", "create", **where)
        broker.loop_lag_ms()
        for kind, name in (("metadata", "Metadata of one topic"), ("produce", "Produce of one 100 B record")):
            for depth in (8, 1):
                load = {"kind": kind, "connections": SMALL_CONNECTIONS, "depth": depth}
                values, cpu = [], []
                for _ in range(bench.rounds):
                    before = broker.cpu_seconds()
                    result = bench.tool("raw", "small", **where, **load, milliseconds=bench.scaled(2_000))
                    cpu.append((broker.cpu_seconds() - before) * 1e6 / result["answers"])
                    values.append(result["answers_per_s"])
                yield Row(f"{name}, {depth} in flight", ">= 40k/s", "requests/s", values)
                yield Row(f"{name}, {depth} in flight, broker's CPU time", "", "us", cpu)
        yield from lag_rows(broker)


def startup(bench: Bench) -> Iterator[Row]:
    """Spawn to the first answered request, on an empty folder."""
    with bench.broker():  # once, so that bytecode and page cache are as they usually are
        pass
    ready, answered = [], []
    for _ in range(bench.rounds):
        with bench.broker() as broker:
            first_answer(broker.port).close()
            answered.append(time.perf_counter() - broker.spawned)
            ready.append(broker.ready_s)
    yield Row("spawn to first answer", "<= 0.3 s", "s", answered)
    yield Row("spawn to the line that says ready", "", "s", ready)


def memory(bench: Bench) -> Iterator[Row]:
    """Resident memory, idle and with connections that have each asked one thing."""
    idle, connected = [], []
    for _ in range(min(bench.rounds, 3)):
        with bench.broker() as broker:
            first_answer(broker.port).close()
            time.sleep(1)
            idle.append(broker.resident_bytes())
            connections = [first_answer(broker.port) for _ in range(IDLE_CONNECTIONS)]
            time.sleep(1)
            connected.append(broker.resident_bytes())
            for connection in connections:
                connection.close()
    yield Row("idle", "<= 40 MB", "bytes", [float(value) for value in idle])
    yield Row(f"{IDLE_CONNECTIONS} idle connections", "<= 80 MB", "bytes", [float(value) for value in connected])


def partitions(bench: Bench) -> Iterator[Row]:
    """10,000 partitions in 10 topics: created, written to, there again after a clean stop, and what they take."""
    rows = {
        "create": Row(f"create {MANY_PARTITIONS:,} and list them all", "<= 10 s", "s", []),
        "created": Row("resident memory then", "<= 300 MB", "bytes", []),
        "write": Row("one record into each, one after another", "", "s", []),
        "written": Row("resident memory then", "<= 300 MB", "bytes", []),
        "stop": Row("clean stop", "", "s", []),
        "restart": Row("spawn to all of them listed, after the clean stop", "<= 3 s", "s", []),
        "answer": Row("one Metadata answer with all of them", "", "ms", []),
        "restarted": Row("resident memory then", "<= 300 MB", "bytes", []),
    }
    for _ in range(min(bench.rounds, 3)):
        with bench.data_folder() as data:
            with bench.broker(data) as broker:
                for name, value in many_partitions(bench, broker):
                    rows[name].values.append(value)
            with bench.broker(data) as broker:
                listed = bench.tool("raw", "metadata", to=broker.address, partitions=MANY_PARTITIONS)
                rows["restart"].values.append(time.perf_counter() - broker.spawned)
                rows["answer"].values.append(listed["answer_ms"])
                rows["restarted"].values.append(broker.resident_bytes())
    yield from rows.values()


def many_partitions(bench: Bench, broker: Klamm) -> Iterator[tuple[str, float]]:
    where = {"to": broker.address, "partitions": MANY_PARTITIONS // MANY_TOPICS}
    start = time.perf_counter()
    bench.tool("raw", "create", **where, topic="many", topics=MANY_TOPICS)
    bench.tool("raw", "metadata", to=broker.address, partitions=MANY_PARTITIONS)
    yield "create", time.perf_counter() - start
    yield "created", broker.resident_bytes()
    start = time.perf_counter()
    for topic in range(MANY_TOPICS):
        bench.tool("raw", "produce", **where, topic=f"many-{topic}", records=where["partitions"], batch=1)
    yield "write", time.perf_counter() - start
    yield "written", broker.resident_bytes()
    yield "stop", broker.stop()


def growth(bench: Bench, largest: int) -> Iterator[Row]:
    """One partition that grows: appending one record, and fetching at random offsets, at each size."""
    bench.folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(bench.folder).free
    if free < largest * 2:
        raise Broken(f"{largest >> 30} GiB of log need twice that on the disk, {free >> 30} GiB are free")
    steps = [10**7 * 10**power for power in range(4) if 10**7 * 10**power < largest] + [largest]
    records = written = 0
    first: dict[str, float] = {}
    with bench.broker() as broker:
        where = {"to": broker.address, "topic": "growth"}
        bench.tool("raw", "create", **where)
        broker.loop_lag_ms()
        for step in steps:
            filled = bench.tool(
                "raw", "produce", **where, records=(step - written) // 1_012, size=1_000, batch=GROWTH_BATCH_BYTES
            )
            records += filled["records"]
            written = step
            bench.settle()
            for name, run in growth_measures(bench, where, records):
                values = []
                for _ in range(bench.rounds):
                    values.append(run()["p50_us"])
                    records += bench.scaled(2_000) if name.startswith("append") else 0
                median = sorted(values)[len(values) // 2]
                base = first.setdefault(name, median)
                yield Row(f"{name} at {step / 1e6:,.0f} MB", "flat", "us", values, [base / value for value in values])
        yield from lag_rows(broker)


def growth_measures(
    bench: Bench, where: dict[str, str], records: int
) -> list[tuple[str, Callable[[], dict[str, float]]]]:
    count = bench.scaled(2_000)
    return [
        ("append of one record, p50", lambda: bench.tool("raw", "latency", **where, count=count, warm_up=0, size=100)),
        ("fetch at a random offset, p50", lambda: bench.tool("raw", "seek", **where, records=records, count=count)),
    ]


SECTIONS: dict[str, Callable[..., Iterator[Row]]] = {
    "produce": produce,
    "fetch": fetch,
    "latency": latency,
    "small": small,
    "startup": startup,
    "memory": memory,
    "partitions": partitions,
    "growth": growth,
}
