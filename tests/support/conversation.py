"""A conversation with a broker that can be compared with the same one held with another: requests, each with what came
back, told in a way that does not depend on which broker it was.

Ids that a broker makes are named by the order in which they first appear, lists of structs have no order, and texts for
people only say whether they are there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from klamm.client import ClientConfig, Cluster
from klamm.core.env import Env
from klamm.wire.schema import Request, Struct

PAUSE_S = 0.02
ATTEMPTS = 1000

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNTOLD = ("throttle_time_ms", "host", "port")
_FOR_PEOPLE = ("error_message",)


class Conversation:
    """`heard` is what to compare. Each speaker has a connection of its own, as a member of a group has."""

    def __init__(self, bootstrap: str, env: Env) -> None:
        self.heard: list[tuple[str, object]] = []
        self._bootstrap = bootstrap
        self._env = env
        self._speakers: dict[str, Cluster] = {}
        self._names: dict[str, str] = {}

    async def close(self) -> None:
        for cluster in self._speakers.values():
            await cluster.close()

    async def ask(self, speaker: str, request: Request, version: int | None = None) -> Any:
        """The answer, of which nothing is noted."""
        if speaker not in self._speakers:
            config = ClientConfig.from_mapping({"bootstrap.servers": self._bootstrap, "client.id": speaker})
            self._speakers[speaker] = await Cluster.connect(config, self._env)
        return await self._speakers[speaker].request(request, version=version, node=1)

    async def tell(self, what: str, speaker: str, request: Request, version: int | None = None) -> Any:
        """Ask, and note the answer."""
        answer = await self.ask(speaker, request, version)
        self.note(what if version is None else f"v{version}: {what}", answer)
        return answer

    async def until(self, speaker: str, request: Request, is_there: Callable[[Any], bool]) -> Any:
        """The first answer that will do."""
        for _ in range(ATTEMPTS):
            answer = await self.ask(speaker, request)
            if is_there(answer):
                return answer
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"{request} is never answered as expected, but: {answer}")

    def note(self, what: str, answer: object) -> None:
        self.heard.append((what, self._told(answer)))

    def call(self, found: bytes, name: str) -> None:
        """An id that the broker has made."""
        self._names[found.hex()] = name

    def _told(self, value: Any, field: str = "") -> Any:
        if field in _FOR_PEOPLE:
            return bool(value)
        if isinstance(value, Struct):
            fields = [name for name in dir(value) if not name.startswith("_") and name not in _UNTOLD]
            return {name: self._told(getattr(value, name), name) for name in fields}
        if isinstance(value, list):
            told = [self._told(one) for one in value]
            return sorted(told, key=str) if value and isinstance(value[0], Struct) else told
        if isinstance(value, str):
            return _UUID.sub(lambda found: self._names.setdefault(found[0], f"<{len(self._names)}>"), value)
        if isinstance(value, bytes | bytearray | memoryview):
            return self._names.get(bytes(value).hex(), bytes(value))
        return value
