"""The examples on Spark show what they say: all of their events at once, and what came out next to what should have."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from klamm import Producer
from klamm.testing import Broker
from support.tools import unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
START_S = time.time() // 60 * 60 - 600
"""The beginning of a minute. What is much older is deleted by a broker, and what is of the future is refused."""
LIMIT_S = 300


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], ModuleType]]:
    """`example("metrics", "machines")`: a module of an example, imported as its own programs do."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def load(folder: str, module: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(EXAMPLES / folder))
        return importlib.import_module(module)

    yield load
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(EXAMPLES)):
            del sys.modules[name]


def run_once(name: str, broker: Broker, spark: SparkSession, folder: Path) -> None:
    """On a copy, which has a folder for checkpoints of its own."""
    from klamm.spark.pipelines.run import run
    from klamm.spark.pipelines.spec import load

    copy = folder / name
    shutil.copytree(EXAMPLES / name, copy, ignore=shutil.ignore_patterns("__pycache__", ".checkpoints"))
    run(replace(load(str(copy)), bootstrap=broker.bootstrap), spark, once=True).wait()


def send(running: ModuleType, broker: Broker, topics: dict[str, int], events: Iterable[Any]) -> None:
    for topic, partitions in topics.items():
        broker.create_topic(topic, partitions)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        running.send(producer, sorted(events, key=lambda event: event.at_s))


def values(broker: Broker, topic: str) -> list[Any]:
    return [json.loads(record.value or b"null") for record in broker.records(topic)]


def test_an_alert_for_each_half_minute_in_which_a_machine_is_above_its_limit(
    spark: SparkSession, klamm_broker: Broker, tmp_path: Path, example: Callable[[str, str], ModuleType]
) -> None:
    events = list(example("metrics", "machines").events(START_S))
    shown = example("metrics", "run")
    send(example("", "running"), klamm_broker, shown.TOPICS, events)
    run_once("metrics", klamm_broker, spark, tmp_path)

    found = Counter(
        (alert["host"], alert["metric"], since(alert), alert["value"]) for alert in values(klamm_broker, "alerts")
    )
    assert found == Counter(expected_alerts(events, limits()))
    assert {(host, metric) for host, metric, _, _ in found} == shown.INCIDENTS
    (dead,) = klamm_broker.records("metrics.dead")
    assert dead.value == b"cpu=12 (an old agent that speaks no JSON)"

    lines = shown.Alerts()
    for record in klamm_broker.records("alerts"):
        assert lines.line(record).startswith("ALERT  ")
    assert lines.is_enough


def since(value: dict[str, Any], name: str = "since") -> float:
    return datetime.fromisoformat(value[name]).timestamp()


def limits() -> dict[tuple[str, str], float]:
    lines = (EXAMPLES / "metrics" / "limits.csv").read_text().splitlines()[1:]
    return {(host, metric): float(high) for host, metric, high in (line.split(",") for line in lines)}


def expected_alerts(
    events: Iterable[Any], high: dict[tuple[str, str], float]
) -> Iterator[tuple[str, str, float, float]]:
    """The same in plain Python; without the last half minute, which nothing came after."""
    measured: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    errors: Counter[tuple[str, str, float]] = Counter()
    for event in events:
        window = event.at_s // 30 * 30
        if event.topic == "logs":
            errors[event.key, "errors", window] += " ERROR " in event.value
        elif event.value.startswith("{"):
            told = json.loads(event.value)
            measured[told["host"], told["metric"], window].append(told["value"])
    averages = {place: round(sum(found) / len(found), 1) for place, found in measured.items()}
    for (host, metric, window), value in {**averages, **errors}.items():
        if value > high.get((host, metric), float("inf")) and window < START_S + 330:
            yield host, metric, window, value


def test_orders_are_joined_with_customers_and_with_payments_that_come_in_time(
    spark: SparkSession, klamm_broker: Broker, tmp_path: Path, example: Callable[[str, str], ModuleType]
) -> None:
    shop, shown = example("enrichment", "shop"), example("enrichment", "run")
    events = list(shop.events(START_S))
    send(example("", "running"), klamm_broker, shown.TOPICS, events)
    run_once("enrichment", klamm_broker, spark, tmp_path)

    orders = {
        order["order_id"]: order for order in map(json.loads, (one.value for one in events if one.topic == "orders"))
    }
    enriched = {order["order_id"]: order for order in values(klamm_broker, "orders.enriched")}
    assert enriched.keys() == orders.keys()
    assert all(enriched[name]["amount"] == orders[name]["amount"] and enriched[name]["name"] for name in orders)

    settled = values(klamm_broker, "orders.settled")
    after = {order["order_id"]: order.get("paid_after_s") for order in settled}
    assert len(settled) == len(after) == shop.ORDERS + 1
    assert after == expected_payments(events, shop.PATIENCE_S)
    assert sum(paid is None for paid in after.values()) > 4

    lines = shown.Settled()
    assert "not paid within a minute" in "".join(map(lines.line, klamm_broker.records("orders.settled")))
    assert lines.is_enough


def expected_payments(events: Iterable[Any], patience_s: float) -> dict[str, int | None]:
    ordered = {event.key: event.at_s for event in events if event.topic == "orders"}
    paid = {event.key: event.at_s - ordered[event.key] for event in events if event.topic == "payments"}
    return {name: int(paid[name]) if paid.get(name, patience_s + 1) <= patience_s else None for name in ordered}


def test_top_pages_and_visits_are_what_the_visitors_did(
    spark: SparkSession, klamm_broker: Broker, tmp_path: Path, example: Callable[[str, str], ModuleType]
) -> None:
    visitors, view = example("activity", "visitors"), example("activity", "view")
    events = list(visitors.Visitors(START_S, rate=50, broken_every=100).until(START_S + 100))
    klamm_broker.create_topic("page-views", 3)
    with Producer(bootstrap_servers=klamm_broker.bootstrap) as producer:
        producer.send_many("page-views", [event.value for event in events], keys=[event.key for event in events])
    run_once("activity", klamm_broker, spark, tmp_path)

    views = [json.loads(event.value) for event in events if event.value not in visitors.BROKEN]
    titles = {page: title for page, title, _ in visitors.PAGES}
    minutes = {since(minute, "minute_start"): minute for minute in values(klamm_broker, "top-pages")}
    assert len(minutes) == 15  # six of them have a part of the first second already
    for start_s, minute in minutes.items():
        seen = Counter(titles[one["page"]] for one in views if start_s <= since(one, "at") < start_s + 60)
        top = [(page["title"], page["views"]) for page in minute["top"]]
        assert minute["views"] == seen.total()
        assert [count for _, count in top] == [count for _, count in seen.most_common(10)]
        assert all(seen[title] == count for title, count in top)

    found = Counter((one["session"], one["views"], since(one, "ended")) for one in values(klamm_broker, "sessions"))
    assert found == Counter(expected_visits(views)) and len(found) > 100
    broken = [event.value for event in events if event.value in visitors.BROKEN]
    dead_letters = klamm_broker.records("page-views.dead")
    assert Counter(record.value for record in dead_letters) == Counter(broken)

    board = view.Board()
    for topic in (view.TOP_PAGES, view.SESSIONS, view.DEAD_LETTERS):
        for record in klamm_broker.records(topic):
            board.take(SimpleNamespace(topic=topic, value=record.value, headers=record.headers))
    assert since(board.minute, "minute_end") == START_S + 100
    assert any(minute["top"][0]["title"] in row for minute in [board.minute] for row in board.screen(80, 50.0))
    assert f"{len(broken)} records were no page views: " in "\n".join(board.screen(80, 50.0))


def expected_visits(views: list[dict[str, Any]]) -> Iterator[tuple[str, int, float]]:
    """In plain Python: a visit ends when nothing comes for 30 s, and Spark knows it 5 s later."""
    times: dict[str, list[float]] = defaultdict(list)
    for view in views:
        times[view["session"]].append(since(view, "at"))
    now_s = max(at_s for each in times.values() for at_s in each) - 5
    for session, each in times.items():
        visit: list[float] = []
        for at_s in [*sorted(each), float("inf")]:
            if visit and at_s - visit[-1] >= 30:
                if visit[-1] + 30 <= now_s:
                    yield session, len(visit), visit[-1]
                visit = []
            visit.append(at_s)


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S)
def test_the_whole_story_ends_by_itself_and_leaves_no_process_behind(tmp_path: Path) -> None:
    """As `make run SECONDS=1` runs it."""
    need_java()
    mark = f"KLAMM_TEST_STORY={tmp_path}"
    command = [sys.executable, str(EXAMPLES / "activity" / "run.py"), "--listen", "127.0.0.1:0"]
    done = subprocess.run(
        [*command, "--data", str(tmp_path / "data"), "--seconds", "1"],
        env=dict([mark.split("=")], **os.environ),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d\d:\d\d:\d\d to \d\d:\d\d:\d\d: .*\(\d+ views, ", done.stdout), done.stdout
    assert (tmp_path / "data" / "checkpoints" / "top_pages").is_dir()
    assert processes_with(mark) == []


def need_java() -> None:
    from klamm.spark import java

    pytest.importorskip("pyspark")
    try:
        java.find()
    except java.NoJava as error:
        unavailable(str(error))


def processes_with(mark: str) -> list[str]:
    """What is left of all that was started with this in its environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has just ended, or is somebody else's
            continue
    return found


def test_visitors_are_the_same_again_and_come_as_often_as_they_should(
    example: Callable[[str, str], ModuleType],
) -> None:
    visitors = example("activity", "visitors")
    first, second = visitors.Visitors(START_S, rate=200, seed=7), visitors.Visitors(START_S, rate=200, seed=7)
    events = list(first.until(START_S + 300))
    assert events == [event for step in range(300) for event in second.until(START_S + 1 + step)]
    assert len(events) == pytest.approx(200 * 300, rel=0.1)
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)


def test_the_view_is_lines_where_there_is_no_terminal(example: Callable[[str, str], ModuleType]) -> None:
    view = example("activity", "view")
    out, now_s = io.StringIO(), 0.0
    shown = view.View(out, lambda: now_s)
    minute = {"minute_start": "2027-01-15T08:00:00.000Z", "minute_end": "2027-01-15T08:01:00.000Z", "views": 3}
    board = view.Board({**minute, "visitors": 2, "top": [{"title": "Home", "views": 2}, {"title": "Blog", "views": 1}]})
    shown.show(board, 1.5, "")
    now_s = 5.0
    shown.show(board, 1.5, "")  # nothing new
    board.minute = {**board.minute, "views": 4}
    shown.show(board, 1.5, "")
    shown.show(board, 1.5, "")
    board.minute = {**board.minute, "views": 5}
    shown.show(board, 1.5, "")  # too early
    lines = out.getvalue().splitlines()
    assert [re.findall(r"\((\d) views", line) for line in lines] == [["3"], ["4"]]
    assert lines[0].endswith(": Home 2, Blog 1 (3 views, 2 a second; 0 visits over, 0 dead letters)")
    assert "\x1b" not in out.getvalue()
