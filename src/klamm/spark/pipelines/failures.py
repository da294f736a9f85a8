"""What went wrong in a query, in one sentence: the innermost message, without the traces of Java and Python. Pure."""

from __future__ import annotations

import re
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_][\w]*\.)*[A-Z]\w*(?:: (.*))?$")
_JAVA_ERROR: Final = re.compile(r"^(?:Caused by: )?(?:[a-z_][\w$]*\.)+[A-Z][\w$]*: ")
_CONDITION: Final = re.compile(r"^\[[A-Z][A-Z0-9_.]*\] ")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w{5}")
_JAVA_FRAME: Final = re.compile(r"^\s*at [\w$.]+[(/]")
_OTHER: Final = ("Driver stacktrace:", "JVM stacktrace:", "=== Streaming Query", "== SQL ==")
_LIMIT: Final = 1000
"""So many characters at most: some messages have whole query plans in them."""

_OTHER_STATE: Final = (
    "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]",
    "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE]",
    "[STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE]",
    "[STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION]",
    "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA]",
)


def innermost(messages: list[str]) -> str:
    """Of a chain of causes, the outermost first: the deepest one that says something."""
    for message in reversed(messages):
        if told := plain(message):
            return told
    return "Spark does not say why."


def hint_for(messages: list[str], checkpoint: str) -> str:
    """What to do about it, where that is known."""
    if any(condition in message for message in messages for condition in _OTHER_STATE):
        return (
            f"What the query remembers, in {checkpoint}, does not fit what it does now. Change that back, or remove "
            "this folder to begin anew."
        )
    return ""


def plain(text: str) -> str:
    """A message without traces, names of classes and conditions."""
    lines = text.replace("\r", "").split("\n")
    starts = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    if starts:
        told = _of_traceback(lines[starts[-1] + 1 :])
        if told:
            return _short(told)
    caused = [i for i, line in enumerate(lines) if line.startswith("Caused by: ")]
    return _short(_without_frames(lines[caused[-1] if caused else 0 :]))


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
        told = " ".join([found[1] or line, *more])
        return told
    return ""


def _without_frames(lines: list[str]) -> str:
    kept: list[str] = []
    for line in lines:
        if _JAVA_FRAME.match(line) or line.startswith(_OTHER):
            break
        kept.append(line.strip())
    return " ".join(line for line in kept if line)


def _short(text: str) -> str:
    text = _JAVA_ERROR.sub("", text)
    text = _SQLSTATE.sub("", _CONDITION.sub("", text)).strip()
    text = text.partition("; line ")[0] if "; line " in text and " pos " in text else text
    return text if len(text) <= _LIMIT else text[: _LIMIT - 4] + " ..."
