"""How results are shown: tables for people, JSON for scripts. Results go to standard output, remarks to standard error.

Tables are plain text without frames or colours, for `grep` too; JSON is one document, its keys in
snake_case, its numbers as numbers, and what is not known is null.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

_GAP: Final = "  "
_NUMBER: Final = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?[A-Z%]?( [A-Za-z/]+)?")  # 12  1,234  3.4M  1.5 MiB


def add_output(parser: argparse.ArgumentParser, *more: str, help_more: str = "") -> None:
    """`-o table|json`, and other formats where a verb has them."""
    choices = ["table", "json", *more]
    parser.add_argument("-o", "--output", choices=choices, default="table", metavar="FORMAT",
                        help=f"{', '.join(choices)} (default: table){help_more}")  # fmt: skip


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))


def remark(text: str) -> None:
    """Something a person wants to know and a script does not want in its input."""
    print(text, file=sys.stderr)


@contextmanager
def while_somebody_reads(out: IO[Any]) -> Iterator[None]:
    """For a coroutine that writes now and then: BrokenPipeError as soon as the reader of a pipe is gone (`| head`), not
    only at the next write, which may never come."""
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    gone = False

    def hang_up() -> None:
        nonlocal gone
        gone = True
        loop.remove_reader(out)
        task.cancel()

    watched = _is_pipe(out)
    if watched:
        loop.add_reader(out, hang_up)  # nothing ever comes out of this end of a pipe but the news that it is broken
    try:
        yield
    except asyncio.CancelledError:
        if gone:
            raise BrokenPipeError from None
        raise
    finally:
        if watched:
            loop.remove_reader(out)


def _is_pipe(out: IO[Any]) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(out.fileno()).st_mode)
    except OSError:
        return False


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, indent: str = "") -> None:
    for line in table(headers, rows):
        print(indent + line)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of columns two blanks apart; a column of numbers is set to the right, an empty one left out."""
    cells = [[_cell(value) for value in row] for row in rows]
    kept = [i for i in range(len(headers)) if not cells or any(row[i] for row in cells)]
    columns = [[headers[i], *(row[i] or "-" for row in cells)] for i in kept]
    padded = []
    for column in columns:
        width = max(map(len, column))
        right = len(column) > 1 and all(_is_number(cell) for cell in column[1:])
        padded.append([cell.rjust(width) if right else cell.ljust(width) for cell in column])
    return [_GAP.join(line).rstrip() for line in zip(*padded, strict=True)]


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line, the values below each other; empty ones are left out."""
    shown = [(name, _cell(value)) for name, value in fields]
    shown = [(name, text) for name, text in shown if text]
    width = max((len(name) for name, _ in shown), default=0)
    for name, text in shown:
        print(f"{name}:{' ' * (width - len(name))}  {text}")


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    return str(value)


def _is_number(cell: str) -> bool:
    return cell == "-" or _NUMBER.fullmatch(cell) is not None
