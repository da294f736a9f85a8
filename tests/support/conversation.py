"""A conversation with a broker that can be compared with the same one held with another: requests, each with what came
back, told in a way that does not depend on which broker it was.

Ids that a broker makes are named by the order in which they first appear, lists of structs have no order, and texts for
people only say whether they are there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from klamm.client import ClientConfig, Cluster
from klamm.core.env import Env
from klamm.core.env.real import real_env
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from klamm.wire.schema import Request, Struct

PAUSE_S = 0.02
ATTEMPTS = 1000

Ids = Mapping[str, bytes]
"""Of topics, by their names."""

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

    async def begin(self, topics: Sequence[str], partitions: int = 3) -> Ids:
        """With these topics, and a coordinator of groups that is found; it may still be loading."""
        wanted = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in topics]
        await self.ask("one", CreateTopicsRequest(topics=wanted, timeout_ms=10_000))
        metadata = await self.until(
            "one",
            MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics]),
            lambda answer: all(not t.error_code and all(p.leader_id >= 0 for p in t.partitions) for t in answer.topics),
        )
        for topic in metadata.topics:
            self._names[topic.topic_id.hex()] = topic.name
        found = FindCoordinatorRequest(key_type=0, coordinator_keys=["nobody"])
        await self.until("one", found, lambda answer: not answer.coordinators[0].error_code)
        return {topic.name: topic.topic_id for topic in metadata.topics}

    def note(self, what: str, answer: object) -> None:
        self.heard.append((what, self._told(answer)))

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


async def heard_by(
    bootstrap: str,
    begin: Callable[[Conversation], Awaitable[Ids]],
    *parts: Callable[[Conversation, Ids], Awaitable[None]],
) -> list[tuple[str, object]]:
    """What a broker says to one part of a conversation after the other."""
    env = real_env()
    talk = Conversation(bootstrap, env)
    try:
        ids = await begin(talk)
        for part in parts:
            await part(talk, ids)
        return talk.heard
    finally:
        await talk.close()
        env.executor.close()
