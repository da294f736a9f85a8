"""`inputs` and `tables` of a `pipeline.yml`. What cannot be used is noted, and something stands in its place: a
pipeline with mistakes is thrown away when all of them are known."""

from __future__ import annotations

from typing import Final

from klamm.spark.errors import BadOption
from klamm.spark.options import SourceOptions, Which
from klamm.spark.pipelines import texts
from klamm.spark.pipelines.code import Files
from klamm.spark.pipelines.mistakes import Place
from klamm.spark.pipelines.model import (
    KAFKA_COLUMNS,
    RAW_COLUMNS,
    TEXT_COLUMNS,
    Input,
    InputFormat,
    Pipeline,
    Starting,
    Table,
    TableFormat,
)
from klamm.spark.pipelines.yaml_lines import Fields, Notes, Value, listed, nearest, upper

_INPUT: Final = (
    "topic",
    "pattern",
    "format",
    "schema",
    "schema_file",
    "parse",
    "event_time",
    "watermark",
    "starting",
    "dead_letters",
    "options",
)
_TABLE: Final = ("path", "format", "schema", "schema_file", "options")
_INPUT_FORMATS: Final[tuple[InputFormat, ...]] = ("json", "csv", "text", "raw")
_TABLE_FORMATS: Final[tuple[TableFormat, ...]] = ("parquet", "csv", "json")
_STARTING: Final[tuple[Starting, ...]] = ("earliest", "latest")
_TIMES: Final = ("timestamp", "timestamp_ltz", "timestamp_ntz")
_OPTIONS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "groupIdPrefix",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_DECIDED: Final = {
    "subscribe": "That is what topic is for.",
    "subscribepattern": "That is what pattern is for.",
    "assign": "An input has all partitions of its topics.",
    "kafka.bootstrap.servers": "That is what bootstrap is for, at the top of the file.",
    "kafka.group.id": "A query's group is named after the pipeline and the flow.",
}


def read_input(name: str, at: Place, value: Value, pipeline: Pipeline, files: Files, notes: Notes) -> Input:
    fields = Fields(value, f"the input {name}", _INPUT, notes, at)
    topic = fields.parsed("topic", "the name of a topic", texts.topic)
    pattern = fields.parsed("pattern", "a regular expression for names of topics", texts.pattern)
    if "topic" in fields and "pattern" in fields:
        fields.wrong("pattern", f"The input {name} has a topic and a pattern.", "Remove one of them.")
    elif "pattern" not in fields:
        fields.need("topic", "Name one, or several by a pattern: topic: page-views.")
    kind = fields.word("format", _INPUT_FORMATS, "json")
    fields.need("format", f"It is {listed(_INPUT_FORMATS, 'or')}.")
    schema = _schema(fields, files, notes, needed=kind in ("json", "csv") and not fields.is_wrong("format"))
    if kind in ("raw", "text"):
        _has_no_schema(fields, kind)
    else:
        _names_are_free(fields, schema)
    found = Input(
        name=name,
        place=fields.place,
        places=fields.places,
        topic=topic,
        pattern=pattern,
        format=kind,
        schema=schema,
        parse=fields.settings("parse"),
        event_time=_event_time(fields, kind, schema),
        watermark=fields.parsed("watermark", "a time like 10 seconds", texts.duration),
        starting=fields.word("starting", _STARTING, "latest"),
        dead_letters=_dead_letters(fields, name, topic, pattern, kind, pipeline),
        options=fields.settings("options"),
    )
    _check_options(fields, found, pipeline)
    return found


def _schema(fields: Fields, files: Files, notes: Notes, *, needed: bool) -> str | None:
    what = "columns with their types (user string, at timestamp)"
    schema = fields.text("schema", what)
    path = fields.text("schema_file", "a file with columns and their types")
    if "schema" in fields and "schema_file" in fields:
        fields.wrong("schema_file", f"{upper(fields.what)} has a schema and a schema_file.", "Remove one of them.")
    elif path is not None:
        whole = texts.whole_path(files.folder, path)
        schema = files.read(whole, fields.places["schema_file"], notes)
        fields.places["schema"] = files.place(whole)
    elif needed and "schema_file" not in fields:
        fields.need("schema", f"Write {what}: schema: user string, at timestamp.")
    return schema


def _has_no_schema(fields: Fields, kind: str) -> None:
    for field in ("schema", "schema_file", "parse"):
        if field in fields:
            columns = "value as text" if kind == "text" else "Kafka's columns"
            fields.wrong(field, f"A {kind} input takes no {field}: it has {columns}.", "Use json or csv, or remove it.")


def _names_are_free(fields: Fields, schema: str | None) -> None:
    for column in texts.columns(schema or "") or ():
        if column in KAFKA_COLUMNS:
            text = f"The schema has a column {column}, and every input has one of that name from Kafka."
            fields.wrong("schema", text, "Leave it out.")


def _event_time(fields: Fields, kind: InputFormat, schema: str | None) -> str:
    column = fields.text("event_time", "the name of a column")
    if column is None:
        return "_timestamp"
    own = dict(RAW_COLUMNS if kind == "raw" else TEXT_COLUMNS) if schema is None else texts.columns(schema)
    if own is None or (schema is None and kind in ("json", "csv")):
        return column  # the schema is wrong, and that is told
    there = {name.lower(): of_type for name, of_type in {**own, **KAFKA_COLUMNS}.items()}
    times = [name for name, of_type in there.items() if of_type in _TIMES]
    found = there.get(column.lower())
    if found is None:
        fields.wrong("event_time", f"There is no column {column}.", nearest(column, times))
    elif found not in _TIMES:
        hint = f"Make it a timestamp in the schema, or use {listed(times, 'or')}."
        fields.wrong("event_time", f"The column {column} is {found}, and event time is a timestamp.", hint)
    return column


def _dead_letters(
    fields: Fields, name: str, topic: str | None, pattern: str | None, kind: InputFormat, pipeline: Pipeline
) -> str | None:
    value = fields.value("dead_letters")
    if value is not None and value.flag is False:
        return None
    given = fields.parsed("dead_letters", "the name of a topic, or false", texts.topic) if value is not None else None
    if kind in ("raw", "text"):
        if value is not None:
            text = f"A {kind} input has no dead letters: each of its records can be read."
            fields.wrong("dead_letters", text, "Remove it.")
        return None
    found = given or (f"{topic}.dead" if topic else f"{pipeline.name}.{name}.dead")
    if found == topic:
        fields.wrong("dead_letters", f"Dead letters would come back into {topic}.", "Use another topic for them.")
    elif pattern is not None and Which(pattern=texts.whole_names(pattern)).fits(found):
        at = "dead_letters" if "dead_letters" in fields else "pattern"
        text = f"The topic for dead letters, {found}, fits the pattern itself: they would be read again."
        fields.wrong(at, text, "Name another with dead_letters, or make the pattern narrower.")
    return found


def _check_options(fields: Fields, found: Input, pipeline: Pipeline) -> None:
    known = {option.lower() for option in _OPTIONS}
    fine = True
    for option in found.options:
        lower = option.lower()
        if lower in _DECIDED:
            fine = fields.wrong(f"options.{option}", f"The option {option} does not belong here.", _DECIDED[lower])
        elif lower.startswith("starting") and "starting" in fields and lower in known:
            text = f"Both starting and the option {option} say where to begin."
            fine = fields.wrong(f"options.{option}", text, "Remove one of them.")
        elif lower not in known and not lower.startswith("kafka."):
            text = f"The source has no option {option}."
            fine = fields.wrong(f"options.{option}", text, nearest(option, _OPTIONS))
    if not fine or (found.topic is None) == (found.pattern is None):
        return
    which = {"subscribe": found.topic} if found.topic is not None else {"subscribePattern": found.pattern or ""}
    client = {f"kafka.{option}": value for option, value in pipeline.client.items()}
    try:
        SourceOptions.parse({**client, **which, **found.options}, streaming=True)
    except BadOption as error:
        fields.wrong("options", error.text, error.hint)


def read_table(name: str, at: Place, value: Value, files: Files, notes: Notes) -> Table:
    fields = Fields(value, f"the table {name}", _TABLE, notes, at)
    path = fields.text("path", "a file or a folder")
    fields.need("path", "Name a file or a folder: path: pages.csv.")
    kind = fields.word("format", _TABLE_FORMATS, "parquet")
    fields.need("format", f"It is {listed(_TABLE_FORMATS, 'or')}.")
    return Table(
        name=name,
        place=fields.place,
        places=fields.places,
        path=texts.whole_path(files.folder, path or ""),
        format=kind,
        schema=_schema(fields, files, notes, needed=False),
        options=fields.settings("options"),
    )
