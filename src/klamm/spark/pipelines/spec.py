"""A pipeline's folder, read and checked as far as that goes without Spark and without a broker: `load`.

All mistakes are told at once, each with the place where it stands. Must not import Spark: whoever edits a pipeline
should hear at once of a word that is not spelled right.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from klamm.spark.pipelines import texts
from klamm.spark.pipelines.code import Files, Views
from klamm.spark.pipelines.flow_spec import read_flow
from klamm.spark.pipelines.input_spec import read_input, read_table
from klamm.spark.pipelines.mistakes import Mistake, Mistakes, Place
from klamm.spark.pipelines.model import (
    DEFAULT_BOOTSTRAP,
    Flow,
    Input,
    Output,
    Pipeline,
    Python,
    Sql,
    Table,
)
from klamm.spark.pipelines.yaml_lines import Fields, Notes, Value, keys, named, read

__all__ = ["Flow", "Input", "Mistake", "Mistakes", "Output", "Pipeline", "Place", "Python", "Sql", "Table", "load"]

FILE: Final = "pipeline.yml"
_KNOWN: Final = ("name", "bootstrap", "kafka", "spark", "checkpoints", "inputs", "tables", "flows")
_ELSEWHERE: Final = {
    "bootstrap.servers": "Write it as bootstrap, beside kafka.",
    "group.id": "A query's group is named after the pipeline and the flow.",
    "isolation.level": "Write it into the options of an input, as kafka.isolation.level.",
}


def load(folder: str, checkpoints: str | None = None) -> Pipeline:
    """The pipeline in this folder; `Mistakes` has all that is wrong with it. `checkpoints`, a path or a URL, comes
    before what the file says: the same pipeline may run with several clusters."""
    if os.path.basename(folder) == FILE and os.path.isfile(folder):
        folder = os.path.dirname(folder) or "."
    notes = Notes()
    files = Files(os.path.abspath(folder), os.path.normpath(folder))
    pipeline = _read(files, notes, checkpoints)
    if pipeline is None or notes.mistakes:
        raise Mistakes(notes.mistakes)
    return pipeline


def _read(files: Files, notes: Notes, checkpoints: str | None) -> Pipeline | None:
    path = os.path.join(files.folder, FILE)
    shown = files.place(path).file
    content = _content(path, shown, files, notes)
    if content is None:
        return None
    document = read(content, shown, notes)
    if document is None or document.is_nothing:
        if not notes.mistakes:
            notes.wrong(Place(shown), "The file is empty.", "`klamm pipeline new DIR` writes one to begin with.")
        return None
    return _pipeline(document, files, notes, checkpoints)


def _content(path: str, shown: str, files: Files, notes: Notes) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        if os.path.exists(os.path.join(files.folder, "pipeline.yaml")):
            notes.wrong(Place(shown), f"There is no file {shown}.", "Rename pipeline.yaml to it.")
        elif not os.path.isdir(files.folder):
            hint = f"`klamm pipeline new {files.shown}` makes one."
            notes.wrong(Place(shown), f"There is no folder {files.shown}.", hint)
        else:
            notes.wrong(Place(shown), f"There is no file {shown}, so this folder is no pipeline.")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        notes.wrong(Place(shown), f"The file cannot be read: {why}.")
    return None


def _pipeline(document: Value, files: Files, notes: Notes, checkpoints: str | None) -> Pipeline | None:
    fields = Fields(document, "a pipeline", _KNOWN, notes)
    if not fields.is_mapping:
        return None
    name = fields.parsed("name", "a name", texts.pipeline_name)
    fields.need("name", "Give it one: name: activity.")
    kafka = _kafka(fields)
    spark = fields.settings("spark")
    for option in spark:
        if not option.startswith("spark."):
            hint = f"Spark's settings begin with spark.: spark.{option}, perhaps."
            fields.wrong(f"spark.{option}", f"{option} is no setting of Spark.", hint)
    said = texts.whole_path(files.folder, fields.text("checkpoints", "a folder") or ".checkpoints")
    pipeline = Pipeline(
        name=name or "pipeline",
        place=fields.place,
        places=fields.places,
        folder=files.folder,
        bootstrap=fields.text("bootstrap", "the address of a broker (localhost:9092)") or DEFAULT_BOOTSTRAP,
        kafka=kafka,
        spark=spark,
        checkpoints=checkpoints or said,
        inputs=(),
        tables=(),
        flows=(),
    )
    return _with_views(pipeline, fields, files, notes)


def _kafka(fields: Fields) -> dict[str, str]:
    found = fields.settings("kafka")
    for option in found:
        if option.startswith("kafka."):
            fields.wrong(f"kafka.{option}", f"{option} has a prefix too many.", f"Write {option[6:]}.")
        elif option in _ELSEWHERE:
            fields.wrong(f"kafka.{option}", f"{option} does not belong here.", _ELSEWHERE[option])
    return found


def _with_views(pipeline: Pipeline, fields: Fields, files: Files, notes: Notes) -> Pipeline:
    fields.fill("inputs", "It needs a topic to read: inputs: {views: {topic: page-views}}.")
    fields.fill("flows", "It needs at least one: flows: {pages: {sql: pages.sql, output: {console: {}}}}.")
    names = _Names(notes)
    inputs: list[Input] = []
    tables: list[Table] = []
    flows: list[Flow] = []
    for name, at, value in names.of(fields, "inputs", "input"):
        inputs.append(read_input(name, at, value, pipeline, files, notes))
    for name, at, value in names.of(fields, "tables", "table"):
        tables.append(read_table(name, at, value, files, notes))
    all_flows = names.of(fields, "flows", "flow")
    for index, (name, at, value) in enumerate(all_flows):
        later = frozenset(other for other, _, _ in all_flows[index + 1 :])
        there = {other: what for other, what in names.what.items() if other != name and other not in later}
        views = Views(there, later)
        flow = read_flow(name, at, value, pipeline, views, files, notes)
        if flow is not None:
            flows.append(flow)
    _same_places(flows, notes)
    return replace(pipeline, inputs=tuple(inputs), tables=tuple(tables), flows=tuple(flows))


class _Names:
    """The names of all views: each is there once, whatever its case, since SQL does not tell cases apart."""

    def __init__(self, notes: Notes) -> None:
        self.what: dict[str, str] = {}
        self._notes = notes
        self._places: dict[str, tuple[str, Place]] = {}

    def of(self, fields: Fields, section: str, what: str) -> list[tuple[str, Place, Value]]:
        value = fields.value(section)
        if value is None:
            return []
        at = keys(value)
        found = []
        for name, item in named(value, section, self._notes).items():
            place = at[name]
            try:
                texts.view(name)
            except ValueError as error:
                self._notes.wrong(place, f"{name!r} cannot be the name of a view.", str(error))
            first = self._places.setdefault(name.lower(), (f"{what} {name}", place))
            if first[1] != place:
                text = f"There is already the {first[0]}, in line {first[1].line}."
                self._notes.wrong(place, text, "Inputs, tables and flows are all views: each needs its own name.")
            self.what[name] = what
            found.append((name, place, item))
        return found


def _same_places(flows: list[Flow], notes: Notes) -> None:
    """Two queries in one folder would take each other's files for their own."""
    outputs = [(flow, flow.output) for flow in flows if flow.output is not None]
    for what, used in (
        ("as its checkpoint", [(flow, flow.checkpoint, flow.at("checkpoint")) for flow, _ in outputs]),
        ("for its files", [(flow, one.parquet, one.at("parquet")) for flow, one in outputs if one.parquet is not None]),
    ):
        first: dict[str | None, Flow] = {}
        for flow, folder, place in used:
            if first.setdefault(folder, flow) is not flow:
                text = f"The flow {first[folder].name} has the same folder {what}."
                notes.wrong(place, text, "Give each flow its own.")
