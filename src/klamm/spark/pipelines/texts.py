"""The small languages in a `pipeline.yml`: durations, names, patterns, columns. Pure.

A parser gives the text as Spark and Kafka take it, or raises ValueError whose text says what to write instead.
"""

from __future__ import annotations

import keyword
import os
import re
from typing import Final

_UNITS: Final = {
    "ms": "milliseconds",
    "msec": "milliseconds",
    "millis": "milliseconds",
    "millisecond": "milliseconds",
    "s": "seconds",
    "sec": "seconds",
    "secs": "seconds",
    "second": "seconds",
    "m": "minutes",
    "min": "minutes",
    "mins": "minutes",
    "minute": "minutes",
    "h": "hours",
    "hr": "hours",
    "hrs": "hours",
    "hour": "hours",
    "d": "days",
    "day": "days",
    "w": "weeks",
    "week": "weeks",
}
_SPARKS: Final = frozenset(
    word for plural in set(_UNITS.values()) for word in (plural, plural.removesuffix("s"))
)  # what Spark understands
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_FLAGS: Final = re.compile(r"\(\?[a-zA-Z]+\)")
_VIEW: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII | re.IGNORECASE)


def duration(text: str) -> str:
    """A time as Spark writes it: `10 seconds`, `1 hour 30 minutes`."""
    words = " ".join(text.lower().split())
    found = _AMOUNT.findall(words)
    if not found or _AMOUNT.sub("", words).strip():
        raise ValueError("Write a number and a unit: 10 seconds.")
    better = " ".join(f"{amount} {_unit(amount, unit)}" for amount, unit in found)
    if any("." in amount and not unit.startswith("second") for amount, unit in found):
        raise ValueError("Only seconds may have a fraction: use a smaller unit.")
    if all(unit in _SPARKS for _, unit in found):
        return " ".join(f"{amount} {unit}" for amount, unit in found)
    raise ValueError(f"Write {better}." if all(unit in _UNITS for _, unit in found) else "Write 10 seconds, say.")


def _unit(amount: str, unit: str) -> str:
    plural = _UNITS.get(unit, unit)
    return plural.removesuffix("s") if amount == "1" else plural


def topic(text: str) -> str:
    if text in (".", "..") or not _TOPIC.fullmatch(text):
        more = " For several topics, use pattern." if re.search(r"[,*|]", text) else ""
        raise ValueError(f"Names of topics have letters, digits, and . _ - in them, 249 at most.{more}")
    return text


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        more = " All topics are: .*" if text == "*" else ""
        raise ValueError(f"It is wrong at its character {(error.pos or 0) + 1}: {error.msg}.{more}") from None
    return text


def whole_names(pattern: str) -> str:
    """The same pattern for whole names: Spark is content with a part. Flags, as in (?i), have to stay in front."""
    flags = _FLAGS.match(pattern)
    rest = 0 if flags is None else flags.end()
    return rf"{pattern[:rest]}\A(?:{pattern[rest:]})\Z"


def view(text: str) -> str:
    """A name for SQL and for an argument of a Python function."""
    if not _VIEW.fullmatch(text):
        raise ValueError(f"Use letters, digits and _: {re.sub(r'[^A-Za-z0-9_]', '_', text)}.")
    if keyword.iskeyword(text) or text == "spark":
        raise ValueError(f"{text} is taken in Python. Use another.")
    return text


def pipeline_name(text: str) -> str:
    """It becomes part of names of groups, transactions and folders."""
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise ValueError("Use letters, digits, and . _ - in it.")
    return text


def whole_path(folder: str, path: str) -> str:
    """As it is if it is a URL; else seen from the pipeline's folder."""
    return path if _URL.match(path) else os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def columns(ddl: str) -> dict[str, str] | None:
    """The names (in lower case) and types of a schema as DDL, as far as they can be seen without Spark; None if not."""
    parts = [""]
    depth = 0
    quoted = ""
    for letter in ddl:
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "`'\"":
            quoted = letter
        else:
            depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    found = [re.match(r"\s*(?:`([^`]+)`|(\w+))\s*:?\s*(\w+)", part) for part in parts]
    if quoted or depth or not all(found):
        return None
    return {(one[1] or one[2]).lower(): one[3].lower() for one in found if one}
