"""`make bench`: speed and size of the broker, next to Apache Kafka and next to a bare C program.

    python bench/run.py                      everything, into bench/RESULTS.md (three quarters of an hour)
    python bench/run.py --quick              everything, short rounds, printed only
    python bench/run.py kafka                next to Apache Kafka alone (a quarter of an hour): kafka-one, kafka-both
    python bench/run.py clients              our client library next to others (five minutes)
    python bench/run.py spark                our source and sink for Spark next to Spark's own (ten minutes)
    python bench/run.py engine               next to the bare C program alone
    python bench/run.py produce latency      some sections

It needs a C compiler, for the librdkafka figures its headers, and Java and Maven for Kafka; without them Klamm is
measured alone. On a machine that does other work at the same time the figures say little: the load average is noted
beside them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import apache
import plot
import versus
from brokers import Broken
from harness import BENCH, OUT, Bench
from maven import Unavailable
from report import commit, kafka_text, machine, row_text, section_text, today, update
from sections import SECTIONS

import clients
import spark

GROUPS = {"engine": list(SECTIONS), "kafka": list(versus.PLACES)}
ALL = [*versus.PLACES, "clients", "spark", *SECTIONS]
KAFKA_ROUNDS, ENGINE_ROUNDS = 3, 5


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join([*GROUPS, *ALL]))
    parser.add_argument(
        "--rounds", type=int, help="of each measurement; 5 (3 next to Kafka and on Spark), with --quick 2 (1)"
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the data, a log of 1 GB; results not written")
    parser.add_argument("--write", action="store_true", help="write the results of a quick run, too")
    parser.add_argument("--cores", default="0,1", help="of the broker and of the clients (0,1)")
    parser.add_argument("--data", type=Path, help="folder for the data (bench/out)")
    parser.add_argument("--growth-bytes", type=float, help="how far the growing log grows (1e10)")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.sections if name not in GROUPS and name not in ALL]
    if unknown:
        parser.error(f"no section {unknown[0]}; there are {', '.join([*GROUPS, *ALL])}")
    wanted = [name for given in chosen.sections for name in GROUPS.get(given, [given])]
    chosen.sections = list(dict.fromkeys(wanted)) or ALL
    return chosen


class Run:
    """What was chosen, and the sections measured so far."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        broker_core, client_core = (int(core) for core in chosen.cores.split(","))
        self.chosen = chosen
        self.failures = 0
        self.fresh: dict[str, str] = {}
        self.bench = Bench(
            rounds=1,
            scale=0.2 if chosen.quick else 1.0,
            broker_core=broker_core,
            client_core=client_core,
            folder=chosen.data,
        )

    def section(self, name: str) -> None:
        print(f"\n{name}", flush=True)
        load, start = os.getloadavg()[0], time.perf_counter()
        kafka = name in versus.PLACES
        slow = kafka or name == "spark"
        self.bench.rounds = self.chosen.rounds or (KAFKA_ROUNDS if slow else ENGINE_ROUNDS)
        if self.chosen.quick and not self.chosen.rounds:
            self.bench.rounds = 1 if slow else 2
        quick = ", quick" if self.chosen.quick else ""
        where = f"{today()}, commit {commit(BENCH)}, {self.bench.rounds} rounds{quick}; {machine()}"
        kind = self.kafka if kafka else {"clients": self.clients, "spark": self.spark}.get(name, self.engine)
        text = kind(name, f"{where}; load average before: {load:.1f}.")
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        if text:
            self.fresh[name] = text
            if self.writes:
                update(BENCH / "RESULTS.md", self.fresh)

    @property
    def writes(self) -> bool:
        return bool(self.chosen.write or not self.chosen.quick)

    def engine(self, name: str, note: str) -> str:
        rows = []
        largest = int(self.chosen.growth_bytes or (1e9 if self.chosen.quick else 1e10))
        try:
            for row in SECTIONS[name](self.bench, largest) if name == "growth" else SECTIONS[name](self.bench):
                rows.append(row)
                print(row_text(row), flush=True)
        except Broken as reason:
            self.failures += 1
            print(f"{name} stopped: {reason}", file=sys.stderr, flush=True)
        return section_text(name, rows, [note]) if rows else ""

    def clients(self, name: str, note: str) -> str:
        try:
            results = clients.measure(self.bench)
        except Broken as reason:
            self.failures += 1
            print(f"{name} stopped: {reason}", file=sys.stderr, flush=True)
            return ""
        self.failures += bool(results.notes)
        text = clients.text(results, f"{note} {clients.versions()}.")
        print(text, flush=True)
        caption = f"Klamm's client next to others, one core each, {machine()}, {today()}"
        if not clients.draw((BENCH if self.writes else OUT) / "clients.png", results, caption):
            print("no plot: matplotlib is not installed (requirements/bench.txt)", file=sys.stderr, flush=True)
        return text

    def spark(self, name: str, note: str) -> str:
        try:
            results = spark.measure(self.bench)
        except Broken as reason:
            self.failures += 1
            print(f"{name} stopped: {reason}", file=sys.stderr, flush=True)
            return ""
        self.failures += bool(results.notes)
        text = spark.text(results, f"{note} {results.versions}.")
        print(text, flush=True)
        return text

    def kafka(self, name: str, note: str) -> str:
        try:
            kafka = apache.installation()
            versions = f"Apache Kafka {apache.VERSION} on {kafka.java_version()}"
        except Unavailable as reason:
            kafka, versions = None, f"Klamm alone, no Apache Kafka to compare with: {reason}"
            print(versions, file=sys.stderr, flush=True)
        if "load" in self.bench.tools:
            parts = self.bench.tool("load", "version")
            versions += f"; librdkafka {parts['major']}.{parts['minor']}.{parts['revision']}"
        try:
            results = versus.measure(self.bench, versus.PLACES[name], kafka)
        except Broken as reason:
            self.failures += 1
            print(f"{name} stopped: {reason}", file=sys.stderr, flush=True)
            return ""
        self.failures += bool(results.notes)
        lines = versus.table(results, versus.PLACES[name].rows())
        print("\n".join(lines), flush=True)
        if kafka:
            folder = BENCH if self.writes else OUT
            ratios = versus.keep(OUT / ("kafka.json" if self.writes else "kafka-quick.json"), name, results)
            caption = f"Klamm next to Apache Kafka {apache.VERSION}, {machine()}, {today()}"
            if not plot.draw(folder / "kafka.png", ratios, caption):
                print("no plot: matplotlib is not installed (requirements/bench.txt)", file=sys.stderr, flush=True)
        return kafka_text(name, lines, [f"{note} {versions}."])


def main() -> int:
    chosen = arguments()
    run = Run(chosen)
    for name in chosen.sections:
        run.section(name)
    return 1 if run.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as reason:
        sys.exit(str(reason))
