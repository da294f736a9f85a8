"""`flows` of a `pipeline.yml`, and their outputs."""

from __future__ import annotations

import re
from typing import Final

from klamm.spark.errors import BadOption
from klamm.spark.options import SinkOptions
from klamm.spark.pipelines import texts
from klamm.spark.pipelines.code import Files, Views, read_python, read_sql
from klamm.spark.pipelines.mistakes import Place
from klamm.spark.pipelines.model import Flow, Mode, Output, OutputFormat, OutputKind, Pipeline, Python, Sql
from klamm.spark.pipelines.yaml_lines import Fields, Notes, Value, listed, nearest

_FLOW: Final = ("sql", "python", "output", "mode", "trigger", "checkpoint")
_MODES: Final[tuple[Mode, ...]] = ("append", "update", "complete")
_KINDS: Final[tuple[OutputKind, ...]] = ("topic", "parquet", "console")
_FORMATS: Final[tuple[OutputFormat, ...]] = ("json", "text", "csv", "raw")
_OUTPUT: Final = ("topic", "key", "format", "parquet", "partition_by", "console", "options")
_ONLY: Final = {"key": "topic", "format": "topic", "partition_by": "parquet"}
"""What only one kind of output has."""
_SINK: Final = ("deliveryGuarantee", "failOnDataLoss")
_SOON: Final = ("as soon as possible", "asap")
_NOW: Final = ("available now", "availablenow", "available_now")


def read_flow(
    name: str, at: Place, value: Value, pipeline: Pipeline, views: Views, files: Files, notes: Notes
) -> Flow | None:
    fields = Fields(value, f"the flow {name}", _FLOW, notes, at)
    code = _code(fields, name, views, files, notes)
    output = _output(fields, name, pipeline, files, notes)
    if output is None and "output" not in fields:
        for field in ("mode", "trigger", "checkpoint"):
            if field in fields:
                hint = "Remove it, or give the flow an output."
                fields.wrong(field, f"The flow {name} has no output, so {field} says nothing.", hint)
    mode = fields.word("mode", _MODES, "append")
    if output is not None and output.kind == "parquet" and mode != "append":
        hint = "Use append, or write to a topic."
        fields.wrong("mode", f"The mode is {mode}, and Parquet files can only be added to.", hint)
    trigger, available_now = _trigger(fields)
    checkpoint = fields.text("checkpoint", "a folder")
    base = pipeline.checkpoints if checkpoint is None else files.folder
    if code is None:
        return None
    return Flow(
        name=name,
        place=fields.place,
        places=fields.places,
        code=code,
        output=output,
        mode=mode,
        trigger=trigger,
        available_now=available_now,
        checkpoint=texts.whole_path(base, checkpoint) if checkpoint else f"{base.rstrip('/')}/{name}",
    )


def _code(fields: Fields, name: str, views: Views, files: Files, notes: Notes) -> Sql | Python | None:
    sql = fields.text("sql", "a file with one SELECT")
    python = fields.text("python", "a file and a function (flows.py:top_pages)")
    if "sql" in fields and "python" in fields:
        fields.wrong("python", f"The flow {name} has sql and python.", "Remove one of them, or make two flows.")
        return None
    if sql is not None:
        if re.match(r"(select|with)\b", sql, re.IGNORECASE):
            fields.wrong("sql", "sql is a SELECT, and should be a file.", f"Put it into {name}.sql: sql: {name}.sql.")
            return None
        return read_sql(texts.whole_path(files.folder, sql), fields.places["sql"], files, notes)
    if python is not None:
        path, colon, function = python.rpartition(":")
        if not colon or not path or not function.isidentifier():
            hint = f"Write python: flows.py:{name}."
            fields.wrong("python", f"python is {python!r}, and should be a file and a function.", hint)
            return None
        whole = texts.whole_path(files.folder, path)
        return read_python(whole, function, fields.places["python"], views, files, notes)
    if "python" not in fields:
        fields.need("sql", f"Name a file with one SELECT (sql: {name}.sql), or a function (python: flows.py:{name}).")
    return None


def _trigger(fields: Fields) -> tuple[str | None, bool]:
    """How often, and whether only for what is there."""
    found = fields.parsed("trigger", "a time like 1 second, available now, or as soon as possible", _trigger_text)
    return (None, found == _NOW[0]) if found in (None, _NOW[0], _SOON[0]) else (found, False)


def _trigger_text(text: str) -> str:
    words = " ".join(text.lower().split())
    for meant in (_SOON, _NOW):
        if words in meant:
            return meant[0]
    if words == "once":
        raise ValueError("Write available now.")
    return texts.duration(text)


def _output(fields: Fields, flow: str, pipeline: Pipeline, files: Files, notes: Notes) -> Output | None:
    value = fields.value("output")
    if value is None:
        return None
    if value.text == "console":
        return Output("console", value.place, {})
    what = f"the output of {flow}"
    found = Fields(value, what, _OUTPUT, notes)
    if not found.is_mapping:
        return None
    kinds = [kind for kind in _KINDS if kind in found]
    if len(kinds) != 1:
        hint = "Give it one: {topic: top-pages}, {parquet: folder} or {console: {}}."
        text = f"The output of {flow} has {listed(kinds)}." if kinds else f"The output of {flow} goes nowhere."
        found.wrong(kinds[1] if kinds else "", text, "Make a flow for each." if kinds else hint)
        return None
    (kind,) = kinds
    for field, only in _ONLY.items():
        if field in found and kind != only:
            found.wrong(field, f"{field} has no meaning for the output {kind}.", "Remove it.")
    parquet = found.text("parquet", "a folder")
    if kind != "console":
        found.need(kind, "Name a topic: topic: top-pages." if kind == "topic" else "Name a folder.")
    options = found.settings("console") if kind == "console" else {}
    output = Output(
        kind=kind,
        place=found.place,
        places=found.places,
        topic=found.parsed("topic", "the name of a topic", texts.topic),
        key=found.text("key", "the name of a column"),
        format=found.word("format", _FORMATS, "json"),
        parquet=texts.whole_path(files.folder, parquet) if parquet else None,
        partition_by=found.texts("partition_by", "the name of a column"),
        options={**options, **found.settings("options")},
    )
    _check(found, output, pipeline)
    return output


def _check(fields: Fields, output: Output, pipeline: Pipeline) -> None:
    if output.format == "raw" and output.key is not None:
        text = "Raw rows have their key in their column key already."
        fields.wrong("key", text, "Remove it, and name that column key in the flow.")
    if output.kind != "topic" or output.topic is None:
        return
    for option in output.options:
        if option.lower() not in {one.lower() for one in _SINK} and not option.lower().startswith("kafka."):
            fields.wrong(f"options.{option}", f"The sink has no option {option}.", nearest(option, _SINK))
            return
    client = {f"kafka.{option}": value for option, value in pipeline.client.items()}
    try:
        SinkOptions.parse({**client, "topic": output.topic, **output.options})
    except BadOption as error:
        fields.wrong("options", error.text, error.hint)
