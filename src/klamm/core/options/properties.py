"""Java's `.properties` format, in which Kafka keeps its options."""

from __future__ import annotations

from collections.abc import Iterator

from klamm.core.options.option import OptionError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """Names and values in the order of the file; of a name given twice the last counts. As in Java, blanks at the end
    of a line belong to the value; options other than passwords drop them."""
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name, value = _split(line, number)
        if not name:
            raise OptionError(f"line {number} has a value but no name: {line.strip()!r}")
        found[name] = value
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blanks, continued ones joined, each with the number of its first."""
    joined, start = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANK)
        if not start:
            if not line or line[0] in "#!":
                continue
            start = number
        joined += line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:  # an odd number of backslashes: the last one continues
            joined = joined[:-1]
            continue
        yield start, joined
        joined, start = "", 0
    if start and joined:
        yield start, joined


def _split(line: str, number: int) -> tuple[str, str]:
    name: list[str] = []
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        char, at = _char(line, at, number)
        name.append(char)
    while at < len(line) and line[at] in _BLANK:
        at += 1
    if at < len(line) and line[at] in "=:":
        at += 1
    while at < len(line) and line[at] in _BLANK:
        at += 1
    value: list[str] = []
    while at < len(line):
        char, at = _char(line, at, number)
        value.append(char)
    return "".join(name), "".join(value)


def _char(line: str, at: int, number: int) -> tuple[str, int]:
    """One character, unescaped, and the place after it."""
    if line[at] != "\\" or at + 1 == len(line):
        return line[at], at + 1
    code = line[at + 1]
    if code != "u":
        return _ESCAPES.get(code, code), at + 2
    digits = line[at + 2 : at + 6]
    try:
        if len(digits) < 4:
            raise ValueError
        return chr(int(digits, 16)), at + 6
    except ValueError:
        raise OptionError(f"line {number}: \\u needs four hexadecimal digits") from None
