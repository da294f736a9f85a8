"""Klamm and Apache Kafka in turn, round after round, and the tables that come of it.

Only one of them runs at a time: an idle Kafka takes some percent of a core. In each round each broker is started on an
empty folder, warmed up and put through `side.Block`; who comes first changes from round to round. A ratio is that of
one round, and says how many times as good Klamm is: more records, or less time and memory.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apache
from brokers import Broken, Broker, Klamm, free_port
from coordination import COORDINATION_SETTINGS, Coordination, coordination_rows
from harness import Bench
from payload import Payload
from side import Block, Row, Values, rows

SETTINGS = ["log.segment.delete.delay.ms=100"]
WARM_UP_S = {"Klamm": 3.0, "Kafka": 25.0}
UNITS: dict[str, Callable[[float], str]] = {
    "records/s": lambda v: f"{v / 1e6:.2f}M/s",
    "bytes/s": lambda v: f"{v / 1e6:,.0f} MB/s",
    "requests/s": lambda v: f"{v / 1e3:.1f}k/s",
    "us": lambda v: f"{v:,.0f} us",
    "ms": lambda v: f"{v:,.0f} ms",
    "s": lambda v: f"{v:.2f} s",
    "each s": lambda v: f"{v:,.0f}/s",
    "times": lambda v: f"{v:.2f} x",
    "bytes": lambda v: f"{v / 1e6:.0f} MB",
}


class Place(NamedTuple):
    title: str
    shared: bool  # broker and clients on both cores, or each on its own
    block: type[Block] = Block
    rows: Callable[[], list[Row]] = rows
    settings: Sequence[str] = ()  # beside those of all places


PLACES = {
    "kafka-one": Place("Next to Apache Kafka: the broker on one core, the clients on the other", shared=False),
    "kafka-both": Place("Next to Apache Kafka: broker and clients on both cores", shared=True),
    "kafka-groups": Place(
        "Next to Apache Kafka: groups, transactions, compaction; broker and clients on both cores",
        shared=True,
        block=Coordination,
        rows=coordination_rows,
        settings=COORDINATION_SETTINGS,
    ),
}


class Results:
    """What was measured at one place: for each row and broker, the value of each round."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, dict[int, float]]] = {}
        self.notes: list[str] = []

    def add(self, what: str, broker: str, turn: int, value: float) -> None:
        self.values.setdefault(what, {}).setdefault(broker, {})[turn] = value

    def of(self, row: Row, broker: str) -> list[float]:
        return list(self.values.get(row.what, {}).get(broker, {}).values())

    def ratios(self, row: Row) -> list[float]:
        """Of the rounds that have both values; more than 1 is better than Kafka."""
        klamm, kafka = (self.values.get(row.what, {}).get(name, {}) for name in ("Klamm", "Kafka"))
        both = [(klamm[turn], kafka[turn]) for turn in klamm if turn in kafka]
        return [theirs / ours if row.less else ours / theirs for ours, theirs in both]


@contextlib.contextmanager
def started(
    bench: Bench, name: str, kafka: apache.Kafka | None, cores: tuple[int, ...], settings: Sequence[str]
) -> Iterator[tuple[Broker, Path]]:
    with bench.data_folder() as data:
        broker: Broker
        if name == "Klamm":
            broker = Klamm(data / "klamm", cores, free_port(), settings)
        else:
            assert kafka is not None
            broker = kafka.start(data, cores, settings)
        try:
            yield broker, data
        finally:
            broker.kill()  # its folder is gone in a moment: a clean stop would only take time


def measure(bench: Bench, place: Place, kafka: apache.Kafka | None) -> Results:
    results = Results()
    mine, theirs = bench.broker_core, bench.client_cores
    cores = (mine, *theirs) if place.shared else (mine,)
    bench.client_cores = cores if place.shared else theirs
    names = ["Klamm", "Kafka"] if kafka else ["Klamm"]
    try:
        with bench.data_folder() as folder:
            payload = Payload(folder)
            for turn in range(bench.rounds):
                for name in names[::-1] if turn % 2 else names:
                    start = time.perf_counter()
                    with started(bench, name, kafka, cores, [*SETTINGS, *place.settings]) as (broker, data):
                        block = place.block(bench, payload, kafka, broker, data)
                        run_block(block, name, turn, results)
                    print(f"  round {turn + 1}, {name}: {time.perf_counter() - start:.0f} s", flush=True)
    finally:
        bench.client_cores = theirs
    return results


def run_block(block: Block, name: str, turn: int, results: Results) -> None:
    """All steps. What one of them could not do is noted and the next one tried, as long as the broker lives."""

    def warm_up() -> Values:
        block.warm_up(WARM_UP_S[name] * min(1.0, block.bench.scale))
        passes = ", ".join(f"{rate / 1e6:.2f}" for rate in block.warmed)
        print(f"    {name}: warm-up, produce of 100 B in M/s: {passes}", flush=True)
        yield from ()

    for label, step in [("start", block.begin), ("warm-up", warm_up), *block.steps()]:
        try:
            for row, value in step():
                results.add(row.what, name, turn, value)
                print(f"    {name}: {row.what}: {UNITS[row.unit](value)}", flush=True)
        except (Broken, subprocess.TimeoutExpired) as reason:
            results.notes.append(f"{name}, round {turn + 1}, {label}: {reason}")
            print(f"  {results.notes[-1]}", flush=True)
            if block.broker.process.poll() is not None:
                results.notes.append(f"{name} has ended: " + " / ".join(block.broker.lines[-5:]))
                return


def spread(values: list[float], show: Callable[[float], str]) -> str:
    if not values:
        return "-"
    median = show(statistics.median(values))
    return f"{median} ({show(min(values))} - {show(max(values))})" if len(values) > 1 else median


def row_text(results: Results, row: Row) -> str:
    klamm, kafka = (spread(results.of(row, name), UNITS[row.unit]) for name in ("Klamm", "Kafka"))
    ratios = results.ratios(row)
    ratio = spread(ratios, lambda value: f"{value:.2f}")
    aim = f">= {row.aim:g}" if row.aim else ""
    reached = ("yes" if statistics.median(ratios) >= row.aim else "no") if row.aim and ratios else ""
    if row.most is not None:
        aim = f"<= {UNITS[row.unit](row.most)}"
        reached = "yes" if max(results.of(row, "Klamm"), default=row.most + 1) <= row.most else "no"
    return f"| {row.what} | {klamm} | {kafka} | {ratio} | {aim} | {reached} |"


def table(results: Results, shown: Sequence[Row]) -> list[str]:
    lines = ["| what | Klamm | Kafka | ratio | to reach | reached |", "|---|---|---|---|---|---|"]
    lines += [row_text(results, row) for row in shown if row.what in results.values]
    return lines + [line for note in results.notes for line in ("", f"Not measured: {note}.")]


def keep(path: Path, place: str, results: Results) -> dict[str, dict[str, list[float]]]:
    """Add the ratios of this place to those of the other one, if they were measured before; the plot shows both."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known[place] = {row.what: found for row in PLACES[place].rows() if (found := results.ratios(row))}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1))
    kept: dict[str, dict[str, list[float]]] = known
    return kept
