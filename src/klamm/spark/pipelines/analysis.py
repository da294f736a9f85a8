"""What Spark thinks of a pipeline before anything runs: columns and types of its views, and whether its outputs can be
written. Plans are made and analyzed; no query is started, nothing is read but the names of a table's files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import ParseException, PySparkException

from klamm.core.env.real import real_env
from klamm.spark.errors import BadOption, SparkError
from klamm.spark.options import Which
from klamm.spark.pipelines import inputs, outputs
from klamm.spark.pipelines.flows import BadFlow, Views
from klamm.spark.pipelines.mistakes import Mistake, Place
from klamm.spark.pipelines.model import RAW_COLUMNS, Flow, Input, Output, Pipeline, Table
from klamm.spark.pipelines.queries import grows, quiet, wrong_mode
from klamm.spark.pipelines.run import DEFAULTS
from klamm.spark.pipelines.said import place_in, sentence
from klamm.spark.pipelines.texts import whole_names
from klamm.spark.pipelines.yaml_lines import nearest
from klamm.spark.sink.rows import check as check_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"


@dataclass
class Analysis:
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[Mistake] = field(default_factory=list)
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of every view that could be made: names and types, as Spark writes them."""
    uses: dict[str, set[str]] = field(default_factory=dict)
    """Which views every flow names."""


def analyze(pipeline: Pipeline, spark: SparkSession) -> Analysis:
    """In a session of its own, with the settings that a run would have."""
    session = spark.newSession()
    found = Analysis()
    for name, value in {**DEFAULTS, **pipeline.spark}.items():
        try:
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
        except (PySparkException, Py4JError) as error:
            found.mistakes.append(Mistake(pipeline.at(f"spark.{name}"), *sentence(error)))
    with quiet():
        _Analyzer(pipeline, session, found).all()
    return found


class _DryViews(Views):
    """Views whose inputs are no topics, but have the columns of such: nobody is asked, no process started."""

    def _make(self, one: Input | Table | Flow) -> DataFrame:
        if not isinstance(one, Input):
            return super()._make(one)
        columns = dict(RAW_COLUMNS)
        if ("includeheaders", "true") in ((name.lower(), value.lower()) for name, value in one.options.items()):
            columns["headers"] = HEADERS_TYPE
        empty = (
            self._spark.readStream.format("rate")
            .load()
            .selectExpr(*(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in columns.items()))
        )
        return inputs.rows(empty, one)


class _Analyzer:
    def __init__(self, pipeline: Pipeline, session: SparkSession, found: Analysis) -> None:
        self._pipeline = pipeline
        self._session = session
        self._views = _DryViews(session, pipeline, pipeline.name)
        self._broken: set[str] = set()  # views with mistakes: those that use them would only repeat them
        self._found = found

    def all(self) -> None:
        for one in self._pipeline.inputs:
            self._view(one, _place_of_input_error)
        for table in self._pipeline.tables:
            self._view(table, _place_of_table_error)
        for flow in self._pipeline.flows:
            self._flow(flow)
        if not self._found.mistakes:
            self._unused()
            self._loops()

    def _wrong(self, mistake: Mistake) -> None:
        self._found.mistakes.append(mistake)

    def _made(self, name: str, frame: DataFrame) -> None:
        self._found.columns[name] = {one.name: one.dataType.simpleString() for one in frame.schema.fields}

    def _view(self, one: Input | Table, place: Any) -> None:
        try:
            self._made(one.name, self._views.frame(one.name))
        except (PySparkException, SparkError, Py4JError) as error:
            self._wrong(Mistake(place(one, error), *sentence(error)))
            self._broken.add(one.name)

    # Flows.

    def _flow(self, flow: Flow) -> None:
        try:
            uses = self._found.uses[flow.name] = self._views.uses(flow)
            if uses & self._broken:
                self._broken.add(flow.name)
                return
            frame = self._views.frame(flow.name)
        except BadFlow as error:
            self._wrong(error.mistake)
            self._broken.add(flow.name)
            return
        self._made(flow.name, frame)
        if flow.output is not None:
            self._output(flow, flow.output, frame)

    # Outputs.

    def _output(self, flow: Flow, output: Output, frame: DataFrame) -> None:
        if not frame.isStreaming:
            text = f"The flow {flow.name} reads no input, so there is nothing to wait for."
            self._wrong(Mistake(flow.place, text, "Let it read one, or remove its output."))
            return
        self._mode(flow, frame)
        columns = self._found.columns[flow.name]
        twice = sorted(
            {name for name in frame.columns if [one.lower() for one in frame.columns].count(name.lower()) > 1}
        )
        if twice:
            text = f"There is more than one column {twice[0]}."
            self._wrong(Mistake(flow.code.place, text, "Give each another name: AS."))
            return
        if output.kind == "topic":
            self._topic(output, frame, columns)
        elif output.kind == "parquet":
            self._parquet(flow, output, columns)

    def _mode(self, flow: Flow, frame: DataFrame) -> None:
        mistake = wrong_mode(self._session, flow, frame)
        if mistake is not None:
            self._wrong(mistake)
        elif (warning := grows(self._session, flow, frame)) is not None:
            self._found.warnings.append(warning)

    def _topic(self, output: Output, frame: DataFrame, columns: dict[str, str]) -> None:
        if output.key is not None and output.key not in columns:
            text = f"The flow has no column {output.key} to take the key from."
            self._wrong(Mistake(output.at("key"), text, nearest(output.key, list(columns))))
            return
        try:
            rows = outputs.records(frame, output)
            check_rows({one.name: one.dataType.simpleString() for one in rows.schema.fields}, output.topic)
        except (BadOption, outputs.BadOutput) as error:
            self._wrong(Mistake(output.at("format"), error.text, error.hint))
        except PySparkException as error:
            self._wrong(Mistake(output.at("format"), *sentence(error)))

    def _parquet(self, flow: Flow, output: Output, columns: dict[str, str]) -> None:
        if _has_moved(flow, output):
            text = f"The flow {flow.name} has written to another folder so far, and its files are not here."
            hint = f"Name that one, or remove {flow.checkpoint} to begin anew."
            self._wrong(Mistake(output.at("parquet"), text, hint))
        lower = {name.lower() for name in columns}
        for name in output.partition_by:
            if name.lower() not in lower:
                text = f"The flow has no column {name} to divide the files by."
                self._wrong(Mistake(output.at("partition_by"), text, nearest(name, list(columns))))
        if lower and lower <= {name.lower() for name in output.partition_by}:
            text = "partition_by has all columns, and leaves none for the files."
            self._wrong(Mistake(output.at("partition_by"), text))
        for name, type_ in columns.items():
            if re.search(r"\bvoid\b", type_):
                text = f"The column {name} is always NULL, and has no type that Parquet knows."
                self._wrong(Mistake(flow.code.place, text, f"Give it one: CAST(NULL AS string) AS {name}."))

    def _unused(self) -> None:
        used = {name for names in self._found.uses.values() for name in names}
        for one in (*self._pipeline.inputs, *self._pipeline.tables):
            if one.name not in used:
                self._found.warnings.append(Mistake(one.place, f"No flow uses {one.name}."))
        for flow in self._pipeline.flows:
            if flow.output is None and flow.name not in used:
                text = f"The flow {flow.name} has no output, and no other flow uses it."
                self._found.warnings.append(Mistake(flow.place, text))

    def _loops(self) -> None:
        for flow, output in self._pipeline.outputs:
            below = self._below(flow.name)
            for one in self._pipeline.inputs:
                if one.name in below and output.topic is not None and _reads(one, output.topic):
                    text = f"The flow {flow.name} writes to {output.topic}, and reads it by the input {one.name}."
                    hint = "What it writes comes back to it, for ever, unless it leaves that out."
                    self._found.warnings.append(Mistake(output.at("topic"), text, hint))

    def _below(self, view: str) -> set[str]:
        """All views that it is made of."""
        uses = self._found.uses.get(view, set())
        return uses.union(*(self._below(name) for name in uses))


def _has_moved(flow: Flow, output: Output) -> bool:
    """Spark keeps a list beside the files. Where it is missing, a query that goes on from a checkpoint does so for some
    batches, and then fails for good."""
    folder, commits = output.parquet or "", f"{flow.checkpoint}/commits"
    files = real_env().files
    if "://" in folder or not files.exists(commits):  # or the checkpoint is not on this machine
        return False
    return any(name.isdigit() for name in files.list(commits)) and not files.exists(f"{folder}/_spark_metadata")


def _reads(one: Input, topic: str) -> bool:
    return topic == one.topic or (one.pattern is not None and Which(pattern=whole_names(one.pattern)).fits(topic))


def _place_of_input_error(one: Input, error: Exception) -> Place:
    is_about_time = "EVENT_TIME" in str(error) or "watermark" in str(error).lower()
    return one.at("event_time") if is_about_time else _place_in_schema(one, error)


def _place_of_table_error(one: Table, error: Exception) -> Place:
    is_about_schema = one.schema is not None and isinstance(error, ParseException)
    return _place_in_schema(one, error) if is_about_schema else one.at("path")


def _place_in_schema(one: Input | Table, error: Exception) -> Place:
    """To the letter in a file of its own; in pipeline.yml, where it begins."""
    at = one.at("schema")
    return at if one.schema is None or at.file == one.place.file else place_in(str(error), one.schema, at)
