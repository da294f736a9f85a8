"""Pipelines on Spark and a broker: what goes in, what comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from klamm.core.env.real import real_env
from klamm.spark.pipelines.run import AlreadyRuns, OthersCheckpoints, PipelineFailed, claim
from klamm.spark.pipelines.status import read
from support.pipelines import Folder
from support.spark import Topics


@pytest.fixture
def folder(spark: SparkSession, topics: Topics, tmp_path: Path) -> Callable[[str], Folder]:
    return lambda name: Folder(tmp_path / name, topics, spark)


def lines(*objects: Any) -> list[str]:
    return [one if isinstance(one, str) else json.dumps(one) for one in objects]


def test_every_record_is_in_a_view_or_a_dead_letter_with_its_reason(
    folder: Callable[[str], Folder], topics: Topics
) -> None:
    orders, people = topics.topic(1), topics.topic(1)
    topics.produce(
        orders,
        lines(
            {"id": 1, "at": "2026-01-01T00:00:00Z", "price": 2.5},
            "{",
            {"id": "one", "at": "2026-01-01T00:00:00Z"},
            {"at": "2026-01-01T00:00:00Z"},
            [1],
            "",
            {"id": 2},
            {"id": 3, "at": "yesterday", "price": "dear"},
        ),
        keys=[f"k{i}" for i in range(8)],
        headers=[[("trace", b"t")]] * 8,
    )
    topics.produce(orders, [None, b"\xff\xfe"])
    topics.produce(people, ["1;ann", "x;bob", "2", "3;cid;", "4;dan"])
    pipeline = folder("shop")
    pipeline.write(
        {
            "inputs": {
                "orders": {
                    "topic": orders, "format": "json", "schema": "id int NOT NULL, at timestamp, price double",
                    "starting": "earliest",
                },
                "people": {
                    "topic": people, "format": "csv", "schema": "id int, name string", "parse": {"sep": ";"},
                    "starting": "earliest", "dead_letters": f"{people}-letters",
                },
            },
            "flows": {
                "good": {"sql": "good.sql", "output": {"topic": f"{orders}-good", "key": "id", "format": "json"}},
                "names": {"sql": "names.sql", "output": {"topic": f"{people}-names", "format": "text"}},
            },
        },
        good_sql="SELECT id, price, _offset, cast(_key AS string) AS k FROM orders;",
        names_sql="SELECT name FROM people WHERE id > 0",
    )  # fmt: skip
    running = pipeline.run()
    good = pipeline.json(f"{orders}-good")
    assert good == [{"id": 1, "price": 2.5, "_offset": 0, "k": "k0"}, {"id": 2, "_offset": 6, "k": "k6"}]
    assert [record.key for record in topics.records(f"{orders}-good")] == [b"1", b"2"]
    assert topics.values(f"{people}-names") == ["ann", "dan"]

    letters = topics.records(f"{orders}.dead")
    told = {int(dict(one.headers)["klamm.offset"]): dict(one.headers) for one in letters}
    assert {offset: headers["klamm.reason"].decode() for offset, headers in told.items()} == {
        1: "the value is not JSON",
        2: "id is not int: one",
        3: "id is missing",
        4: "the value is not a JSON object",
        5: "the value is not JSON",
        7: "at is not timestamp: yesterday, price is not double: dear",
        8: "there is no value",
        9: "the value is not UTF-8",
    }
    assert told[2]["klamm.topic"] == orders.encode() and told[2]["klamm.partition"] == b"0"
    assert told[2]["trace"] == b"t" and told[2]["klamm.input"] == b"shop.orders"
    assert [one.value for one in letters][-2:] == [None, b"\xff\xfe"] and letters[0].key == b"k1"
    reasons = [dict(one.headers)["klamm.reason"].decode() for one in topics.records(f"{people}-letters")]
    assert reasons == ["id is not int: x", "the line has not 2 columns", "the line has not 2 columns"]

    figures = {one.group: (one.rows_in, one.rows_out, one.state) for one in running.status("done").queries}
    assert figures["shop.good"] == (10, 2, "done") and figures["shop.orders.dead_letters"] == (10, 8, "done")
    pipeline.run()
    assert pipeline.json(f"{orders}-good") == good and len(topics.records(f"{orders}.dead")) == 8


EVERYTHING = {
    "inputs": {
        "views": {
            "topic": "?", "format": "json", "schema": "id int, user string, page string, at timestamp",
            "event_time": "at", "watermark": "10 seconds", "starting": "earliest", "dead_letters": False,
        },
        "clicks": {
            "topic": "?", "format": "json", "schema": "view int, at timestamp", "event_time": "at",
            "watermark": "10 seconds", "starting": "earliest", "dead_letters": False,
        },
    },
    "tables": {"pages": {"path": "pages.csv", "format": "csv", "schema": "page string, title string"}},
    "flows": {
        "titled": {"sql": "titled.sql", "output": {"topic": "?", "key": "user", "format": "csv"}},
        "once": {"python": "flows.py:once"},
        "windows": {"sql": "windows.sql", "output": {"topic": "?", "key": "page", "format": "json"}},
        "sessions": {"sql": "sessions.sql", "output": {"topic": "?", "key": "user", "format": "json"}},
        "matched": {"sql": "matched.sql", "output": {"parquet": "matched"}},
        "counts": {"sql": "counts.sql", "output": {"topic": "?", "key": "page", "format": "json"}, "mode": "update"},
        "totals": {"sql": "totals.sql", "output": {"topic": "?", "format": "text"}, "mode": "complete"},
        "seen": {"python": "flows.py:seen", "output": {"topic": "?", "key": "user"}, "mode": "update"},
    },
}  # fmt: skip
FLOWS = """
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor

from names import USER

def once(views: DataFrame) -> DataFrame:
    from names_of_columns import ID

    return views.dropDuplicatesWithinWatermark([ID])

def seen(views: DataFrame) -> DataFrame:
    return views.groupBy(USER).transformWithState(
        statefulProcessor=Seen(), outputStructType="user string, n long", outputMode="Update", timeMode="None")

class Seen(StatefulProcessor):
    def init(self, handle):
        self.state = handle.getValueState("n", "n long")

    def handleInputRows(self, key, rows, timerValues):
        n = (self.state.get()[0] if self.state.exists() else 0) + sum(1 for _ in rows)
        self.state.update((n,))
        yield Row(**{USER: key[0], "n": n})

    def close(self):
        pass
"""
WINDOWS = """
SELECT page, date_format(window.start, 'mm:ss') AS start, count(*) AS n FROM once
GROUP BY page, window(at, '10 seconds')
"""


def everything(topics: Topics) -> tuple[dict[str, Any], dict[str, str]]:
    """The pipeline with topics of its own, and their names by view and flow."""
    made: dict[str, Any] = json.loads(json.dumps(EVERYTHING))
    names = {}
    for name, one in made["inputs"].items():
        names[name] = one["topic"] = topics.topic(2)
    for name, one in made["flows"].items():
        if "topic" in one.get("output", {}):
            names[name] = one["output"]["topic"] = topics.topic(1)
    return made, names


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def views(*rows: tuple[int, str, str, int]) -> list[str]:
    return lines(*({"id": id_, "user": user, "page": page, "at": at(second)} for id_, user, page, second in rows))


@pytest.mark.timeout(600)
def test_state_survives_a_restart_with_a_transformation_that_was_changed(
    spark: SparkSession, folder: Callable[[str], Folder], topics: Topics
) -> None:
    declared, names = everything(topics)
    pipeline = folder("everything")
    pipeline.write(
        declared,
        pages_csv="/x,The X\n/y,The Y\n/z,The Z\n",
        names_py="USER = 'user'\n",
        names_of_columns_py="ID = 'id'\n",
        flows_py=FLOWS,
        titled_sql="SELECT v.user, p.title FROM views v JOIN pages p ON v.page = p.page WHERE v.user <> 'b'",
        windows_sql=WINDOWS,
        sessions_sql="SELECT user, count(*) AS n FROM views GROUP BY user, session_window(at, '5 seconds')",
        matched_sql="SELECT v.id, v.page FROM views v JOIN clicks c ON v.id = c.view "
        "AND c.at BETWEEN v.at AND v.at + INTERVAL 10 SECONDS",
        counts_sql="SELECT page, count(*) AS n FROM views GROUP BY page",
        totals_sql="SELECT count(*) AS n FROM views",
    )
    first = [(1, "a", "/x", 1), (1, "a", "/x", 1), (2, "b", "/y", 5), (3, "a", "/y", 8), (4, "c", "/z", 60)]
    topics.produce(names["views"], views(*first), partition=0)
    topics.produce(names["clicks"], lines({"view": 1, "at": at(3)}, {"view": 3, "at": at(30)}))
    pipeline.run()

    def json_of(name: str) -> list[dict[str, Any]]:
        return sorted(pipeline.json(names[name]), key=str)

    def matched() -> list[int]:
        return sorted(row.id for row in spark.read.parquet(str(pipeline.path / "matched")).collect())

    assert sorted(topics.values(names["titled"])) == ["a,The X", "a,The X", "a,The Y", "c,The Z"]
    assert {record.key for record in topics.records(names["titled"])} == {b"a", b"c"}
    assert json_of("windows") == [{"page": "/x", "start": "00:00", "n": 1}, {"page": "/y", "start": "00:00", "n": 2}]
    assert json_of("sessions") == [{"user": "a", "n": 1}, {"user": "a", "n": 2}, {"user": "b", "n": 1}]
    assert matched() == [1, 1]
    assert json_of("counts") == [{"page": "/x", "n": 2}, {"page": "/y", "n": 2}, {"page": "/z", "n": 1}]
    assert topics.values(names["totals"]) == ["5"]
    assert json_of("seen") == [{"user": "a", "n": 3}, {"user": "b", "n": 1}, {"user": "c", "n": 1}]

    pipeline.write(
        declared, windows_sql=WINDOWS.replace("count(*) AS n FROM once", "count(*) AS m FROM once WHERE page <> '/w'")
    )
    second = [(4, "c", "/z", 61), (5, "c", "/z", 65), (6, "e", "/w", 66), (7, "f", "/q", 120)]
    topics.produce(names["views"], views(*second), partition=1)
    topics.produce(names["clicks"], lines({"view": 4, "at": at(62)}))
    pipeline.run()
    assert json_of("windows")[2:] == [{"page": "/z", "start": "01:00", "m": 2}]
    assert [one for one in json_of("sessions") if one["user"] == "c"] == [{"user": "c", "n": 3}]
    assert matched() == [1, 1, 4, 4]  # the click of a view that was told twice
    assert {"page": "/z", "n": 3} in json_of("counts") and len(json_of("counts")) == 6
    assert topics.values(names["totals"]) == ["5", "9"]
    assert {"user": "c", "n": 3} in json_of("seen") and len(json_of("seen")) == 6


def test_one_query_that_fails_stops_all_and_is_told_in_a_sentence(
    folder: Callable[[str], Folder], topics: Topics
) -> None:
    orders = topics.topic(1)
    topics.produce(orders, lines({"id": 1}, {"id": "x"}))
    pipeline = folder("strict")
    declared = {"topic": orders, "format": "json", "schema": "id int", "starting": "earliest", "dead_letters": False}
    pipeline.write(
        {
            "inputs": {"orders": declared, "lines": {"topic": orders, "format": "text"}},
            "flows": {
                "all": {"sql": "all.sql", "output": {"topic": f"{orders}-all", "format": "raw"}},
                "good": {"sql": "good.sql", "output": {"topic": f"{orders}-good"}},
            },
        },
        all_sql="SELECT value FROM lines",
        good_sql="SELECT id FROM orders",
    )
    running = pipeline.start()
    with pytest.raises(AlreadyRuns, match="The pipeline strict is running already, process"):
        pipeline.start()
    with pytest.raises(PipelineFailed) as failed:
        running.wait()
    assert failed.value.text == (
        f"The flow good has failed: Record 1 of {orders}-0 cannot be parsed: id is not int: x."
    )
    assert not any(query.isActive for query in running.queries.values())
    found = read(real_env().files, pipeline.load())
    assert found is not None and found.state == "failed"
    assert {one.name: (one.state, one.error) for one in found.queries} == {
        "all": ("stopped", None),
        "good": ("failed", failed.value.text),
    }
    with pytest.raises(OthersCheckpoints, match="are those of the pipeline strict, and this is lax"):
        claim(replace(pipeline.load(), name="lax"))
    claim(pipeline.load()).release()
