"""How `klamm consume` shows a record: as a format string says (kcat's letters), or as JSON.

A format is taken apart once; what is left for each record is a list of small functions. Output is bytes, because keys
and values are: nothing is decoded that does not have to be.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from klamm.cli.parsing import UsageError

if TYPE_CHECKING:
    from klamm.records.consuming import ConsumerRecord as Record
    from klamm.records.record import Headers

Show: TypeAlias = "Callable[[str, int, Record], bytes]"

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)|([%\\])$", re.DOTALL)
_int32 = Struct(">i").pack


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(headers: Headers) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers)


_LETTERS: Final[dict[str, Show]] = {
    "t": lambda topic, partition, record: topic.encode(),
    "p": lambda topic, partition, record: b"%d" % partition,
    "o": lambda topic, partition, record: b"%d" % record.offset,
    "k": lambda topic, partition, record: record.key or b"",
    "K": lambda topic, partition, record: b"%d" % _size(record.key),
    "s": lambda topic, partition, record: record.value or b"",
    "S": lambda topic, partition, record: b"%d" % _size(record.value),
    "R": lambda topic, partition, record: _int32(_size(record.value)),
    "T": lambda topic, partition, record: b"%d" % record.timestamp,
    "h": lambda topic, partition, record: _headers(record.headers),
    "%": lambda topic, partition, record: b"%",
}


def format_string(text: str) -> Show:
    """%t topic, %p partition, %o offset, %k key, %s value, %T time, %h headers; %K and %S sizes; \\n, \\t, \\xHH."""
    parts: list[bytes | Show] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None, "every character is some token"
        at = found.end()
        letter, code, escape, plain, cut = found.groups()
        if letter is not None:
            if letter not in _LETTERS:
                raise UsageError(f"%{letter} is no part of a format; there are {', '.join(f'%{x}' for x in _LETTERS)}")
            parts.append(_LETTERS[letter])
        elif code is not None:
            parts.append(bytes((int(code, 16),)))
        elif escape is not None:
            parts.append(_ESCAPES.get(escape, ("\\" + escape).encode()))
        else:
            parts.append((plain or cut).encode(errors="surrogateescape"))
    shows: list[Show] = [_constant(part) if isinstance(part, bytes) else part for part in parts]
    return lambda topic, partition, record: b"".join([show(topic, partition, record) for show in shows])


def _constant(text: bytes) -> Show:
    return lambda topic, partition, record: text


def value_lines(topic: str, partition: int, record: Record) -> bytes:
    return (record.value or b"") + b"\n"


def key_value_lines(separator: bytes) -> Show:
    return lambda topic, partition, record: (record.key or b"") + separator + (record.value or b"") + b"\n"


def json_lines(topic: str, partition: int, record: Record) -> bytes:
    """One object a line. `klamm produce --json` takes the same."""
    shown = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": text_or_base64(record.key),
        "value": text_or_base64(record.value),
        "headers": [[name, text_or_base64(value)] for name, value in record.headers],
    }
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def text_or_base64(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
