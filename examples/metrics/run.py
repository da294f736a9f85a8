"""Metrics and logs of three machines, and an alert for each half minute in which one of them is above its limit.

.venv/bin/python examples/metrics/run.py

Six minutes of their life, thirty times as fast. It ends by itself when both incidents were seen, or with Ctrl-C.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machines import SECONDS, events
from running import show

from klamm import ConsumerRecord

TOPICS = {"metrics": 2, "logs": 2, "alerts": 1}
INCIDENTS = {("web-2", "cpu"), ("db-1", "disk"), ("db-1", "errors")}
WINDOW_S = 30
SPEED = 30.0


class Alerts:
    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    @property
    def is_enough(self) -> bool:
        return self._seen >= INCIDENTS

    @property
    def summary(self) -> str:
        return "Too many requests at web-2, a full disk and its errors at db-1: both incidents were seen."

    def line(self, record: ConsumerRecord) -> str:
        alert = json.loads(record.value or b"{}")
        self._seen.add((alert["host"], alert["metric"]))
        since, until = (datetime.fromisoformat(alert[name]).astimezone() for name in ("since", "until"))
        return (
            f"ALERT  {since:%H:%M:%S} to {until:%H:%M:%S}  {alert['host']:<6} {alert['metric']:<7}"
            f"{alert['value']:>6g}, more than {alert['high']:g}"
        )


def main() -> None:
    start_s = time.time() // WINDOW_S * WINDOW_S - SECONDS
    show(Path(__file__).parent, TOPICS, list(events(start_s)), "alerts", Alerts(), SPEED)


if __name__ == "__main__":
    main()
