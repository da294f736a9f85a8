"""Which names a topic may have: Kafka's rules, because names become folders and metrics."""

from __future__ import annotations

from klamm.metadata.image import Image, fold_name

MAX_NAME_LENGTH = 249
"""With a partition number behind it, it must fit into a file name of 255."""

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def problem_with_name(name: str) -> str | None:
    """Why a topic cannot have this name; None if it can."""
    if not name:
        return "a topic needs a name"
    if name in (".", ".."):
        return f"{name!r} cannot be the name of a topic"
    if len(name) > MAX_NAME_LENGTH:
        return f"the name has {len(name)} characters, at most {MAX_NAME_LENGTH} are allowed"
    if not _LEGAL.issuperset(name):
        return f"{name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def is_valid_topic_name(name: str) -> bool:
    return problem_with_name(name) is None


def colliding_name(image: Image, name: str) -> str | None:
    """A topic that differs from this name only in `.` and `_`, if there is one."""
    folded = fold_name(name)
    return None if folded is None else image.folded_names.get(folded)
