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

from coordination import FEW_HEARTBEAT_MS, HEARTBEAT_MS
from sections import SECTIONS, Row
from side import DATA_BYTES, RUN_MS
from versus import PLACES, SETTINGS, WARM_UP_S

from clients import TITLE as CLIENTS_TITLE
from spark import TITLE as SPARK_TITLE

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
TOP = """# Results of `make bench`

Written by `bench/run.py`. Each section says when and where it was measured; a run replaces the sections it measured.
The median is of all rounds, the spread their minimum and maximum. None of these figures is asserted in a test.
"""
KAFKA_WARM, KLAMM_WARM = (f"{WARM_UP_S[name]:.0f} s" for name in ("Kafka", "Klamm"))
RUN_LIMIT = f"{RUN_MS / 1e3:.1f} s or {DATA_BYTES // 10**6} MB"
KAFKA_HEAD = f"""
## Next to Apache Kafka

Both brokers through the same steps (`bench/side.py`) with the same clients, in turn, never both at once; each round
starts them on empty folders, and the one that goes first changes. The ratio is that of a round and says how many times
as good Klamm is: its rate over Kafka's, or Kafka's time or memory over Klamm's. "Reached" is about the median.

What was not left at its default:

- **Both**: `{SETTINGS[0]}` instead of a minute, and the next measurement waits until the last
  one's files are gone; else their data would be on its way to the disk during it. One replica, `acks=all`: an answer
  means that the data is in the page cache, for both.
- **Kafka**: one node, broker and controller in one process. Set is only what has no default: roles, node id, quorum,
  listeners, folder. The virtual machine has the flags of Kafka's own start script (1 GB of heap, G1, 20 ms pauses). It
  writes no log, because the Maven artifacts have no binding for one. Warmed up for {KAFKA_WARM} with the kinds of load
  that follow, before every round. Its folder is formatted before the spawn that is measured.
- **Klamm**: nothing else. Warmed up for {KLAMM_WARM}. It makes its folder within the start that is measured.
- **Raw client** (C, one thread): Produce v7 with one prepared batch of 1,000,000 bytes before compression (or 16 KiB,
  where it says so), 5 in flight; Fetch v11, 1 MiB for each partition, no session. It does not look into batches.
- **librdkafka**, producer: `batch.num.messages=1000000`, `queue.buffering.max.messages=200000`,
  `delivery.report.only.error=true` (not where latency is measured), `linger.ms` 5 (its default) unless the row says
  otherwise. Consumer: `queued.min.messages=1000000`, `queued.max.messages.kbytes=1048576`, `fetch.error.backoff.ms=1`,
  no auto-commit, partitions assigned, no group. Memory that it frees is kept by the process.
- **Java's producer-perf-test**: its defaults (16 KiB batches, `linger.ms=5`, idempotent), `-Xmx512m`; the first third
  of its records is warm-up. It sends random letters. Where it fills its core, the broker's CPU time says more than the
  rate.
- **Values** are text made of random words, the same for both, that LZ4 makes about a third of (2.7:1 in batches of
  100 B, 3.2:1 of 1,000 B). Rows of 1,000 B count the bytes of values before compression. A run lasts {RUN_LIMIT}
  of one topic, less than a segment.
- **End to end**: one producer, one consumer, one partition, 100 B. Time runs from when a record was due to be sent, not
  from when the client got round to it, to when the consumer has it.
- **Groups, transactions, compaction** (`bench/coordination.py`): no initial delay of groups, one replica of internal
  topics, `log.cleaner.backoff.ms=100` so that compaction begins at once. Members and transactional producers are our
  own: classic protocol, a heartbeat every {HEARTBEAT_MS} ms ({FEW_HEARTBEAT_MS} ms where one leaves), because a member
  learns of a rebalance by its next heartbeat, and the usual
  3 s would hide everything else. The members that join at once are a C program (`bench/join.c`): two connections each,
  API versions on both, FindCoordinator, JoinGroup twice, SyncGroup, OffsetFetch, Fetch. They join when all of them are
  connected; else the first ones make a generation of their own, the others wait until those send a heartbeat, and the
  interval between heartbeats is all that is seen. That happens in the row of the members in Python (`bench/members.py`,
  one loop for all), which is nearer to consumers that are started one by one, and of which about half is
  Python's time; so it has no aim. Commits come from the raw client, for groups without members. A log is compacted with
  segments of 100 MiB; the time runs from the change of `cleanup.policy` to the last change of a segment.
- **Idle memory** is resident memory 2 s after the first answer, before anything else was asked.

What the two do differently: Kafka looks at every record of a batch it takes, and decompresses a compressed one to do
so; Klamm checks the header and the checksum, which is less work. Kafka gives its sockets buffers of 100 KiB by default,
Klamm leaves their size to the kernel.
"""
ENGINE_HEAD = """
# Next to a bare C program

What each line measures is in `bench/sections.py`. The ratio compares with the bare C program of `bench/bare.c` that
moves the same bytes over the same loopback on the same cores in the same round: into a file (produce, latency), or out
of the page cache by sendfile (fetch). 1 is as fast as the bare program; for times it is the bare program's time over
ours, and in a growing log the smallest log's over this one's. Before anything is written, as much memory is touched and
given back: on a virtual machine the first use of a page is the host's work and would be measured instead.

Deleted topics give their pages back at once here (`log.segment.delete.delay.ms=0`), as the peer's file does. With the
default of a minute an earlier run of 3 rounds had 0.4-0.5 GB/s of 1,000 B records from the raw client (ratio 0.27-0.37)
and 2.0M/s of 100 B into 8 partitions (0.15). The likely reason, not traced: the data of earlier rounds was still in the
page cache and on its way to the disk. Sustained load on a slow disk may look like that.
"""
PICTURE = "\n![Klamm's ratios to Apache Kafka](kafka.png)\n"


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


def kafka_text(name: str, lines: list[str], notes: list[str]) -> str:
    return "\n".join([f"## {PLACES[name].title}", "", *notes, "", *lines, ""])


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
    """Replace these sections in the file, keep the rest: Kafka's, the clients', Spark's, ours, in the code's order."""
    titles = {name: place.title for name, place in PLACES.items()} | TITLES
    titles |= {"clients": CLIENTS_TITLE, "spark": SPARK_TITLE}
    old = path.read_text() if path.exists() else ""
    texts = {}
    for piece in re.split(r"(?m)^(?=##? )", old)[1:]:
        for name, title in titles.items():
            if piece.startswith(f"## {title}\n"):
                texts[name] = piece.rstrip() + "\n"
    texts.update(fresh)
    kafka = ["\n" + texts[name] for name in PLACES if name in texts]
    engine = ["\n" + texts[name] for name in SECTIONS if name in texts]
    others = ["\n" + texts[name] for name in ("clients", "spark") if name in texts]
    picture = [PICTURE] if kafka and path.with_name("kafka.png").exists() else []
    path.write_text("".join([TOP, *([KAFKA_HEAD, *picture, *kafka] if kafka else []), *others, ENGINE_HEAD, *engine]))
