"""What is done for runs that have ended, without Spark and without brokers."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from queue import Queue
from types import SimpleNamespace as Some
from typing import Any

import pytest

pytest.importorskip("pyspark")

from klamm.spark import stopped
from klamm.spark.stopped import Leaving, Run, Stopped

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


def test_what_cannot_be_given_up_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def give_up(*_: object, **__: object) -> None:
        raise OSError("no broker")

    with caplog.at_level(logging.WARNING, "klamm.spark"):
        Leaving(give_up)._leave(run(1), True)
    assert caplog.messages == ["Transactions of query:q may be open: no broker"]


# What Spark tells of queries, and what it is asked for then.


class Session:
    """As much of Spark as is asked for a query. A sink of Spark's first kind has no name."""

    def __init__(self, sink: str | None, options: Mapping[str, str], jobs: Mapping[int, str] | None = None) -> None:
        self.name, self.options, self.jobs = sink, options, jobs
        self.sparkContext = Some(_gateway=None, statusTracker=lambda: self)
        self._jsparkSession = Some(streams=lambda: Some(get=lambda _: Some(streamingQuery=lambda: self)))

    def sink(self) -> Any:
        return Some(name=lambda: self.name) if self.name else object()

    def getClass(self) -> Any:  # noqa: N802
        pairs = [Some(_1=lambda pair=pair: pair[0], _2=lambda pair=pair: pair[1]) for pair in self.options.items()]
        found = Some(size=lambda: len(pairs), apply=lambda at: pairs[at])
        field = Some(setAccessible=lambda _: None, get=lambda _: Some(toSeq=lambda: found))
        return Some(getDeclaredField=lambda name: {"extraOptions": field}[name])

    def getJobIdsForGroup(self, run_id: str) -> list[int]:  # noqa: N802
        assert self.jobs is not None and run_id == "r1"
        return list(self.jobs)

    def getJobInfo(self, number: int) -> Any:  # noqa: N802
        assert self.jobs is not None
        return Some(status=self.jobs[number])


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[bool]]:
    """Begins and ends a run of a session; whether its tasks were thought to be at work when it was given up."""
    monkeypatch.setattr(stopped, "is_instance_of", lambda _, sink, kind: "Sink" in kind and not hasattr(sink, "name"))

    def tell(session: Session, exception: str | None = None) -> list[bool]:
        found: list[bool] = []
        listener = Stopped(session)  # type: ignore[arg-type]
        listener._leaving = Leaving(lambda *_, are_at_work, **__: found.append(are_at_work))
        before = set(threading.enumerate())
        listener.onQueryStarted(Some(id="q", runId="r1"))  # type: ignore[arg-type]
        listener.onQueryTerminated(Some(runId="r1", exception=exception))  # type: ignore[arg-type]
        for thread in set(threading.enumerate()) - before:
            if thread.name == "klamm-stopped":
                thread.join()
        return found

    return tell


@pytest.mark.parametrize("sink", [None, "console", "klamm"])
def test_only_queries_with_our_sink_are_given_up(
    sink: str | None, tell: Callable[..., list[bool]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "klamm.spark"):
        assert tell(Session(sink, SERVERS, {})) == ([False] if sink == "klamm" else [])
    assert caplog.messages == []


def test_a_query_whose_options_cannot_be_read_runs(
    tell: Callable[..., list[bool]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "klamm.spark"):
        assert tell(Session("klamm", {})) == []
    assert "What a query leaves open when it is stopped will stay so" in caplog.text


def test_tasks_are_at_work_unless_the_last_job_was_done(tell: Callable[..., list[bool]]) -> None:
    """Then it is worth looking several times; else one look does, and the end of a program waits for that only."""
    for jobs, at_work in (
        ({}, False),
        ({4: "FAILED", 5: "SUCCEEDED"}, False),
        ({5: "RUNNING", 4: "SUCCEEDED"}, True),
        ({4: "SUCCEEDED", 5: "FAILED"}, True),
        (None, True),  # there is nobody to be asked any more
    ):
        assert tell(Session("klamm", SERVERS, jobs)) == [at_work]
    assert tell(Session("klamm", SERVERS, {5: "SUCCEEDED"}), exception="failed") == [True]
