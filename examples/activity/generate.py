"""Page views of made-up visitors into a topic, as they happen, until it is stopped.

.venv/bin/python examples/activity/generate.py --bootstrap localhost:9092 --rate 200
"""

from __future__ import annotations

import argparse
import signal
import threading
import time

from visitors import Visitors

from klamm import Producer

STEP_S = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description="Send page views of made-up visitors.")
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--topic", default="page-views")
    parser.add_argument("--rate", type=float, default=200.0, help="views a second, about")
    parser.add_argument("--seed", type=int, default=None, help="the same visitors again")
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    now_s = time.time()
    seed = int(now_s) if options.seed is None else options.seed
    visitors = Visitors(now_s, rate=options.rate, seed=seed)
    with Producer(bootstrap_servers=options.bootstrap, linger_ms=20) as producer:
        while not stop.wait(STEP_S):
            events = list(visitors.until(time.time()))
            producer.send_many(
                options.topic,
                [event.value for event in events],
                keys=[event.key for event in events],
                timestamps_ms=[int(event.at_s * 1000) for event in events],
            )


if __name__ == "__main__":
    main()
