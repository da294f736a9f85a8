"""What is wrong in a pipeline's files, and where. Pure.

A mistake is for the person who wrote the file: one sentence that says what is wrong, and one that says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Place:
    """A place in a file of a pipeline; lines and columns are counted from 1."""

    file: str
    """As whoever named the folder would write it: `activity/pipeline.yml`."""
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, order=True)
class Mistake:
    place: Place
    text: str
    hint: str = ""
    """What to do. It may be empty where the text says it all."""

    @property
    def file(self) -> str:
        return self.place.file

    @property
    def line(self) -> int:
        return self.place.line

    @property
    def column(self) -> int:
        return self.place.column

    def __str__(self) -> str:
        return f"{self.place}: {self.text}{' ' if self.hint else ''}{self.hint}"


class Mistakes(Exception):
    """All that was found, in the order of the files and lines. Its text has one line for each."""

    def __init__(self, found: Iterable[Mistake]) -> None:
        self.found = tuple(sorted(set(found)))
        super().__init__("\n".join(map(str, self.found)))
