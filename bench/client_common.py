"""What the work of all clients has in common: settings, values, a watch, and what a process sees of its memory."""

from __future__ import annotations

import gc
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator

SIZE = 100
BATCH_BYTES = 1_000_000
LINGER_MS = 5
AT_ONCE = 10_000
WARM_UP = 20_000
LATENCY_WARM_UP = 300
IN_FLIGHT_BUFFER = 128 << 20
DEFAULT_BUFFER = 32 << 20
CONFLUENT_QUEUE = {"queue.buffering.max.messages": 2_000_000}  # else it holds no million
# As for librdkafka everywhere in this benchmark: it is not held up by the size of its queue.
CONFLUENT_CONSUMER = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_048_576}

Result = dict[str, float]


def make_values(count: int) -> list[bytes]:
    text = random.Random(7).randbytes(1 << 20)
    spots = random.Random(8)
    return [text[at : at + SIZE] for at in (spots.randrange(len(text) - SIZE) for _ in range(count))]


def pieces(values: list[bytes]) -> Iterator[list[bytes]]:
    for at in range(0, len(values), AT_ONCE):
        yield values[at : at + AT_ONCE]


class Watch:
    """Wall and CPU time between `start` and `result`."""

    def start(self) -> None:
        gc.collect()
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def result(self, records: int) -> Result:
        seconds = time.perf_counter() - self.wall
        cpu_s = time.process_time() - self.cpu
        return {"records": records, "records_per_s": records / seconds, "records_per_cpu_s": records / cpu_s}


def percentiles(times_s: list[float]) -> Result:
    cuts = statistics.quantiles(times_s, n=100)
    return {"p50_us": cuts[49] * 1e6, "p99_us": cuts[98] * 1e6}


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


def forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def ask(parent: str) -> None:
    """Have the parent do something to the broker, and wait until it has."""
    print(parent, flush=True)
    sys.stdin.readline()
