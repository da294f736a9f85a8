"""Subscriptions by regular expression: whether one can be used, and which topics it stands for.

The engine is RE2, whose syntax Kafka's clients expect, and whose time is linear in its input: an expression comes from
anybody who may join a group. What one may cost is bounded in `core/regex`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from klamm.core import regex

if TYPE_CHECKING:
    from klamm.core.slices import Sliced

NAMES_PER_SLICE = 50
"""Topic names matched with one expression before others may have a turn: 0.2 ms for most."""


class ResolveRegexes(NamedTuple):
    """An effect: find the topics of these expressions, and tell the machine with `ConsumerGroups.resolved`."""

    group_id: str
    expressions: tuple[str, ...]
    may_see: Callable[[str], bool]
    """Whether the member that asked may know of a topic: others are left out."""


def problem_with(expression: str) -> str | None:
    """Why it cannot be used."""
    compiled = regex.compiled(expression)
    return compiled if isinstance(compiled, str) else None


def resolving(expressions: Iterable[str], topics: Collection[str]) -> Sliced[dict[str, frozenset[str]]]:
    """The topics whose whole name each expression matches, in slices. One that cannot be used matches none: it was
    checked when it came, but perhaps by another version."""
    names = [(name, name.encode()) for name in topics]
    found: dict[str, frozenset[str]] = {}
    for expression in expressions:
        compiled = regex.compiled(expression)
        matched: list[str] = []
        for start in range(0, 0 if isinstance(compiled, str) else len(names), NAMES_PER_SLICE):
            matched += [name for name, raw in names[start : start + NAMES_PER_SLICE] if compiled.fullmatch(raw)]
            yield
        found[expression] = frozenset(matched)
    return found
