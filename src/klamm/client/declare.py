"""How a field of `ClientConfig` declares an option: kind, default, bounds and a line of doc.

An option whose value is no text (a callable, for instance) is a plain field with `python` in its metadata.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from klamm.core.options.option import Kind, Value


def option(kind: Kind, default: Value, doc: str, **bounds: Any) -> Any:
    shown = kind is not Kind.PASSWORD  # a config that is printed must give no password away
    return field(default=default, repr=shown, metadata={"kind": kind, "doc": doc, "bounds": bounds})


def time(default: int, doc: str, *, at_least: int = 0) -> Any:
    return option(Kind.INT, default, doc, at_least=at_least)
