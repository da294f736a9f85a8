"""A pipeline's folder becomes values, or mistakes that say where they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from klamm.spark.options import Which
from klamm.spark.pipelines.spec import Mistakes, Python, Sql, load
from klamm.spark.pipelines.texts import columns, duration, whole_names

GOOD = """\
name: activity
bootstrap: broker:9092
kafka: {security.protocol: PLAINTEXT, request.timeout.ms: 5_000}
spark: {spark.sql.shuffle.partitions: 2, spark.sql.ansi.enabled: true}
inputs:
  views:
    topic: page-views
    format: json
    schema: user string, page string, at timestamp
    event_time: at
    watermark: 10 seconds
    starting: earliest
    options: {maxOffsetsPerTrigger: 10000, fetchOffset.numRetries: 5}
  logs:
    pattern: log-.*
    format: csv
    schema_file: logs.ddl
    parse: {sep: ;}
    dead_letters: false
tables:
  pages: {path: pages.csv, format: csv, schema: "page string, title string", options: {header: true}}
flows:
  titled:
    sql: titled.sql
  top_pages:
    python: flows.py:top_pages
    output: {topic: top-pages, key: page, format: json}
    mode: Update
    trigger: 1 second
  kept:
    sql: titled.sql
    output: {parquet: kept, partition_by: page}
    trigger: available now
    checkpoint: elsewhere
  seen:
    sql: titled.sql
    output: console
"""
FILES = {
    "logs.ddl": "line string,\nhost string\n",
    "titled.sql": "SELECT * FROM views\n",
    "flows.py": "def top_pages(spark, titled, pages, *, limit=10):\n    return titled\n\n\ndef late(seen):\n    pass\n",
}


def folder_with(path: Path, text: str | bytes) -> str:
    for name, content in FILES.items():
        (path / name).write_text(content)
    (path / "pipeline.yml").write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def mistakes(folder: str) -> list[str]:
    """Without the folder: `pipeline.yml:3:5: ...`."""
    with pytest.raises(Mistakes) as found:
        load(folder)
    assert found.value.found
    return [str(one).removeprefix(f"{folder}/") for one in found.value.found]


def test_what_is_declared_comes_with_its_defaults_and_whole_paths(tmp_path: Path) -> None:
    found = load(folder_with(tmp_path, GOOD))
    assert (found.name, found.bootstrap) == ("activity", "broker:9092")
    assert found.client == {
        "bootstrap.servers": "broker:9092", "security.protocol": "PLAINTEXT", "request.timeout.ms": "5000",
    }  # fmt: skip
    assert found.spark == {"spark.sql.shuffle.partitions": "2", "spark.sql.ansi.enabled": "true"}
    views, logs = found.inputs
    assert (views.dead_letters, views.watermark, views.event_time) == ("page-views.dead", "10 seconds", "at")
    assert (logs.schema, logs.starting, logs.event_time) == (FILES["logs.ddl"], "latest", "_timestamp")
    assert logs.dead_letters is None and logs.can_fail and logs.parse == {"sep": ";"}
    assert found.tables[0].path == str(tmp_path / "pages.csv") and found.tables[0].options == {"header": "true"}
    titled, top, kept, seen = found.flows
    assert isinstance(titled.code, Sql) and titled.output is None
    assert isinstance(top.code, Python) and top.code.arguments == ("spark", "titled", "pages")
    assert (top.mode, top.trigger, top.available_now) == ("update", "1 second", False)
    assert top.checkpoint == str(tmp_path / ".checkpoints" / "top_pages")
    assert kept.output is not None and kept.output.parquet == str(tmp_path / "kept")
    assert kept.output.partition_by == ("page",)
    assert (kept.trigger, kept.available_now, kept.checkpoint) == (None, True, str(tmp_path / "elsewhere"))
    assert seen.output is not None and seen.output.kind == "console"


def test_every_value_knows_where_it_stands(tmp_path: Path) -> None:
    found = load(folder_with(tmp_path, GOOD))
    views, top = found.inputs[0], found.flows[1]
    assert (views.place.line, views.place.column) == (6, 3)
    assert (views.at("watermark").line, views.at("watermark").column) == (11, 16)
    assert views.at("dead_letters") == views.place  # it was not given
    assert top.output is not None and (top.output.at("key").line, top.output.at("key").column) == (27, 37)
    assert (top.code.place.line, Path(top.code.place.file).name) == (1, "flows.py")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: activity", "nam: activity", "1:1: A pipeline takes no 'nam'. Did you mean name?"),
        ("name: activity\n", "", "1:1: A pipeline has no name."),
        ("name: activity", "name: my activity", "1:7: name is 'my activity', and should be a name."),
        ("name: activity", "name: 2026-01-31", "1:7: name is a date, and should be a name. Write it in quotes."),
        ("bootstrap: broker:9092", "bootstrap: [a, b]", "2:12: bootstrap is a list, and should be the address"),
        ("security.protocol", "kafka.security.protocol", "has a prefix too many. Write security.protocol."),
        ("security.protocol: PLAINTEXT", "group.id: mine", "3:19: group.id does not belong here."),
        ("request.timeout.ms: 5_000", "acks: [1]", "3:45: The option acks in kafka is a list."),
        ("spark.sql.ansi", "sql.ansi", "4:60: sql.ansi.enabled is no setting of Spark."),
        ("inputs:", "inputs: 5\ntables:", "5:9: inputs is a number, and should be names with values"),
        ("  views:", "  my-views:", "6:3: 'my-views' cannot be the name of a view. Use letters, digits and _: my_"),
        ("  views:", "  class:", "6:3: 'class' cannot be the name of a view."),
        ("  logs:", "  Views:", "14:3: There is already the input views, in line 6."),
        ("  pages:", "  views:", "21:3: There is already the input views, in line 6."),
        ("  kept:", "  titled:", "30:3: titled is there twice in flows; first in line 23."),
        ("topic: page-views", "topic: page views", "7:12: topic is 'page views', and should be the name of a topic."),
        ("topic: page-views", "topic: a,b", "For several topics, use pattern."),
        ("topic: page-views", "topic: 7", "7:12: topic is a number, and should be the name of a topic. Write it in"),
        ("    topic: page-views\n", "", "6:3: The input views has no topic."),
        ("    format: json\n", "", "6:3: The input views has no format. It is json, csv, text or raw."),
        ("    pattern: log-.*", "    pattern: log-(", "15:14: pattern is 'log-(', and should be a regular expression"),
        ("    pattern: log-.*", "    pattern: log-.*\n    topic: a", "15:14: The input logs has a topic and a pattern"),
        ("format: json\n", "format: jsn\n", "8:13: format is 'jsn', and should be json, csv, text or raw. Did you"),
        ("format: json\n", "format: text\n", "9:13: A text input takes no schema"),
        ("    schema: user string, page string, at timestamp\n", "", "6:3: The input views has no schema."),
        ("at timestamp", "_key string, at timestamp", "9:13: The schema has a column _key"),
        ("schema_file: logs.ddl", "schema_file: log.ddl", "17:18: There is no file "),
        ("schema_file: logs.ddl", "schema_file: logs.ddl\n    schema: a int", "a schema and a schema_file."),
        ("event_time: at", "event_time: att", "10:17: There is no column att. Did you mean at?"),
        ("event_time: at", "event_time: page", "10:17: The column page is string, and event time is a timestamp."),
        ("10 seconds", "10s", "11:16: watermark is '10s', and should be a time like 10 seconds. Write 10 seconds."),
        ("10 seconds", "10", "11:16: watermark is a number, and should be a time like 10 seconds."),
        ("10 seconds", "soon", "11:16: watermark is 'soon'"),
        ("starting: earliest", "starting: erliest", "12:15: starting is 'erliest', and should be earliest or latest."),
        ("maxOffsetsPerTrigger", "maxOffsetPerTrigger", "The source has no option maxOffsetPerTrigger. Did you mean"),
        ("maxOffsetsPerTrigger: 10000", "maxOffsetsPerTrigger: none", "13:14: The option maxOffsetsPerTrigger is"),
        ("maxOffsetsPerTrigger: 10000", "subscribe: a", "13:26: The option subscribe does not belong here."),
        ("maxOffsetsPerTrigger: 10000", "startingOffsets: latest", "Both starting and the option startingOffsets"),
        ("dead_letters: false", "dead_letters: log-dead", "19:19: The topic for dead letters, log-dead, fits"),
        ("dead_letters: false", "dead_letters: true", "19:19: dead_letters is true or false, and should be the name"),
        ("path: pages.csv, ", "", "21:3: The table pages has no path."),
        ("sql: titled.sql\n  top", "sql: title.sql\n  top", "24:10: There is no file "),
        ("sql: titled.sql\n  top", "sql: SELECT 1\n  top", "24:10: sql is a SELECT, and should be a file."),
        ("    sql: titled.sql\n  top", "    {}\n  top", "23:3: The flow titled has no sql."),
        ("sql: titled.sql\n  top", "sql: titled.sql\n    mode: update\n  top", "25:11: The flow titled has no output"),
        ("python: flows.py:top_pages", "python: flows.py", "26:13: python is 'flows.py', and should be a file and a"),
        ("python: flows.py:top_pages", "python: flows.py:top", "has no function top."),
        ("python: flows.py:top_pages", "python: flows.py:late", "flows.py:5:10: The flow seen comes later"),
        ("python: flows.py:top_pages", "sql: titled.sql\n    python: a.py:b", "27:13: The flow top_pages has sql and"),
        ("topic: top-pages, ", "", "27:13: The output of top_pages goes nowhere."),
        ("topic: top-pages, ", "topic: top-pages, parquet: x, ", "27:41: The output of top_pages has topic and"),
        ("format: json}", "format: avro}", "27:51: format is 'avro', and should be json"),
        ("format: json}", "format: raw}", "27:37: Raw rows have their key in their column key already."),
        ("format: json}", "options: {failOnDataLoss: a}}", "The option failOnDataLoss is 'a'."),
        ("format: json}", "options: {topik: a}}", "The sink has no option topik."),
        ("mode: Update", "mode: upsert", "28:11: mode is 'upsert', and should be append, update or complete."),
        ("trigger: 1 second", "trigger: 1s", "29:14: trigger is '1s', and should be a time like 1 second"),
        ("trigger: 1 second", "trigger: once", "Write available now."),
        ("trigger: available now", "mode: update", "33:11: The mode is update, and Parquet files can only"),
        ("output: console", "output: {console: {}, key: a}", "37:32: key has no meaning for the output console."),
        ("output: console", "output: [console]", "37:13: The output of seen is a list, and should be names"),
        ("output: console", "output: {parquet: kept}", "37:23: The flow kept has the same folder for its files."),
        ("checkpoint: elsewhere", "checkpoint: .checkpoints/seen", "The flow kept has the same folder as its check"),
        ("flows:", "flows: {}\nx:", "22:8: flows is empty."),
        ("inputs:", "<<: {a: b}\ninputs:", "5:1: A pipeline takes no '<<'. Merge keys are not understood here."),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line_and_what_to_do(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    told = mistakes(folder_with(tmp_path, GOOD.replace(old, new, 1)))
    assert any(expected in one for one in told), told
    assert all("\n" not in one for one in told)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "pipeline.yml:1:1: The file is empty."),
        ("# nothing\n", "pipeline.yml:1:1: The file is empty."),
        ("just words", "pipeline.yml:1:1: A pipeline is text, and should be names with values (name: value)."),
        ("name: a\n\tkafka: {}", "pipeline.yml:2:1: This is not YAML: "),
        ("name: a: b", "pipeline.yml:1:8: This is not YAML: mapping values are not allowed here. A text with a colon"),
        ("name: [a", "pipeline.yml:1:9: This is not YAML: "),
        ("name: a\n---\nname: b", "pipeline.yml:2:1: This is not YAML: "),
        (b"name: a\nkafka: \xff", "pipeline.yml:2:1: This is not text in UTF-8."),
        ("name: a\nkafka: \x01", "pipeline.yml:2:8: The character"),
        ("name: " + "[" * 1000, "pipeline.yml:1:1: This is not YAML that can be read: it is nested too deep."),
        ("name: &a [*a]\ninputs: *b", "pipeline.yml:2:9: This is not YAML: found undefined alias 'b'."),
        ("name: " + "a" * (1 << 20), "pipeline.yml:1:1: The file is"),
    ],
)
def test_what_is_no_pipeline_at_all_is_told_as_well(tmp_path: Path, text: str | bytes, expected: str) -> None:
    told = mistakes(folder_with(tmp_path, text))
    assert len(told) == 1 and told[0].startswith(expected), told


def test_a_folder_without_a_pipeline_is_told(tmp_path: Path) -> None:
    assert "so this folder is no pipeline" in mistakes(str(tmp_path))[0]
    assert "There is no folder" in mistakes(str(tmp_path / "nowhere"))[0]
    (tmp_path / "pipeline.yaml").write_text(GOOD)
    assert "Rename pipeline.yaml to it." in mistakes(str(tmp_path))[0]


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    wrong = (
        GOOD.replace("name: activity", "name: 1").replace("format: json\n", "format: x\n").replace("mode: U", "mode: x")
    )
    told = mistakes(folder_with(tmp_path, wrong))
    assert [one.split(":")[1] for one in told] == ["1", "8", "28"]


def test_python_that_cannot_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, GOOD)
    (tmp_path / "flows.py").write_text("import os\n\ndef top_pages(titled:\n    return titled\n")
    assert mistakes(folder)[0].startswith("flows.py:3:14: This is not Python: ")
    (tmp_path / "flows.py").write_text("def top_pages(titled, *,\n    pagse):\n    return titled\n")
    assert mistakes(folder) == ["flows.py:2:5: There is no view pagse. Did you mean pages?"]


# Whatever is in the files, it becomes a pipeline or mistakes.

WORDS = sorted(
    {word for line in GOOD.replace("{", " ").replace("}", " ").split("\n") for word in line.replace(",", " ").split()}
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
names = st.sampled_from([word.rstrip(":") for word in WORDS]) | st.text(max_size=4)
documents = st.recursive(
    scalars | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
    max_leaves=25,
)


def changed(parts: list[tuple[int, str]]) -> str:
    """GOOD, with some of its lines replaced."""
    lines = GOOD.splitlines()
    for index, text in parts:
        lines[index % len(lines)] = text
    return "\n".join(lines)


edits = st.lists(st.tuples(st.integers(0, 99), st.text(max_size=20) | st.sampled_from(GOOD.splitlines())), max_size=4)


def is_read_or_refused(path: Path, text: str) -> None:
    try:
        load(folder_with(path, text.encode("utf-8", "surrogatepass")))
    except Mistakes as found:
        assert found.found
        count = len(text.replace("\r\n", "\n").split("\n")) + text.count("\r") + text.count("\x85") + 5
        for one in found.found:
            assert 1 <= one.line <= count + text.count("\u2028") + text.count("\u2029") and one.column >= 1
            assert one.text.strip() and "\n" not in str(one).replace(str(path), "")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=documents)
def test_any_document_is_read_or_refused(tmp_path: Path, document: object) -> None:
    is_read_or_refused(tmp_path, yaml.safe_dump(document))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=edits)
@example(parts=[(6, "    ? [a, b]\n    : c")])
@example(parts=[(6, "    !!python/object:os.system {}: c")])
@example(parts=[(6, "    ~: c")])
@example(parts=[(10, "    watermark: &x {a: *x}")])
def test_any_change_of_a_file_is_read_or_refused(tmp_path: Path, parts: list[tuple[int, str]]) -> None:
    is_read_or_refused(tmp_path, changed(parts))


# The small languages.


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("10 seconds", "10 seconds"),
        ("1  Minute 30 SECONDS", "1 minute 30 seconds"),
        ("0.5 seconds", "0.5 seconds"),
        ("250 milliseconds", "250 milliseconds"),
    ],
)
def test_durations_are_as_spark_writes_them(text: str, is_: str) -> None:
    assert duration(text) == is_


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("10s", "10 seconds"),
        ("1m", "1 minute"),
        ("5 min", "5 minutes"),
        ("1h 30m", "1 hour 30 minutes"),
        ("2 moons", ""),
    ],
)
def test_other_durations_are_refused_with_the_right_words(text: str, instead: str) -> None:
    with pytest.raises(ValueError, match=f"Write {instead}"):
        duration(text)


def test_columns_of_a_schema_are_seen_without_spark() -> None:
    assert columns("a int, `b c` array<struct<x: int, y: string>>,\n D decimal(10, 2) COMMENT 'a, b'") == {
        "a": "int", "b c": "array", "d": "decimal",
    }  # fmt: skip
    assert columns("a int, struct<") is None


@pytest.mark.parametrize(
    ("pattern", "fitting"), [("a|b", ["a", "b"]), ("(?i)A.?", ["a", "ab", "aa"]), ("b$", ["b"]), ("(a)\\1", ["aa"])]
)
def test_a_pattern_is_for_whole_names(pattern: str, fitting: list[str]) -> None:
    which = Which(pattern=whole_names(pattern))
    assert [name for name in ("a", "b", "ab", "aa", "cab") if which.fits(name)] == fitting
