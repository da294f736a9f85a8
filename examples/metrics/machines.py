"""Three machines with metrics and log lines, made up: six minutes in which two things go wrong. Pure.

web-2 gets too many requests for a minute and a half. Later the disk of db-1 fills up, and errors follow.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from running import Event

SECONDS = 360
RUSH = range(90, 180)
"""When web-2 has too much to do."""
FULL = range(240, 300)
"""When the disk of db-1 has no room."""


def events(start_s: float, seed: int = 1) -> Iterator[Event]:
    """`start_s` should be the beginning of a window."""
    chance = random.Random(seed)
    for second in range(SECONDS):
        at_s = start_s + second
        for host in ("web-1", "web-2", "db-1"):
            busy = 97 if host == "web-2" and second in RUSH else 50
            yield _metric(at_s, host, "cpu", chance.gauss(busy, 3))
            if _fails(host, second, chance):
                yield _line(at_s, host, "ERROR", "no space left on device" if host == "db-1" else "upstream timed out")
            else:
                yield _line(at_s, host, "INFO", "request done")
        yield _metric(at_s, "db-1", "disk", 92 if second in FULL else 60)
    yield Event(start_s + 200, "metrics", "web-1", "cpu=12 (an old agent that speaks no JSON)")


def _fails(host: str, second: int, chance: random.Random) -> bool:
    return chance.random() < (0.5 if host == "db-1" and second in FULL else 0.02)


def _metric(at_s: float, host: str, metric: str, value: float) -> Event:
    told = {"host": host, "metric": metric, "value": round(min(value, 100.0), 1), "at": _time(at_s)}
    return Event(at_s, "metrics", host, json.dumps(told))


def _line(at_s: float, host: str, level: str, text: str) -> Event:
    return Event(at_s, "logs", host, f"{_time(at_s)} {host} {level} {text}")


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
