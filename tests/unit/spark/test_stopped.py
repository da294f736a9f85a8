"""What is done for runs that have ended, without Spark and without brokers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from queue import Queue

import pytest

pytest.importorskip("pyspark")

from klamm.spark.stopped import Leaving, Run

SERVERS = {"kafka.bootstrap.servers": "nowhere:1"}


def run(number: int, query: str = "q") -> Run:
    found = Run.of(query, f"r{number}", SERVERS)
    assert found is not None
    return found


def test_only_what_writes_exactly_once_leaves_transactions() -> None:
    assert run(1).sink == "query:q"
    assert Run.of("q", "r", {**SERVERS, "deliveryGuarantee": "at-least-once"}) is None


def test_what_a_run_leaves_is_given_up_once() -> None:
    given_up: Queue[str] = Queue()
    leaving = Leaving(lambda client, sink, run_id, **_: given_up.put(run_id))
    leaving.began(run(1))
    leaving.ended("r1")
    leaving.ended("r1")
    leaving.ended("unknown")
    leaving.began(run(2))
    leaving.ended("r2")
    assert {given_up.get(timeout=60), given_up.get(timeout=60)} == {"r1", "r2"}
    assert given_up.empty()


def test_it_is_not_needed_if_the_query_runs_again() -> None:
    needed: Queue[bool] = Queue()
    again = threading.Event()

    def give_up(*_: object, is_needed: Callable[[], bool], are_at_work: bool) -> None:
        needed.put(is_needed())
        again.wait(60)
        needed.put(is_needed())

    leaving = Leaving(give_up)
    leaving.began(run(1))
    leaving.began(run(7, query="other"))
    leaving.ended("r1")
    assert needed.get(timeout=60)
    leaving.began(run(2))
    again.set()
    assert not needed.get(timeout=60)


def test_the_end_of_the_program_gives_up_what_still_runs() -> None:
    """Spark's events come in a thread that is a daemon, and threads take after who starts them."""
    program = """
from threading import Thread
from klamm.spark.stopped import Leaving, Run

leaving = Leaving(lambda client, sink, run, are_at_work, is_needed: print("given up", run, is_needed()))
run = Run.of("q", "r1", {"kafka.bootstrap.servers": "nowhere:1"})
event = Thread(target=leaving.began, args=(run,), daemon=True)
event.start()
event.join()
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "given up r1 True\n", done.stderr
