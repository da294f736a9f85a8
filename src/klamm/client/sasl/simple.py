"""The mechanisms in which the client says everything at once: PLAIN (RFC 4616) and OAUTHBEARER (RFC 7628, KIP-342)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from klamm.client.errors import AuthenticationFailed, ConfigError

_SEPARATOR: Final = b"\x01"
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


class Plain:
    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        if "\0" in username + password:
            raise ConfigError("A user name or password for PLAIN cannot have a zero byte in it.")
        self._said = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._said

    def next(self, said: bytes) -> None:
        return None


class OAuthBearer:
    """A broker that refuses a token says why in a message of its own, which has to be acknowledged before it ends."""

    name = "OAUTHBEARER"

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        if not _TOKEN.fullmatch(token):
            raise AuthenticationFailed("the token has characters in it that no token has, or is empty")
        self._said = [b"n,,", b"auth=Bearer " + token.encode(), b"", b""]
        for key, value in (extensions or {}).items():
            if key == "auth" or not _EXTENSION_NAME.fullmatch(key) or not _EXTENSION_VALUE.fullmatch(value):
                raise AuthenticationFailed(f"{key!r} cannot be an extension of a token")
            self._said.insert(-2, f"{key}={value}".encode())

    def first(self) -> bytes:
        return _SEPARATOR.join(self._said)

    def next(self, said: bytes) -> bytes | None:
        return _SEPARATOR if said else None
