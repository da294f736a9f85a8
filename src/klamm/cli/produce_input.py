"""What `klamm produce` reads: lines from standard input or files, made into records.

Reading never blocks the loop for long and never needs a thread, which could not be stopped while it waits for a
terminal: pipes and terminals are watched, files just read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from klamm.cli.parsing import UsageError

_CHUNK_BYTES: Final = 256 * 1024
_MAX_TIMESTAMP_MS: Final = 2**63 - 1
MAX_LINE_BYTES: Final = 64 << 20
"""A line is kept in memory until its end is found; a file without any is a mistake."""


class Item(NamedTuple):
    """One record as the user gave it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Shape(NamedTuple):
    """How a line becomes a record."""

    key_separator: bytes | None = None
    json_lines: bool = False
    empty_is_null: bool = False
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None

    def item(self, line: bytes, where: str) -> Item:
        """UsageError names `where` the line is."""
        if self.json_lines:
            return self._from_json(line, where)
        key, value = self.key, line
        if self.key_separator is not None:
            first, found, rest = line.partition(self.key_separator)
            if not found:
                shown = self.key_separator.decode(errors="replace")
                raise UsageError(f"{where} has no key separator {shown!r}: {_shortened(line)}")
            key, value = first, rest
        return Item(self._or_null(key), self._or_null(value), self.headers, self.partition)

    def whole(self, content: bytes) -> Item:
        """A file that is one value."""
        return Item(self.key, self._or_null(content), self.headers, self.partition)

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if self.empty_is_null and not data else data

    def _from_json(self, line: bytes, where: str) -> Item:
        try:
            given = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{where} is no JSON: {error}") from None
        if not isinstance(given, dict) or not ("value" in given or "key" in given):
            raise UsageError(f'{where} is no object with "key" or "value": {_shortened(line)}')
        partition, timestamp = given.get("partition", self.partition), given.get("timestamp")
        for name, number in (("partition", partition), ("timestamp", timestamp)):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
                raise UsageError(f"{where}: {name} is not a whole number")
        if timestamp is not None and not 0 <= timestamp <= _MAX_TIMESTAMP_MS:
            raise UsageError(f"{where}: timestamp {timestamp} is not from 0 to {_MAX_TIMESTAMP_MS}")
        key = _bytes_of(given["key"], f"{where}: key") if "key" in given else self.key
        return Item(
            key,
            _bytes_of(given.get("value"), f"{where}: value"),
            (*self.headers, *_headers_of(given.get("headers"), where)),
            self.partition if self.partition is not None else partition,
            timestamp,
        )


def _bytes_of(given: Any, where: str) -> bytes | None:
    """Text is UTF-8, {"base64": "..."} any bytes, null nothing; what else there is in JSON stays JSON."""
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode(errors="surrogatepass")
    if isinstance(given, dict) and list(given) == ["base64"]:
        try:
            return base64.b64decode(given["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise UsageError(f"{where} is not valid base64") from None
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False).encode()


def _headers_of(given: Any, where: str) -> tuple[tuple[str, bytes | None], ...]:
    """An object, or a list of pairs where a name comes twice."""
    pairs = given.items() if isinstance(given, dict) else given or ()
    try:
        headers = tuple((str(name), _bytes_of(value, f"{where}: header {name}")) for name, value in pairs)
    except (TypeError, ValueError):
        raise UsageError(f"{where}: headers are neither an object nor a list of pairs") from None
    for name, _ in headers:
        if any("\ud800" <= char <= "\udfff" for char in name):
            raise UsageError(f"{where}: the name of the header {name!r} is no text")
    return headers


def _shortened(line: bytes) -> str:
    text = line[:60].decode(errors="replace")
    return repr(text + ("…" if len(line) > 60 else ""))


async def lines(fd: int, name: str) -> AsyncIterator[bytes]:
    """The lines of a file descriptor, without their ends; the last may lack one."""
    rest = b""
    async for chunk in _chunks(fd):
        found = (rest + chunk).split(b"\n")
        rest = found.pop()
        if len(rest) > MAX_LINE_BYTES:
            raise UsageError(f"{name} has a line of more than {MAX_LINE_BYTES >> 20} MiB; is it text?")
        for line in found:
            yield line[:-1] if line.endswith(b"\r") else line
    if rest:
        yield rest


async def _chunks(fd: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while True:
        await _readable(loop, fd)
        chunk = os.read(fd, _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def _readable(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    """Until a read would not wait. A plain file is always readable, which is why it cannot be watched."""
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        await asyncio.sleep(0)
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
