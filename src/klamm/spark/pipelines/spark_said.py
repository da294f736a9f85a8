"""What Spark says of a flow, for the person who wrote it: where it stands in their file, what is wrong, what to do.

Spark's errors have a condition, its parameters, and a line and position in the text that it was given. The commonest
conditions get a sentence of their own here; the others keep Spark's, without what only its developers need.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from typing import Final, Protocol

from klamm.spark.errors import SparkError
from klamm.spark.pipelines.code import Files, Views
from klamm.spark.pipelines.mistakes import Mistake, Place
from klamm.spark.pipelines.yaml_lines import nearest

_LIMIT: Final = 600
"""So many characters of a message at most: some have whole query plans in them."""
_AT: Final = re.compile(r"[;(]\s*line (\d+),? pos (\d+)")
_REST: Final = re.compile(r"\n\n== |;\s*line \d+ pos \d+|\s*\(line \d+, pos \d+\)|;\s*\n|\s*JVM stacktrace:", re.DOTALL)
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w{5}")


class Said(Protocol):
    """What errors of PySpark can be asked."""

    def getCondition(self) -> str | None: ...  # noqa: N802 (Spark's names)
    def getMessageParameters(self) -> Mapping[str, str] | None: ...  # noqa: N802


def in_sql(error: Exception, text: str, at: Place, views: Views) -> Mistake:
    """`text` is what Spark was given, and `at` where it begins."""
    return Mistake(place_in(str(error), text, at), *sentence(error, views))


def place_in(message: str, text: str, at: Place) -> Place:
    found = _AT.search(message)
    if found is None:
        return Place(at.file, at.line + len(text[: len(text) - len(text.lstrip())].split("\n")) - 1)
    return Place(at.file, at.line + int(found[1]) - 1, int(found[2]) + 1)


def in_python(error: BaseException, files: Files, default: Place, views: Views) -> Mistake:
    """At the innermost line of the pipeline's own files."""
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(f"{files.folder}/"):
        place = Place(files.place(error.filename).file, error.lineno or 1, max(error.offset or 1, 1))
        return Mistake(place, f"This is not Python: {error.msg}.")
    place = default
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(f"{files.folder}/"):
            place = Place(files.place(frame.filename).file, frame.lineno or 1, (frame.colno or 0) + 1)
    return Mistake(place, *sentence(error, views))


def sentence(error: BaseException, views: Views | None = None) -> tuple[str, str]:
    """What is wrong, and what to do, if that is known."""
    if isinstance(error, SparkError):
        return error.text, error.hint
    condition, parameters = _asked(error)
    if condition is None:
        text = plain(str(error))
        return (text if _is_sparks(error) else f"{type(error).__name__}: {text}" if text else type(error).__name__), ""
    name = next(
        (_bare(parameters[key]) for key in ("relationName", "objectName", "routineName") if key in parameters), ""
    )
    if condition == "TABLE_OR_VIEW_NOT_FOUND" and views is not None:
        return views.problem(name) or (f"There is no view {name} here.", "")
    if condition.startswith("UNRESOLVED_COLUMN"):
        there = [_bare(one) for one in parameters.get("proposal", "").split(", ") if one]
        return f"There is no column {name}.", nearest(name, there) if there else ""
    if condition.startswith("UNRESOLVED_ROUTINE"):
        return f"There is no function {name}.", _near_function(name)
    text = plain(str(error))
    if "extra input" in text:
        return text, "A file has one SELECT, and nothing behind it."
    return text, ""


def _asked(error: BaseException) -> tuple[str | None, Mapping[str, str]]:
    ask = getattr(error, "getCondition", None)
    if ask is None:
        return None, {}
    parameters: Mapping[str, str] | None = error.getMessageParameters()  # type: ignore[attr-defined]
    return ask(), parameters or {}


def _is_sparks(error: BaseException) -> bool:
    return hasattr(error, "getCondition")


def _bare(name: str) -> str:
    """The last part of a name in backquotes."""
    parts: list[str] = re.findall(r"`((?:[^`]|``)*)`", name)
    return parts[-1].replace("``", "`") if parts else name


def _near_function(name: str) -> str:
    from pyspark.sql import functions

    names = [one for one in dir(functions) if one.islower() and not one.startswith("_")]
    found = nearest(name, names)
    return found if found.startswith("Did") else ""


def plain(text: str) -> str:
    """A message of Spark's as one line, without condition, plan and trace."""
    text = text.strip()
    end = _REST.search(text)
    text = _SQLSTATE.sub("", _CONDITION.sub("", text[: end.start()] if end else text))
    text = " ".join(text.split())
    text = text if len(text) <= _LIMIT else f"{text[: _LIMIT - 4]} ..."
    return text if not text or text[-1] in ".!?" else f"{text}."
