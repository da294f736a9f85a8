"""`make bench`: speed and size of the broker, next to a bare C program on the same cores.

    python bench/run.py                      everything, 5 rounds, into bench/RESULTS.md (half an hour)
    python bench/run.py --quick              everything, 2 short rounds, printed only
    python bench/run.py produce latency      some sections

It needs a C compiler, and for the librdkafka figures its headers. On a machine that does other work at the same time
the figures say little: the load average is noted beside them.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from brokers import Broken
from harness import BENCH, Bench
from report import commit, machine, row_text, section_text, today, update
from sections import SECTIONS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--rounds", type=int, help="of each measurement; 5, or 2 with --quick")
    parser.add_argument("--quick", action="store_true", help="a fifth of the data, a log of 1 GB; results not written")
    parser.add_argument("--write", action="store_true", help="write the results of a quick run, too")
    parser.add_argument("--cores", default="0,1", help="of the broker and of the clients (0,1)")
    parser.add_argument("--data", type=Path, help="folder for the data (bench/out)")
    parser.add_argument("--growth-bytes", type=float, help="how far the growing log grows (1e10)")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    return chosen


def main() -> int:
    chosen = arguments()
    broker_core, client_core = (int(core) for core in chosen.cores.split(","))
    bench = Bench(
        rounds=chosen.rounds or (2 if chosen.quick else 5),
        scale=0.2 if chosen.quick else 1.0,
        broker_core=broker_core,
        client_core=client_core,
        folder=chosen.data,
    )
    largest = int(chosen.growth_bytes or (1e9 if chosen.quick else 1e10))
    fresh, failures = {}, 0
    for name in chosen.sections or SECTIONS:
        print(f"\n{name}", flush=True)
        load = os.getloadavg()[0]
        rows = []
        try:
            for row in SECTIONS[name](bench, largest) if name == "growth" else SECTIONS[name](bench):
                rows.append(row)
                print(row_text(row), flush=True)
        except Broken as reason:
            failures += 1
            print(f"{name} stopped: {reason}", file=sys.stderr, flush=True)
        if rows:
            where = f"{today()}, commit {commit(BENCH)}, {bench.rounds} rounds{', quick' if chosen.quick else ''}"
            notes = [f"{where}; {machine()}; load average before: {load:.1f}."]
            fresh[name] = section_text(name, rows, notes)
            if chosen.write or not chosen.quick:
                update(BENCH / "RESULTS.md", fresh)
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as reason:
        sys.exit(str(reason))
