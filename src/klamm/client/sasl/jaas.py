"""`sasl.jaas.config`, as Java's clients have it: a login module, `required`, options in quotes, a semicolon.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

Errors never show what is in it: it holds passwords.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from klamm.client.errors import ConfigError

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(r'\s*(?:(?P<mark>[=;])|"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<word>[^\s=;"]+))', re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


class Jaas(NamedTuple):
    """`module` is the name of the login module without its package."""

    module: str
    options: dict[str, str]


class _Token(NamedTuple):
    text: str
    is_mark: bool


def parse(text: str) -> Jaas:
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[0].is_mark or tokens[-1] != _Token(";", True):
        raise _unreadable("it is not: MODULE required NAME=VALUE ... ;")
    if tokens[1].text.lower() not in _FLAGS:
        raise _unreadable("after the login module comes `required`")
    rest = tokens[2:-1]
    options: dict[str, str] = {}
    for i in range(0, len(rest), 3):
        some = rest[i : i + 3]
        if [token.is_mark for token in some] != [False, True, False] or some[1].text != "=":
            raise _unreadable("options are NAME=VALUE, with spaces between them and one semicolon at the end")
        options[some[0].text] = some[2].text
    return Jaas(tokens[0].text.rpartition(".")[2], options)


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position, text = 0, text.strip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _unreadable("a quotation mark has no other one")
        if found["mark"]:
            tokens.append(_Token(found["mark"], True))
        elif found["quoted"] is not None:
            tokens.append(_Token(re.sub(r"\\(.)", _unescape, found["quoted"], flags=re.DOTALL), False))
        else:
            tokens.append(_Token(found["word"], False))
        position = found.end()
    return tokens


def _unescape(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])


def _unreadable(why: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config cannot be read: {why}.",
        'For instance: org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";',
    )
