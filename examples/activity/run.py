"""Activity tracking, the whole story: a broker, made-up visitors, a pipeline on Spark that counts what they look at,
and a live view of it. `make run` runs this.

.venv/bin/python examples/activity/run.py --listen 127.0.0.1:9092 --data data

Ctrl-C ends everything. What was counted stays in the folder, and the next run goes on from there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from running import Child, Failed, Stage, Watch, make_topics, need_java, stage
from view import DEAD_LETTERS, SESSIONS, TOP_PAGES, Board, View

HERE = Path(__file__).resolve().parent
VIEWS = "page-views"
TOPICS = {VIEWS: 3, TOP_PAGES: 1, SESSIONS: 1, DEAD_LETTERS: 1}
FIRST_RESULT_LIMIT_S = 600
RATE_OVER_S = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Page views, counted on Spark as they come, with a live view.")
    parser.add_argument("--listen", default="127.0.0.1:9092", help="where the broker is to listen")
    parser.add_argument("--data", default="data", help="the broker's folder")
    parser.add_argument("--rate", type=float, default=200.0, help="page views a second")
    parser.add_argument("--seconds", type=float, help="end so long after the first result; without it, with Ctrl-C")
    options = parser.parse_args()
    with stage() as running:
        need_java()
        bootstrap = running.broker(options.listen, options.data)
        make_topics(bootstrap, TOPICS)
        with Watch(bootstrap, [TOP_PAGES, SESSIONS, DEAD_LETTERS]) as watch:
            print(f"Sending {options.rate:,.0f} page views a second to the topic {VIEWS}.", flush=True)
            running.start("generator", str(HERE / "generate.py"), "--bootstrap", bootstrap, "--rate", str(options.rate))
            checkpoints = Path(options.data).resolve() / "checkpoints"
            pipeline = running.pipeline(HERE, bootstrap, "--checkpoints", str(checkpoints))
            hint = f"Ctrl-C ends it. Also try: .venv/bin/klamm consume {TOP_PAGES} -b {bootstrap}"
            follow(running, pipeline, watch, options.seconds, hint)
        print("Ending: Spark, the generator, the broker.", flush=True)
    print(f"All ended. The data is in {options.data}.", flush=True)


def follow(running: Stage, pipeline: Child, watch: Watch, seconds: float | None, hint: str) -> None:
    board, view, rate = Board(), View(), Rate()
    started_s = time.monotonic()
    end_s: float | None = None
    while not running.stop.is_set() and (end_s is None or time.monotonic() < end_s):
        running.check()
        for record in watch.records():
            board.take(record)
        per_second = rate.now(watch.ends(VIEWS))
        if board.minute:
            if end_s is None and seconds is not None:
                end_s = time.monotonic() + seconds
            view.show(board, per_second, hint)
            continue
        pipeline.tell()
        if time.monotonic() > started_s + FIRST_RESULT_LIMIT_S:
            raise Failed(f"There was no result within {FIRST_RESULT_LIMIT_S} s.")


class Rate:
    """Of a number that grows, over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def now(self, total: int) -> float:
        at_s = time.monotonic()
        self._seen.append((at_s, total))
        while len(self._seen) > 2 and self._seen[1][0] < at_s - RATE_OVER_S:
            self._seen.popleft()
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


if __name__ == "__main__":
    main()
