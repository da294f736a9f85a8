"""Figures of a pipeline, and how they are shown."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

from klamm.cli.pipeline_status import as_json, as_lines
from klamm.spark.pipelines.status import STALE_MS, WINDOW_S, Meter, QueryStatus, Status

LAST = {"batch": 7, "batch_ms": 120, "batch_rows": 50, "state_rows": None, "watermark": None}


def status(*queries: QueryStatus, at_ms: int = 1000) -> Status:
    return Status("shop", "localhost:9092", "here", 4711, 0, at_ms, "running", queries)


def test_rates_are_of_the_last_seconds_and_fall_to_nothing() -> None:
    meter = Meter("good", "shop.good")
    assert meter.figures(0.0) == QueryStatus("good", "shop.good")
    meter.add(100.0, 50, 5, LAST)
    assert meter.figures(100.0).rows_in_per_s == 50  # at least a second
    meter.add(102.0, 50, 5, LAST)
    found = meter.figures(105.0)
    assert (found.rows_in_per_s, found.rows_out_per_s, found.rows_in, found.batch) == (20, 2, 100, 7)
    assert meter.figures(101.0 + WINDOW_S).rows_in_per_s == 5
    later = meter.figures(102.0 + WINDOW_S)
    assert (later.rows_in_per_s, later.rows_in, later.state) == (0, 100, "running")


def test_a_status_is_the_same_when_it_is_read_again() -> None:
    found = status(QueryStatus("good", "shop.good", state="failed", error="why", watermark="2026-01-01T00:00:00.000Z"))
    assert Status.from_bytes(found.to_bytes()) == found


def test_a_process_that_is_gone_or_silent_is_dead() -> None:
    found = status(QueryStatus("good", "g", state="running"), QueryStatus("once", "o", state="done"))
    assert found.seen(2000, "here", lambda pid: True) == found
    assert found.seen(2000, "elsewhere", lambda pid: False) == found  # its process cannot be seen from here
    for dead in (
        found.seen(2000, "here", lambda pid: False),
        found.seen(1001 + STALE_MS, "elsewhere", lambda pid: True),
    ):
        assert dead.state == "dead" and [one.state for one in dead.queries] == ["dead", "done"]
    starts = replace(found, state="starting")
    assert starts.seen(2000, "here", lambda pid: False).state == "dead"
    assert replace(found, state="stopped").seen(1001 + STALE_MS, "here", lambda pid: False).state == "stopped"


def test_a_query_with_nothing_to_read_is_up_all_the_same() -> None:
    meter = Meter("good", "shop.good")
    assert meter.figures(100.0).state == "starting"
    meter.is_up()
    assert meter.figures(100.0).state == "running"


def test_figures_can_be_asked_for_while_batches_end() -> None:
    meter = Meter("good", "shop.good")
    others = threading.Thread(target=lambda: [meter.add(i / 1000, 1, 1, LAST) for i in range(20_000)])
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        others.start()
        while others.is_alive():
            meter.figures(0.0)
    finally:
        sys.setswitchinterval(before)
        others.join()
    assert meter.figures(20.0).rows_in == 20_000


def test_a_table_has_a_line_for_each_query_and_its_error_below() -> None:
    meter = Meter("good", "shop.good")
    meter.add(100.0, 5_000_000, 5, LAST)
    failed = QueryStatus("bad", "shop.orders.dead_letters", is_dead_letters=True, state="failed", error="No disk.")
    found = status(meter.figures(101.0), failed)
    head, _, names, good, bad, _, error, trouble = as_lines(found, {"shop.good": 12}, "nobody answers.")
    assert head == "shop  running  process 4711  localhost:9092"
    assert names.split() == ["FLOW", "STATE", "IN/S", "OUT/S", "LAG", "BATCH", "TOOK", "ROWS", "IN", "ROWS", "OUT"]
    assert good.split() == ["good", "running", "5.00M", "5", "12", "7", "120ms", "5.00M", "5"]
    assert bad.split()[:4] == ["bad", "(dead", "letters)", "failed"]
    assert (error, trouble) == ("bad: No disk.", "Lags are not known: nobody answers.")
    lags = [one["lag"] for one in as_json(found, {"shop.good": 12})["queries"]]
    assert lags == [12, None]
