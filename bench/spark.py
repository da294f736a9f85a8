"""Our source and sink for Spark next to Spark's own Kafka connector: same topic, same broker, same session, in turn.

Broker and Spark share both cores, for both alike: `local[2]` leaves none over. The results are a section of
`RESULTS.md`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import connector
from brokers import Broken, Klamm
from harness import BENCH, SETTINGS, Bench
from maven import Unavailable

TITLE = "On Spark, next to its own Kafka connector"
PARTITIONS = 2
ROWS = {100: 4e6, 1_000: 6e5}
WRITTEN_ROWS = {100: 1e6, 1_000: 1.5e5}
LATENCY_BATCHES, LATENCY_ROWS = 60, 100
GROWTH = (1_000_000, 10_000_000, 50_000_000)
GROWTH_BATCH = 1_000_000
STREAMED = 20  # batches
UNITS: dict[str, Callable[[float], str]] = {
    "rows/s": lambda v: f"{v / 1e6:.2f}M/s",
    "us": lambda v: f"{v:.2f} us",
    "ms": lambda v: f"{v:,.0f} ms",
    "bytes": lambda v: f"{v / 1e6:,.0f} MB",
}


class Line(NamedTuple):
    """One thing that is measured; `peer` is the line that it is compared with. Where less is better, ratios are turned
    round: more than 1 is better than the peer."""

    what: str
    unit: str
    peer: str = ""
    ratio: float | None = None  # to reach
    bound: float | None = None  # to reach, with or without a peer

    @property
    def less(self) -> bool:
        return self.unit != "rows/s"


OURS, THEIRS = "klamm", "Spark's own"


def lines() -> list[Line]:
    found = []
    for size in ROWS:
        what = f"source, {size:,} B, count"
        found.append(Line(f"{what}: {OURS}", "rows/s", f"{what}: {THEIRS}", 1, 1e6 if size == 100 else None))
        found.append(Line(f"{what}: {THEIRS}", "rows/s"))
        found.append(Line(f"{what}, CPU time of a row: {OURS}", "us", f"{what}, CPU time of a row: {THEIRS}"))
        found.append(Line(f"{what}, CPU time of a row: {THEIRS}", "us"))
    for size in WRITTEN_ROWS:
        what, bound = f"sink, {size:,} B", 2e5 if size == 100 else None
        for sink, ratio in (("at least once", 1), ("exactly once", 0.7)):
            found.append(Line(f"{what}: {OURS}, {sink}", "rows/s", f"{what}: {THEIRS}", ratio, bound))
        found.append(Line(f"{what}: {THEIRS}", "rows/s"))
        cpu = f"{what}, CPU time of a row"
        found += [
            Line(f"{cpu}: {OURS}, at least once", "us", f"{cpu}: {THEIRS}"),
            Line(f"{cpu}: {OURS}, exactly once", "us", f"{cpu}: {THEIRS}"),
        ]
        found.append(Line(f"{what}, CPU time of a row: {THEIRS}", "us"))
    what = "micro-batch, topic to topic, at least once, median"
    found.append(Line(f"{what}: {OURS}", "ms", f"{what}: {EMPTY}", 1 / 1.2))
    found.append(Line(f"{what}: {EMPTY}", "ms"))
    found.append(Line(f"{what}: {THEIRS}", "ms"))
    return found


EMPTY = "a Python source and sink that do nothing"


class Results:
    def __init__(self) -> None:
        self.filled: dict[int, int] = {}  # rows of the topics that are read, by their size
        self.values: dict[str, dict[int, float]] = {}
        self.growth: list[
            tuple[int, float, float]
        ] = []  # rows, time of a row, and of the smallest topic's in the round
        self.stream: dict[str, Any] = {}
        self.notes: list[str] = []
        self.versions = ""

    def put(self, what: str, turn: int, value: float, unit: str) -> None:
        self.values.setdefault(what, {})[turn] = value
        print(f"  {what}: {UNITS[unit](value)}", flush=True)

    def of(self, what: str) -> list[float]:
        return list(self.values.get(what, {}).values())

    def ratios(self, line: Line) -> list[float]:
        ours, theirs = self.values.get(line.what, {}), self.values.get(line.peer, {})
        both = [(ours[turn], theirs[turn]) for turn in ours if turn in theirs]
        return [their / our if line.less else our / their for our, their in both]


class Spark:
    """The process with the session."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.about = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        said = self._process.stdout.readline()
        if not said:
            raise Broken(f"Spark has ended: {self._log.read_text(errors='replace')[-500:]}")
        found: dict[str, Any] = json.loads(said)
        if "error" in found:
            raise Broken(found["error"])
        return found

    def do(self, what: str, **how: object) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": what, **how}) + "\n")
        self._process.stdin.flush()
        return self._answer()


@contextmanager
def session(bench: Bench, broker: Klamm, jars: list[Path], log: Path) -> Iterator[Spark]:
    command = [sys.executable, str(BENCH / "spark_side.py"), "--to", broker.address]
    command += ["--jars", ",".join(map(str, jars))]
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        yield Spark(process, log)
        assert process.stdin
        process.stdin.close()
        process.wait(60)
    finally:
        process.kill()
        process.wait()


@contextmanager
def running(bench: Bench) -> Iterator[Klamm]:
    """A broker on all cores: so is Spark."""
    with bench.data_folder() as folder:
        broker = Klamm(folder, sorted({bench.broker_core, *bench.client_cores}), settings=SETTINGS)
        try:
            broker.wait_for_port()
            yield broker
            broker.stop()
        finally:
            broker.kill()


def measure(bench: Bench) -> Results:
    results = Results()
    jars: list[Path] = []
    try:
        jars = connector.jars()
    except Unavailable as reason:
        results.notes.append(f"Spark's own connector: {reason}")
    with running(bench) as broker, bench.data_folder() as folder, session(bench, broker, jars, folder / "log") as spark:
        theirs = f"Spark's Kafka connector {connector.VERSION}" if jars else "no connector to compare with"
        parts = [f"PySpark {spark.about['spark']}", theirs, f"pyarrow {version('pyarrow')}"]
        results.versions = ", ".join(parts)
        for size, rows in ROWS.items():
            results.filled[size] = fill(bench, broker, f"read-{size}", size, bench.scaled(rows))
        warm_up(bench, broker, spark, bool(jars))
        for turn in range(bench.rounds):
            for part in (source, sink, latency):
                try:
                    part(bench, broker, spark, results, turn, bool(jars))
                except Broken as reason:
                    results.notes.append(f"{part.__name__}, round {turn + 1}: {reason}")
                    print(f"  {results.notes[-1]}", flush=True)
        growth(bench, broker, spark, results)
    return results


def fill(bench: Bench, broker: Klamm, topic: str, size: int, rows: int) -> int:
    """How many records there are: whole batches of them."""
    where = {"to": broker.address, "topic": topic, "partitions": PARTITIONS}
    bench.tool("raw", "create", **where)
    return int(bench.tool("raw", "produce", **where, records=rows, size=size, batch=BATCH_BYTES)["records"])


BATCH_BYTES = 100_000  # of the topics that are read: between what Java's producer makes and what a bulk load does


def formats(turn: int, theirs: bool) -> list[tuple[str, str]]:
    """Who goes first changes."""
    both = [("klamm", OURS), ("kafka", THEIRS)] if theirs else [("klamm", OURS)]
    return both[::-1] if turn % 2 else both


def warm_up(bench: Bench, broker: Klamm, spark: Spark, theirs: bool) -> None:
    for _ in range(2):
        for format_, _ in formats(0, theirs):
            spark.do("read", format=format_, topic="read-100")
    bench.tool("raw", "create", to=broker.address, topic="warm", partitions=PARTITIONS)
    for name in ["at-least-once", "exactly-once", *(["kafka"] if theirs else [])]:
        spark.do("write", sink=name, topic="warm", size=100, rows=bench.scaled(WRITTEN_ROWS[100]))
    micro_batches(bench, broker, spark, "warm", theirs)


def source(bench: Bench, broker: Klamm, spark: Spark, results: Results, turn: int, theirs: bool) -> None:
    for size, rows in results.filled.items():
        for format_, name in formats(turn, theirs):
            found = spark.do("read", format=format_, topic=f"read-{size}")
            if found["rows"] != rows:
                raise Broken(f"{name} has counted {found['rows']:,} rows")
            what = f"source, {size:,} B, count"
            results.put(f"{what}: {name}", turn, found["rows_per_s"], "rows/s")
            results.put(f"{what}, CPU time of a row: {name}", turn, found["cpu_us_per_row"], "us")


def sink(bench: Bench, broker: Klamm, spark: Spark, results: Results, turn: int, theirs: bool) -> None:
    kinds = [("at-least-once", f"{OURS}, at least once"), ("exactly-once", f"{OURS}, exactly once")]
    kinds += [("kafka", THEIRS)] if theirs else []
    for size, rows in WRITTEN_ROWS.items():
        for kind, name in kinds[::-1] if turn % 2 else kinds:
            where = {"to": broker.address, "topic": f"{kind}-{size}-{turn}", "partitions": PARTITIONS}
            bench.tool("raw", "create", **where)
            bench.settle(bench.scaled(rows) * size * 1.2)
            found = spark.do("write", sink=kind, topic=where["topic"], size=size, rows=bench.scaled(rows))
            bench.tool("raw", "delete", **where)
            results.put(f"sink, {size:,} B: {name}", turn, found["rows_per_s"], "rows/s")
            results.put(f"sink, {size:,} B, CPU time of a row: {name}", turn, found["cpu_us_per_row"], "us")


def latency(bench: Bench, broker: Klamm, spark: Spark, results: Results, turn: int, theirs: bool) -> None:
    for name, found in micro_batches(bench, broker, spark, f"turn-{turn}", theirs, backwards=turn % 2 == 1):
        results.put(f"micro-batch, topic to topic, at least once, median: {name}", turn, found["ms"], "ms")
        print(f"    {found['parts']}", flush=True)


def micro_batches(
    bench: Bench, broker: Klamm, spark: Spark, prefix: str, theirs: bool, *, backwards: bool = False
) -> list[tuple[str, dict[str, Any]]]:
    kinds = [("klamm", OURS), ("empty", EMPTY), *([("kafka", THEIRS)] if theirs else [])]
    measured = []
    for format_, name in kinds[::-1] if backwards else kinds:
        topics = [f"{prefix}-{format_}-{end}" for end in ("in", "out")]
        for topic in topics:
            bench.tool("raw", "create", to=broker.address, topic=topic, partitions=1)
        how = {"batches": bench.scaled(LATENCY_BATCHES), "rows": LATENCY_ROWS}
        measured.append((name, spark.do("latency", format=format_, topic=topics[0], out=topics[1], **how)))
    return measured


def growth(bench: Bench, broker: Klamm, spark: Spark, results: Results) -> None:
    """Topics of 100 B records that are counted, each larger than the one before; then one that is streamed."""
    first = 0.0
    for rows in GROWTH:
        rows = bench.scaled(rows)
        fill(bench, broker, f"growth-{rows}", 100, rows)
        found = spark.do("read", format="klamm", topic=f"growth-{rows}")
        bench.tool("raw", "delete", to=broker.address, topic=f"growth-{rows}")
        each = found["seconds"] / found["rows"] * 1e6
        first = first or each
        results.growth.append((rows, each, first))
        print(f"  {rows:,} rows: {each:.2f} us each", flush=True)
    size = bench.scaled(GROWTH_BATCH)
    fill(bench, broker, "streamed", 100, size * STREAMED)
    results.stream = spark.do("stream", topic="streamed", per_batch=size)
    print(f"  streamed: {results.stream}", flush=True)


def spread(values: list[float], show: Callable[[float], str]) -> str:
    median = show(statistics.median(values))
    return f"{median} ({show(min(values))} - {show(max(values))})" if len(values) > 1 else median


def line_text(results: Results, line: Line) -> str:
    show = UNITS[line.unit]
    values, ratios = results.of(line.what), results.ratios(line)
    aims, reached = [], True
    if line.ratio is not None:
        aims.append(f"ratio >= {line.ratio:.2g}")
        reached &= bool(ratios) and statistics.median(ratios) >= line.ratio
    if line.bound is not None:
        aims.append(f">= {show(line.bound)}")
        reached &= statistics.median(values) >= line.bound
    ratio = spread(ratios, lambda value: f"{value:.2f}") if ratios else ""
    answer = ("yes" if reached else "no") if aims else ""
    return f"| {line.what} | {spread(values, show)} | {ratio} | {', '.join(aims)} | {answer} |"


def text(results: Results, note: str) -> str:
    rows = [line_text(results, line) for line in lines() if results.of(line.what)]
    for count, each, first in results.growth:
        aim = "flat" if count != results.growth[0][0] else ""
        rows.append(
            f"| count of {count:,} rows, time of a row: {OURS} | {each:.2f} us | {first / each:.2f} | {aim} | |"
        )
    rows += stream_rows(results)
    notes = [part for failed in results.notes for part in ("", f"Not measured: {failed}.")]
    head = "| what | median (spread) | ratio | to reach | reached |"
    return "\n".join([f"## {TITLE}", "", note, "", ABOUT, "", head, "|---|---|---|---|---|", *rows, *notes, ""])


def stream_rows(results: Results) -> Iterator[str]:
    found = results.stream
    if not found:
        return
    times = found["us_per_row"]
    part = max(1, len(times) // 4)
    early, late = statistics.median(times[1 : part + 1]), statistics.median(times[-part:])
    what = f"stream of {found['rows']:,} rows in {len(times)} batches"
    yield f"| {what}, time of a row, last quarter | {late:.2f} us | {early / late:.2f} | flat | |"
    for name, where in (("heap", "alive on the driver's heap"), ("python", "all Python processes")):
        begin, end = found[name][0], found[name][-1]
        yield f"| {what}, {where}, at the end | {UNITS['bytes'](end)} | {begin / end:.2f} | flat | |"


ABOUT = f"""\
One warm session on `local[2]` (2 GB of heap), one Klamm, on the same two cores. In each round all do the same in turn,
and who goes first changes. A ratio is that of a round, and says how many times as good ours is; in rows of growth it
compares with the smallest topic, or the begin of the stream. "Reached" is about the medians.

- **Source**: `count()` of a topic with {PARTITIONS} partitions in page cache, in batches of {BATCH_BYTES:,} B;
  `kafka.isolation.level=read_committed` for both, else defaults. CPU time is that of Spark and its Python processes,
  without the broker's; it says something even on a machine that is not quiet.
- **Sink**: rows with a key that are in Spark's memory, from two tasks into {PARTITIONS} partitions, defaults for both.
  Spark's own sink is at least once.
- **Micro-batch**: Spark's `triggerExecution` while a producer sends {LATENCY_ROWS} records of 100 B every 10 ms, one
  partition, as soon as possible. The empty source and sink are `bench/empty_source.py`; the same load runs beside them.
- **Growth**: 100 B, one round. Memory is what is left after a garbage collection."""
