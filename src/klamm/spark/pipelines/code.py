"""The SQL and Python of flows, as far as it can be looked at without running it or starting Spark."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from typing import Final

from klamm.spark.pipelines.mistakes import Place
from klamm.spark.pipelines.model import Pipeline, Python, Sql
from klamm.spark.pipelines.yaml_lines import Notes, nearest

MAX_BYTES: Final = 1 << 20
"""Of a file with SQL, Python or a schema."""
SPARK: Final = "spark"
"""The argument that is the session."""


@dataclass(frozen=True)
class Views:
    """What a flow can use, by name, with a word for what it is; and the flows that come later."""

    there: dict[str, str]
    later: frozenset[str]

    def problem(self, name: str) -> tuple[str, str] | None:
        """What is wrong with using this view, and what to do."""
        if name in self.there:
            return None
        if name in self.later:
            return f"The flow {name} comes later in pipeline.yml.", "Move it above the flow that uses it."
        return f"There is no view {name}.", nearest(name, list(self.there))


@dataclass(frozen=True)
class Files:
    """The folder of a pipeline, by its whole path and as its user writes it."""

    folder: str
    shown: str

    def place(self, path: str) -> Place:
        """Of the first character of this file, a whole path."""
        inside = os.path.relpath(path, self.folder)
        return Place(path if inside.startswith("..") else os.path.normpath(os.path.join(self.shown, inside)))

    @classmethod
    def of(cls, pipeline: Pipeline) -> Files:
        return cls(pipeline.folder, os.path.dirname(pipeline.place.file))

    def read(self, path: str, at: Place, notes: Notes) -> str | None:
        """The text of a file that `at` names; None if there is none, which is noted."""
        shown = self.place(path).file
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            missing = isinstance(error, FileNotFoundError)
            notes.wrong(at, f"There is no file {shown}." if missing else f"{shown} cannot be read: {why}.")
            return None
        if len(content) > MAX_BYTES:
            notes.wrong(at, f"{shown} has more than {MAX_BYTES:,} bytes.")
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            notes.wrong(Place(shown, line), "This is not text in UTF-8.", "Save the file in UTF-8.")
            return None
        if not text.strip():
            notes.wrong(Place(shown), "The file is empty.")
            return None
        return text


def read_sql(path: str, at: Place, files: Files, notes: Notes) -> Sql | None:
    text = files.read(path, at, notes)
    return None if text is None else Sql(path, text, files.place(path))


def read_python(path: str, function: str, at: Place, views: Views, files: Files, notes: Notes) -> Python | None:
    text = files.read(path, at, notes)
    if text is None:
        return None
    shown = files.place(path).file
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        place = Place(shown, error.lineno or 1, max(error.offset or 1, 1))
        notes.wrong(place, f"This is not Python: {error.msg}.")
        return None
    except (ValueError, RecursionError, MemoryError) as error:
        notes.wrong(Place(shown), f"This is not Python that can be read: {error}.")
        return None
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    found = functions.get(function)
    if found is None:
        hint = nearest(function, list(functions)) or f"Write one: def {function}(...):"
        notes.wrong(at, f"{shown} has no function {function}.", hint)
        return None
    place = Place(shown, found.lineno, found.col_offset + 1)
    return Python(path, function, _arguments(found, shown, views, notes), place)


def _arguments(function: ast.FunctionDef, shown: str, views: Views, notes: Notes) -> tuple[str, ...]:
    """Those that will be given: the ones that are views, and the session. Others need a default of their own."""
    given = function.args
    if given.posonlyargs:
        first = given.posonlyargs[0]
        notes.wrong(Place(shown, first.lineno, first.col_offset + 1), "Views are given by name.", "Remove the slash.")
    plain = given.posonlyargs + given.args
    with_default = {one.arg for one in plain[len(plain) - len(given.defaults) :]} | {
        one.arg for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is not None
    }
    names: list[str] = []
    for one in plain + given.kwonlyargs:
        problem = None if one.arg == SPARK else views.problem(one.arg)
        if problem is None:
            names.append(one.arg)
        elif one.arg not in with_default:
            notes.wrong(Place(shown, one.lineno, one.col_offset + 1), *problem)
    return tuple(names)
