"""From rows to `RESULTS.md`. A run replaces the sections it measured and leaves the others as they were."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from sections import SECTIONS, Row

UNITS: dict[str, Callable[[float], str]] = {
    "records/s": lambda v: f"{v / 1e6:.2f}M records/s",
    "bytes/s": lambda v: f"{v / 1e9:.2f} GB/s",
    "requests/s": lambda v: f"{v / 1e3:.1f}k/s",
    "us": lambda v: f"{v:,.0f} us",
    "ms": lambda v: f"{v:,.1f} ms",
    "s": lambda v: f"{v:.2f} s",
    "bytes": lambda v: f"{v / 1e6:.0f} MB",
}
TITLES = {
    "produce": "Produce",
    "fetch": "Fetch from page cache",
    "latency": "Sequential produce",
    "small": "Small requests over 8 connections",
    "startup": "Start-up",
    "memory": "Memory",
    "partitions": "10,000 partitions",
    "growth": "A log that grows",
}
HEAD = """# Results of `make bench`

Written by `bench/run.py`; what each line measures is in `bench/sections.py`. The ratio compares with the bare C
program of `bench/bare.c` that moves the same bytes over the same loopback on the same cores in the same round: into a
file (produce, latency), or out of the page cache by sendfile (fetch). 1 is as fast as the bare program; for times it is
the bare program's time over ours, and in a growing log the smallest log's over this one's. The median is of all
rounds, the spread their minimum and maximum. Before anything is written, as much memory is touched and given back: on
a virtual machine the first use of a page is the host's work and would be measured instead. These figures are never
asserted in tests.

Deleted topics give their pages back at once here (`log.segment.delete.delay.ms=0`), as the peer's file does. With the
default of a minute an earlier run of 3 rounds had 0.4-0.5 GB/s of 1,000 B records from the raw client (ratio 0.27-0.37)
and 2.0M/s of 100 B into 8 partitions (0.15). The likely reason, not traced: the data of earlier rounds was still in the
page cache and on its way to the disk. Sustained load on a slow disk may look like that.
"""


def row_text(row: Row) -> str:
    show = UNITS[row.unit]
    spread = f"{show(min(row.values))} - {show(max(row.values))}" if len(row.values) > 1 else ""
    ratio = ""
    if row.ratios:
        ratio = f"{statistics.median(row.ratios):.2f} ({min(row.ratios):.2f} - {max(row.ratios):.2f})"
    return f"| {row.what} | {row.aim} | {show(statistics.median(row.values))} | {spread} | {ratio} |"


def section_text(name: str, rows: list[Row], notes: list[str]) -> str:
    lines = [
        f"## {TITLES[name]}",
        "",
        *notes,
        "",
        "| what | to reach | median | spread | ratio |",
        "|---|---|---|---|---|",
        *(row_text(row) for row in rows),
        "",
    ]
    return "\n".join(lines)


def machine() -> str:
    model = platform.processor() or platform.machine()
    memory = ""
    try:
        with open("/proc/cpuinfo") as info:
            found = re.search(r"model name\s*: (.*)", info.read())
            model = found[1] if found else model
        with open("/proc/meminfo") as info:
            found = re.search(r"MemTotal:\s+(\d+)", info.read())
            memory = f", {int(found[1]) >> 20} GiB" if found else ""
    except OSError:
        pass
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores{memory}, {system}"


def commit(folder: Path) -> str:
    def git(*arguments: str) -> str:
        run = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
        return run.stdout.strip()

    changed = " with changes" if git("status", "--porcelain", "--", "src") else ""
    return (git("rev-parse", "--short", "HEAD") or "no commit") + changed


def today() -> str:
    return time.strftime("%Y-%m-%d")


def update(path: Path, fresh: dict[str, str]) -> None:
    """Replace these sections in the file, keep the rest, in the order of the sections."""
    old = path.read_text() if path.exists() else ""
    texts = {}
    for piece in re.split(r"(?m)^(?=## )", old)[1:]:
        for name, title in TITLES.items():
            if piece.startswith(f"## {title}\n"):
                texts[name] = piece.rstrip() + "\n"
    texts.update(fresh)
    path.write_text(HEAD + "".join("\n" + texts[name] for name in SECTIONS if name in texts))
