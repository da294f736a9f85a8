"""What Spark finds wrong with a pipeline is told with the file, the line and the column where it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from klamm.spark.pipelines.check import Checked, check
from klamm.spark.pipelines.spec import load
from support.spark import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INPUTS = """\
name: wrong
inputs:
  views: {topic: page-views, format: json, schema: "user string, page string, n int, at timestamp", watermark: 1 minute}
  lines: {topic: lines, format: text}
  typo: {topic: typo, format: json, schema: "user strng"}
  filed: {topic: filed, format: csv, schema_file: filed.ddl}
tables:
  pages: {path: pages.csv, format: csv, schema: "page string, title string"}
  nowhere: {path: nowhere.parquet, format: parquet}
flows:
"""

WRONG_SQL = {
    # name: (SQL, the rest of the flow, where, what)
    "column": ("SELECT\n  user,\n  pag\nFROM views", "", "column.sql:3:3", "no column pag. Did you mean page?"),
    "view": ("SELECT *\nFROM vews", "", "view.sql:2:6", "There is no view vews. Did you mean views?"),
    "early": ("SELECT * FROM late", "", "early.sql:1:15", "The flow late comes later in pipeline.yml. Move it above"),
    "late": ("SELECT user FROM views", "", "", ""),
    "command": ("CREATE TABLE made_by_check (a int)", "", "command.sql:1:1", "This is no SELECT."),
    "syntax": ("-- first\n\nSELECT user FORM views v", "", "syntax.sql:3:", "Syntax error"),
    "two": ("SELECT 1;\nSELECT 2", "", "two.sql:2:1", "one SELECT"),
    "function": ("SELECT uper(user) FROM views", "", "function.sql:1:8", "no function uper. Did you mean upper?"),
    "types": ("SELECT user,\n  array_max(n) FROM views", "", "types.sql:2:3", "data type mismatch"),
    "group": ("SELECT page, count(*) c FROM views GROUP BY page", "output: {topic: a}, mode: append",
              "pipeline.yml:{line}:", "without a watermark none ever is. Use mode: update or complete. Or give"),
    "sorted": ("SELECT *\nFROM views\nORDER BY n", "output: console", "sorted.sql:3:1", "Sorting is not supported"),
    "complete": ("SELECT user FROM views", "output: console, mode: complete",
                 "pipeline.yml:{line}:", "a flow without GROUP BY keeps none. Use mode: append or update."),
    "key": ("SELECT user, page FROM views", "output: {topic: a, key: usr}",
            "pipeline.yml:{line}:", "no column usr to take the key from. Did you mean user?"),
    "text": ("SELECT user, page FROM views", "output: {topic: a, format: text}", "pipeline.yml:{line}:", "one column"),
    "raw": ("SELECT user FROM views", "output: {topic: a, format: raw}", "pipeline.yml:{line}:", "`value`"),
    "twice": ("SELECT user, page AS USER FROM views", "output: {topic: a}", "twice.sql:1:1", "more than one column"),
    "divided": ("SELECT user, NULL AS x FROM views", "output: {parquet: out, partition_by: usr}",
                "pipeline.yml:{line}:", "no column usr"),
    "static": ("SELECT * FROM pages", "output: {topic: a}", "pipeline.yml:{line}:", "reads no input"),
    "after": ("SELECT pag FROM column", "output: {topic: a}", "", ""),  # what it uses is wrong: that is enough
    "of_typo": ("SELECT usr FROM typo", "output: {topic: a}", "", ""),
}  # fmt: skip

PYTHON = """\
import helper


def raises(views):
    wanted = {}
    return views.where(wanted["nothing"])


def deep(views):
    return helper.chosen(views)


def nothing(views):
    views.select("user")


def fine(views, pages):
    return views.join(pages, "page")
"""
HELPER = """\
def chosen(frame):
    return frame.select(
        "usr"
    )
"""
WRONG_PYTHON = {
    "raises": ("flows.py:6:24", "KeyError: 'nothing'"),
    "deep": ("helper.py:2:12", "There is no column usr. Did you mean user?"),
    "nothing": ("flows.py:13:1", "nothing returns a NoneType, and should return a DataFrame."),
    "fine": ("", ""),
}


def written(folder: Path) -> Path:
    lines = INPUTS.splitlines()
    for name, (sql, rest, _, _) in WRONG_SQL.items():
        (folder / f"{name}.sql").write_text(sql)
        lines.append(f"  {name}: {{sql: {name}.sql{', ' if rest else ''}{rest}}}")
    lines += [f"  {name}: {{python: 'flows.py:{name}', output: console}}" for name in WRONG_PYTHON]
    (folder / "flows.py").write_text(PYTHON)
    (folder / "helper.py").write_text(HELPER)
    (folder / "filed.ddl").write_text("user string,\n  at timestmp\n")
    (folder / "pages.csv").write_text("/,Home\n")
    (folder / "pipeline.yml").write_text("\n".join(lines))
    return folder


def test_every_mistake_is_told_where_it_stands_and_only_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = written(tmp_path)
    yaml = (folder / "pipeline.yml").read_text().splitlines()
    found = check(load(str(folder)), spark, cluster=False)
    told = [str(mistake).removeprefix(f"{folder}/") for mistake in found.mistakes]
    expected = {name: (where, what) for name, (_, _, where, what) in WRONG_SQL.items()} | WRONG_PYTHON
    for name, (where, what) in expected.items():
        line = next(i for i, text in enumerate(yaml, 1) if text.startswith(f"  {name}: "))
        if where:
            assert [one for one in told if one.startswith(where.format(line=line)) and what in one], (name, told)
    assert [one for one in told if one.startswith("pipeline.yml:5:") and "STRNG" in one], told
    assert [one for one in told if one.startswith("pipeline.yml:9:") and "nowhere.parquet" in one], told
    assert [one for one in told if one.startswith("filed.ddl:2:6: ") and "TIMESTMP" in one], told
    assert [one for one in told if one.startswith("divided.sql:1:1: The column x is always NULL")], told
    assert len(told) == sum(bool(where) for where, _ in expected.values()) + 4, "\n".join(told)
    assert not any("\n" in one or "SQLSTATE" in one for one in told)
    assert not [one for one in spark.catalog.listTables() if one.name == "made_by_check"]


def test_a_new_pipeline_is_summed_up_with_its_columns_and_runs(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    from klamm.cli.pipeline_new import files
    from klamm.spark.pipelines.run import run

    for name, text in files(str(tmp_path)).items():
        (tmp_path / name).write_text(text.replace("localhost:9092", topics.bootstrap))
    found: Checked = check(load(str(tmp_path)), spark)
    (missing,) = found.mistakes
    assert missing.line == 7 and "no topic clicks" in missing.text
    topics.topic(3, name="clicks")
    found = check(load(str(tmp_path)), spark)
    assert not found.mistakes and not found.warnings
    summary = found.summary()
    assert summary[0].startswith("ok: ")
    how = "json, watermark 10 seconds behind at, dead letters to clicks.dead (will be created)"
    assert f"input clicks: topic clicks (3 partitions), {how}" in summary
    assert any(
        "to topic clicks-by-page (will be created), json, key page, update, every 1 second" in one for one in summary
    )
    assert [line.split() for line in summary[-4:]] == [
        ["begins", "timestamp"], ["page", "string"], ["clicks", "bigint"], ["users", "bigint"],
    ]  # fmt: skip
    clicks = [f'{{"user": "{user}", "page": "/home", "at": "2026-01-31T12:00:0{user}Z"}}' for user in (1, 2, 2)]
    topics.produce("clicks", [*clicks, "no JSON"])
    run(load(str(tmp_path)), spark, once=True).wait()
    (window,) = [json.loads(value) for value in topics.values("clicks-by-page")]
    assert window == {"begins": "2026-01-31T12:00:00.000Z", "page": "/home", "clicks": 3, "users": 2}
    assert topics.values("clicks.dead") == ["no JSON"]


def test_what_runs_but_is_hardly_meant_is_warned_of(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text(
        "name: odd\ninputs:\n"
        "  views: {topic: views, format: raw, event_time: timestamp, options: {includeheaders: true}}\n"
        "  other: {pattern: a.*, format: text}\nflows:\n  keys: {sql: keys.sql, output: console, mode: update}\n"
        "  lone: {sql: keys.sql}\n  again: {python: 'flows.py:again', output: {topic: views, format: raw}}\n"
    )
    (tmp_path / "keys.sql").write_text("SELECT key, count(*) AS n FROM views GROUP BY key\n")
    (tmp_path / "flows.py").write_text("def again(views):\n    return views.select('value', 'headers')\n")
    found = check(load(str(tmp_path)), spark, cluster=False)
    assert not found.mistakes
    assert [(one.line, one.text.split(":")[0]) for one in found.warnings] == [
        (3, "event_time is only looked at for a watermark, and there is none."),
        (4, "No flow uses other."),
        (6, "What this flow remembers only grows"),
        (7, "The flow lone has no output, and no other flow uses it."),
        (8, "The flow again writes to views, and reads it by the input views."),
    ]


def test_a_setting_that_spark_does_not_take_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text(
        "name: set\nspark:\n  spark.sql.shuffle.partitions: many\ninputs: {views: {topic: views, format: raw}}\n"
        "flows: {all: {sql: all.sql, output: console}}\n"
    )
    (tmp_path / "all.sql").write_text("SELECT * FROM views\n")
    (mistake,) = check(load(str(tmp_path)), spark, cluster=False).mistakes
    assert (mistake.line, mistake.column) == (3, 33) and "spark.sql.shuffle.partitions" in mistake.text


def test_run_tells_a_mistake_in_the_last_flow_and_starts_none(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    from klamm.spark.pipelines.flows import BadFlow
    from klamm.spark.pipelines.run import run

    (tmp_path / "pipeline.yml").write_text(
        f"name: last\nbootstrap: {topics.bootstrap}\ninputs: {{lines: {{topic: {topics.topic(1)}, format: text}}}}\n"
        "flows:\n  good: {sql: good.sql, output: console}\n  bad: {sql: bad.sql, output: console, mode: complete}\n"
    )
    for name in ("good", "bad"):
        (tmp_path / f"{name}.sql").write_text("SELECT value FROM lines")
    with pytest.raises(BadFlow, match=r"pipeline.yml:6:46: In complete mode all results are written each time"):
        run(load(str(tmp_path)), spark)
    assert not spark.streams.active


def test_a_flow_does_not_go_on_without_the_files_it_has_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text(
        "name: moved\ninputs: {lines: {topic: lines, format: text}}\nflows:\n"
        "  kept:\n    sql: kept.sql\n    output: {parquet: files}\n"
    )
    (tmp_path / "kept.sql").write_text("SELECT value FROM lines")
    commits = tmp_path / ".checkpoints" / "kept" / "commits"
    commits.mkdir(parents=True)
    assert not check(load(str(tmp_path)), spark, cluster=False).mistakes, "it has not written anything"
    (commits / "12").write_text("v1\n{}")
    (mistake,) = check(load(str(tmp_path)), spark, cluster=False).mistakes
    assert (mistake.line, mistake.column) == (6, 23) and "to another folder so far" in mistake.text
    (tmp_path / "files" / "_spark_metadata").mkdir(parents=True)
    assert not check(load(str(tmp_path)), spark, cluster=False).mistakes
