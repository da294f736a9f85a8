"""What Spark says, for the person who wrote a pipeline: where it stands in their file, what is wrong, what to do. Pure.

Of a flow that it does not take: its errors have a condition, its parameters, and a line and position in the text that
it was given. The commonest conditions get a sentence of their own; the others keep Spark's, without what only its
developers need. Of a query that has failed: the innermost message, without the traces of Java and Python.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from klamm.spark.errors import SparkError
from klamm.spark.pipelines.code import Files, Views
from klamm.spark.pipelines.mistakes import Mistake, Place
from klamm.spark.pipelines.yaml_lines import nearest

_LIMIT: Final = 600
"""So many characters of a message at most: some have whole query plans in them."""
_AT: Final = re.compile(r"[;(]\s*line (\d+),? pos (\d+)")
_REST: Final = re.compile(
    r"\n+== |;\s*line \d+ pos \d+|\s*\(line \d+, pos \d+\)|;\s*\n"
    r"|\s+If you want to force |\s*(?:JVM|Driver) stacktrace:|\n=== Streaming Query|\n\s*at [\w$.]+[(/]",
    re.DOTALL,
)
"""Where that begins which is for nobody: places, plans, traces of Java, advice to damage one's state."""
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w{5}")
_TRACEBACK: Final = "Traceback (most recent call last):\n"
_CAUSE: Final = "\nCaused by: "
_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: (.*))?$")
_JAVA_ERROR: Final = re.compile(r"^(?:[a-z_][\w$]*\.)+[A-Z][\w$]*: ")
_CALLED: Final = re.compile(r"^An error occurred while calling \S+\s*:\s*")
"""How py4j begins; what it says after that is Java's."""
_JAVA_FRAME: Final = re.compile(r"^\s*at [\w$.]+[(/]")
_FOR_NOBODY: Final = re.compile(r"^\s*at [\w$.]+[(/]|^\s*\.\.\. \d+ more|^WARNING: Using incubator modules")
_HEAP: Final = "-Xmx"
_MEMORY: Final = "spark.driver.memory"
_OTHER_STATE: Final = (
    "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]",
    "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE]",
    "[STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE]",
    "[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION]",
    "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA]",
    "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY]",
)
_NO_MODULE: Final = "No module named "
_DATA_LOSS: Final = "failOnDataLoss=false"
_OTHER_INPUTS: Final = re.compile(r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\]")
"""To Spark this is a broken assertion, and no error with a condition."""


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
    """Also what py4j could not make an error of PySpark's of."""
    return hasattr(error, "getCondition") or type(error).__module__.startswith("py4j.")


def _bare(name: str) -> str:
    """The last part of a name in backquotes."""
    parts: list[str] = re.findall(r"`((?:[^`]|``)*)`", name)
    return parts[-1].replace("``", "`") if parts else name


def _near_function(name: str) -> str:
    from pyspark.sql import functions

    names = [one for one in dir(functions) if one.islower() and not one.startswith("_")]
    found = nearest(name, names)
    return found if found.startswith("Did") else ""


def innermost(messages: list[str]) -> str:
    """Of a chain of causes, the outermost first: the deepest one that says something."""
    for message in reversed(messages):
        if told := plain(message):
            return told
    return "Spark does not say why."


def failure(messages: list[str], checkpoint: str) -> tuple[str, str]:
    """What a query has failed of, and what to do about it, where that is known."""
    anew = f"Change that back, or remove the folder {checkpoint} to begin anew."
    if any(condition in message for message in messages for condition in _OTHER_STATE):
        return "What it remembers does not fit what it does now.", anew
    counts = next((found for found in map(_OTHER_INPUTS.search, messages) if found), None)
    if counts is not None:
        inputs = "1 input" if counts[1] == "1" else f"{counts[1]} inputs"
        return f"It read {inputs} when its checkpoint was made, and is to read {counts[2]} now.", anew
    told = innermost(messages)
    if _NO_MODULE in told:
        return told, "If it is a file of the pipeline, import it at the top of the other, and not within a function."
    return told, f"Its checkpoint is the folder {checkpoint}." if _DATA_LOSS in told else ""


def bad_setting(settings: Iterable[str], text: str, log: str) -> tuple[str, str] | None:
    """Which of these settings Spark could not be started with, and what it says of it: in its error, or, if there was
    no Java yet that could tell, in the log."""
    heap = next((line.strip() for line in log.split("\n") if _HEAP in line), None)
    if heap is not None and _MEMORY in settings:
        return _MEMORY, plain(heap)
    named = next((name for name in settings if re.search(rf"{re.escape(name)}(?![\w.])", text)), None)
    return None if named is None else (named, plain(text))


def without_traces(log: str) -> str:
    """What a log says, for somebody who has not asked for a trace."""
    return "\n".join(line for line in log.split("\n") if line.strip() and not _FOR_NOBODY.match(line))


def plain(text: str) -> str:
    """A message as one line, without condition, plan and traces; of several errors the one that caused the others."""
    text = text.replace("\r", "").strip()
    told = _of_traceback(text.rpartition(_TRACEBACK)[2].split("\n")) if _TRACEBACK in text else ""
    if not told:
        told = text.rpartition(_CAUSE)[2]
        end = _REST.search(told)
        told = told[: end.start()] if end else told
    told = _SQLSTATE.sub("", _CONDITION.sub("", _JAVA_ERROR.sub("", _CALLED.sub("", told))))
    told = " ".join(told.split())
    told = told if len(told) <= _LIMIT else f"{told[: _LIMIT - 4]} ..."
    return told if not told or told[-1] in ".!?" else f"{told}."


def _of_traceback(lines: list[str]) -> str:
    """The first line that is not indented says which error it was; what follows up to an empty line belongs to it."""
    for i, line in enumerate(lines):
        found = _PYTHON_ERROR.match(line)
        if found is None or line.startswith((" ", "\t")):
            continue
        more = []
        for other in lines[i + 1 :]:
            if not other.strip() or _JAVA_FRAME.match(other):
                break
            more.append(other.strip())
        return " ".join([found[1] or line, *more])
    return ""
