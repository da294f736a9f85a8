"""Subscriptions by regular expression: whether one can be used, and which topics it stands for.

The engine is RE2, whose syntax Kafka's clients expect, and whose time is linear in its input: an expression comes from
anybody who may join a group. Compiling one is not linear, so its length is bounded, which Kafka does not do: at 32,767
characters the worst took two seconds, at 4,096 none takes more than 0.1 s. Its module is imported with the first
expression (7 ms).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from klamm.core.slices import Sliced

MAX_LENGTH = 4096
"""Characters of an expression; a topic name has 249 at most."""
MAX_PROGRAM_BYTES = 1 << 20
"""What an expression may become when it is compiled, and what matching it may keep in memory."""
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
    compiled = _compile(expression)
    return compiled if isinstance(compiled, str) else None


def resolving(expressions: Iterable[str], topics: Collection[str]) -> Sliced[dict[str, frozenset[str]]]:
    """The topics whose whole name each expression matches, in slices. One that cannot be used matches none: it was
    checked when it came, but perhaps by another version."""
    names = [(name, name.encode()) for name in topics]
    found: dict[str, frozenset[str]] = {}
    for expression in expressions:
        compiled = _compile(expression)
        matched: list[str] = []
        for start in range(0, 0 if isinstance(compiled, str) else len(names), NAMES_PER_SLICE):
            matched += [name for name, raw in names[start : start + NAMES_PER_SLICE] if compiled.fullmatch(raw)]
            yield
        found[expression] = frozenset(matched)
    return found


def _compile(expression: str) -> Any:
    """Something with `fullmatch`, for bytes; or a str that says why there is none."""
    import re2

    if len(expression) > MAX_LENGTH:
        return f"it has more than {MAX_LENGTH} characters"
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        return re2.compile(expression.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
