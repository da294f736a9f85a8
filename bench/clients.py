"""Our client library next to aiokafka, kafka-python and confluent-kafka, on the same broker, in the same run.

In each round every client does the same work in turn, each time in a process of its own (`client_side.py`) on the
clients' core; the broker, a Klamm, has the other one. A ratio is that of one round and says how many times as good our
client is. The results are a section of `RESULTS.md`, with a picture.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from brokers import Broken, Klamm, pinned_to
from client_common import AT_ONCE, BATCH_BYTES, DEFAULT_BUFFER, IN_FLIGHT_BUFFER, LINGER_MS, SIZE
from harness import BENCH, Bench

TITLE = "Our client next to others"
SMALL_BATCH_BYTES = 16_384
WORK_TIMEOUT_S = 300
ROOM_BYTES = 50_000_000
PEERS = ("aiokafka", "kafka-python", "confluent-kafka")
UNITS: dict[str, Callable[[float], str]] = {
    "records/s": lambda v: f"{v / 1e6:.2f}M/s",
    "us": lambda v: f"{v:,.0f} us",
    "bytes": lambda v: f"{v / 1e6:.0f} MB",
}


class Line(NamedTuple):
    """One client at one kind of work. The first line of a kind is the one that the others are compared with."""

    client: str
    call: str
    work: str  # of client_side
    records: float
    aim: float | None = None  # how many times as good ours has to be
    bound: float | None = None  # for lines without a peer: what it has to reach


class Kind(NamedTuple):
    what: str
    field: str
    unit: str
    lines: Sequence[Line]
    topic: str = ""  # one that is filled already; else each line has a new one

    @property
    def less(self) -> bool:
        return self.unit != "records/s"


PRODUCE = [
    Line("klamm", "send_many", "produce", 2e6),
    Line("confluent-kafka", "produce", "produce", 1e6, aim=0.7),
    Line("confluent-kafka", "produce_batch", "produce-batches", 1e6, aim=0.7),
    Line("aiokafka", "send", "produce", 2e5, aim=5),
    Line("aiokafka", "send_batch", "produce-batches", 4e5, aim=5),
    Line("kafka-python", "send", "produce", 1e5, aim=10),
    Line("klamm", "send_soon, one by one", "produce-one", 5e5),
]
CONSUME = [
    Line("klamm", f"getmany({AT_ONCE})", "consume", 3e6),
    Line("confluent-kafka", f"consume({AT_ONCE})", "consume", 3e6, aim=1),
    Line("aiokafka", f"getmany({AT_ONCE})", "consume", 6e5, aim=3),
    Line("kafka-python", f"poll({AT_ONCE})", "consume", 3e5),
]
ARROW = [Line("klamm", "arrow", "arrow", 5e6, bound=5e6)]
BY_CPU = "the same, in a second of the client's CPU time"  # says something even on a machine that is not quiet


def without_aims(lines: Sequence[Line]) -> list[Line]:
    return [line._replace(aim=None, bound=None) for line in lines]


KINDS = [
    Kind(f"produce {SIZE} B records, bulk", "records_per_s", "records/s", PRODUCE),
    Kind(f"produce: {BY_CPU}", "records_per_cpu_s", "records/s", without_aims(PRODUCE)),
    Kind(f"consume {SIZE} B records as objects", "records_per_s", "records/s", CONSUME, topic="filled"),
    Kind(f"consume: {BY_CPU}", "records_per_cpu_s", "records/s", without_aims(CONSUME), topic="filled"),
    Kind(
        f"consume {SIZE} B records as objects, and look at each value",
        "records_per_s",
        "records/s",
        [
            Line("klamm", f"getmany({AT_ONCE})", "consume-values", 3e6),
            Line("confluent-kafka", f"consume({AT_ONCE})", "consume-values", 3e6, aim=1),
            Line("aiokafka", f"getmany({AT_ONCE})", "consume-values", 6e5, aim=3),
            Line("kafka-python", f"poll({AT_ONCE})", "consume-values", 3e5),
        ],
        topic="filled",
    ),
    Kind(f"consume {SIZE} B records as Arrow", "records_per_s", "records/s", ARROW, topic="filled"),
    Kind(f"Arrow: {BY_CPU}", "records_per_cpu_s", "records/s", ARROW, topic="filled"),
    Kind(
        "Arrow: the same, from batches of 16 KiB",
        "records_per_s",
        "records/s",
        [Line("klamm", "arrow", "arrow", 2e6)],
        topic="small",
    ),
    Kind(
        "decode to Arrow what was fetched before",
        "records_per_s",
        "records/s",
        [Line("klamm", "klamm.arrow.batches", "decode", 2e6)],
        topic="filled",
    ),
    Kind(
        "send one record and wait, linger 0, p50",
        "p50_us",
        "us",
        [
            Line("klamm", "await send", "latency", 3e3),
            Line("aiokafka", "await send_and_wait", "latency", 3e3, aim=1),
            Line("confluent-kafka", "produce, flush", "latency", 3e3),
            Line("kafka-python", "send, get", "latency", 3e3),
        ],
    ),
    Kind(
        "memory for 1M records in flight",
        "grown_bytes",
        "bytes",
        [
            Line("klamm", "send_many", "memory", 1e6, bound=IN_FLIGHT_BUFFER + ROOM_BYTES),
            Line("confluent-kafka", "produce", "memory", 1e6),
            Line("klamm", "send_soon, results kept", "memory-one", 1e6),
        ],
    ),
    Kind(
        "memory, at most, while 1M records go through the default buffer",
        "peak_bytes",
        "bytes",
        [Line("klamm", "send_many", "through", 1e6, bound=DEFAULT_BUFFER + ROOM_BYTES)],
    ),
]


class Results:
    """What each line reached in each round."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, Line], dict[int, float]] = {}
        self.notes: list[str] = []

    def of(self, kind: Kind, line: Line) -> list[float]:
        return list(self.values.get((kind.what, line), {}).values())

    def ratios(self, kind: Kind, line: Line) -> list[float]:
        """Of the rounds that have both; more than 1 is better than this line."""
        ours, theirs = (self.values.get((kind.what, one), {}) for one in (kind.lines[0], line))
        both = [(ours[turn], theirs[turn]) for turn in ours if turn in theirs]
        return [their / our if kind.less else our / their for our, their in both]


def measure(bench: Bench, kinds: Sequence[Kind] = tuple(KINDS)) -> Results:
    results = Results()
    with bench.broker() as broker:
        fill(bench, broker)
        for turn in range(bench.rounds):
            known: dict[tuple[str, str, str], dict[str, float]] = {}  # one run may have several figures
            for kind in kinds:
                for line in kind.lines:
                    key = (line.client, line.work, kind.topic)
                    try:
                        if key not in known:
                            known[key] = run(bench, broker, kind, line, turn)
                        value = known[key][kind.field]
                    except (Broken, subprocess.TimeoutExpired) as reason:
                        results.notes.append(f"{kind.what}, {line.client}, round {turn + 1}: {reason}")
                        print(f"  {results.notes[-1]}", flush=True)
                        continue
                    results.values.setdefault((kind.what, line), {})[turn] = value
                    print(f"  {kind.what}: {line.client} {line.call}: {UNITS[kind.unit](value)}", flush=True)
    return results


def fill(bench: Bench, broker: Klamm) -> None:
    """The topics that are read: with batches as large as one fetch, and as small as Java's producer makes them."""
    for topic, records, batch_bytes in (("filled", 5e6, BATCH_BYTES), ("small", 2e6, SMALL_BATCH_BYTES)):
        where = {"to": broker.address, "topic": topic}
        bench.tool("raw", "create", **where)
        count = bench.scaled(records) + AT_ONCE  # what comes first is not counted
        bench.tool("raw", "produce", **where, records=count, size=SIZE, batch=batch_bytes)


def run(bench: Bench, broker: Klamm, kind: Kind, line: Line, turn: int) -> dict[str, float]:
    records = bench.scaled(line.records)
    topic = kind.topic or f"{line.client}-{line.work}-{turn}"
    where = {"to": broker.address, "topic": topic}
    if not kind.topic:
        bench.tool("raw", "create", **where)
        bench.settle(records * SIZE * 1.2)
    try:
        return work(bench, broker, line, topic, records)
    finally:
        if not kind.topic:
            bench.tool("raw", "delete", **where)


def work(bench: Bench, broker: Klamm, line: Line, topic: str, records: int) -> dict[str, float]:
    """Run a client, do to the broker what it asks for, and return its results."""
    command = [sys.executable, str(BENCH / "client_side.py"), line.client, line.work]
    process = subprocess.Popen(
        [*command, "--to", broker.address, "--topic", topic, "--records", str(records)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited(bench),
    )
    assert process.stdin and process.stdout and process.stderr
    last = ""
    try:
        for said in process.stdout:
            last = said
            if said.startswith(("stop", "let")):
                os.kill(broker.process.pid, signal.SIGSTOP if said.startswith("stop") else signal.SIGCONT)
                process.stdin.write("\n")
                process.stdin.flush()
        errors = process.stderr.read()
        if process.wait(WORK_TIMEOUT_S) != 0 or not last.startswith("{"):
            raise Broken(f"{line.client} {line.work} ended with {process.returncode}: {errors.strip()[-500:]}")
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)
        if process.poll() is None:
            process.kill()
            process.wait()
    found: dict[str, float] = json.loads(last)
    return found


def limited(bench: Bench) -> Callable[[], None]:
    """On the clients' cores, and not for longer than any of the work can take: a client may wait for ever."""
    pin = pinned_to(*bench.client_cores)

    def prepare() -> None:
        if pin is not None:
            pin()
        signal.alarm(WORK_TIMEOUT_S)

    return prepare


def spread(values: list[float], show: Callable[[float], str]) -> str:
    if not values:
        return "-"
    median = show(statistics.median(values))
    return f"{median} ({show(min(values))} - {show(max(values))})" if len(values) > 1 else median


def line_text(results: Results, kind: Kind, line: Line) -> str:
    show = UNITS[kind.unit]
    values, aim, reached, ratio = results.of(kind, line), "", "", ""
    if line.client != "klamm":
        ratios = results.ratios(kind, line)
        ratio = spread(ratios, lambda value: f"{value:.2f}")
        if line.aim is not None and ratios:
            aim, reached = f">= {line.aim:g}", "yes" if statistics.median(ratios) >= line.aim else "no"
    elif line.bound is not None and values:
        median = statistics.median(values)
        aim = f"{'<=' if kind.less else '>='} {show(line.bound)}"
        reached = "yes" if (median <= line.bound if kind.less else median >= line.bound) else "no"
    what = kind.what if line is kind.lines[0] else ""
    return f"| {what} | {line.client} `{line.call}` | {spread(values, show)} | {ratio} | {aim} | {reached} |"


def text(results: Results, note: str) -> str:
    lines = [line_text(results, kind, line) for kind in KINDS for line in kind.lines if results.of(kind, line)]
    notes = [part for failed in results.notes for part in ("", f"Not measured: {failed}.")]
    head = "| what | client | median (spread) | ours compared with it | to reach | reached |"
    return "\n".join(
        [f"## {TITLE}", "", note, "", ABOUT, "", head, "|---|---|---|---|---|---|", *lines, *notes, "", PICTURE, ""]
    )


def versions() -> str:
    return ", ".join(f"{name} {version(name)}" for name in PEERS)


PICTURE = "![Our client next to aiokafka, kafka-python and confluent-kafka](clients.png)"
ABOUT = f"""\
The broker is the same Klamm for all, on one core; each client is a process of its own on the other, one at a time. A
ratio is that of a round: our rate over theirs, or their time or memory over ours. "Reached" is about the median.

- **Producing**: one partition, idempotent, `acks=all`, linger {LINGER_MS} ms, batches of {BATCH_BYTES:,} B for all. The
  values are there before the clock starts, and are handed over {AT_ONCE:,} at a time where a call takes many; the clock
  stops when all are acknowledged. confluent-kafka's queue holds 2M messages, or it would have to be polled for room.
- **Consuming**: a topic of 5M records in batches of a megabyte, in page cache; no group, no commits. The clock starts
  with the first answer. confluent-kafka may hold 1 GB in its queues. Its messages make their values when they are
  asked for, ours have them; so there is a row in which all are looked at.
- **Arrow**: `consumer.arrow()` with its defaults, from the socket to a `pyarrow.RecordBatch`.
- **Memory** is what the process has grown by since its values and connections were there. In flight: the broker stands
  still (SIGSTOP) until all are sent, `buffer_memory` is {IN_FLIGHT_BUFFER >> 20} MiB. aiokafka and kafka-python would
  not hold so many: they wait when a batch or the buffer is full."""


def draw(path: Path, results: Results, caption: str) -> bool:
    """What there are aims for, a bar for each client; False where matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    kinds = {kind.what: [(kind, line) for line in kind.lines] for kind in KINDS if kind.what in DRAWN}
    kinds[DRAWN[1]] += kinds.pop(DRAWN[2])  # in one panel: both are records that are read
    figure, grid = pyplot.subplots(2, 2, figsize=(12, 5.6), height_ratios=[7, 4], layout="constrained")
    for axes, (title, bars) in zip(grid.flat, kinds.items(), strict=True):
        panel(axes, results, title.removesuffix(" as objects"), [bar for bar in bars if results.of(*bar)])
    figure.suptitle(caption, fontsize=10)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return True


DRAWN = (
    f"produce {SIZE} B records, bulk",
    f"consume {SIZE} B records as objects",
    f"consume {SIZE} B records as Arrow",
    "send one record and wait, linger 0, p50",
    "memory for 1M records in flight",
)
COLOURS = {"klamm": "#1f6feb", "confluent-kafka": "#d97706", "aiokafka": "#7c3aed", "kafka-python": "#6b7280"}
SCALES = {
    "records/s": (1e6, "million records/s"),
    "us": (1.0, "microseconds (less is better)"),
    "bytes": (1e6, "MB (less is better)"),
}


def panel(axes: Any, results: Results, title: str, bars: list[tuple[Kind, Line]]) -> None:
    scale, label = SCALES[bars[0][0].unit] if bars else (1.0, "not measured")
    for index, (kind, line) in enumerate(bars):
        values = [value / scale for value in results.of(kind, line)]
        middle = statistics.median(values)
        ends = [[middle - min(values)], [max(values) - middle]]
        axes.barh(index, middle, xerr=ends, color=COLOURS[line.client], height=0.6, error_kw={"lw": 1})
        number = f"{middle:,.2f}" if middle < 100 else f"{middle:,.0f}"
        axes.text(max(values), index, f"  {number}", va="center", fontsize=8)
        if line.bound is not None:
            bound = line.bound / scale
            axes.plot([bound, bound], [index - 0.4, index + 0.4], color="#15803d", lw=2)
    axes.set_yticks(range(len(bars)), [f"{line.client} {line.call}" for _, line in bars], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(label, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title(title, fontsize=9)
