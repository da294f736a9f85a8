"""A broker made of plain functions: it answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from klamm import wire
from klamm.wire import frames
from klamm.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from klamm.wire.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

TOPIC_ID = bytes(range(16))


class HangUp(Exception):
    """Raised by an answer: close the connection instead of answering."""


Answer = Callable[[Any, int], Any]


class FakeBroker:
    """`answers` has a function of (request, version) for each request class; a `leaders` entry is a partition's
    leader. An answer may be a coroutine function, raise `HangUp`, or be bytes to send as they are."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.port = 0
        self.asked: list[Any] = []
        self.versions: dict[type[wire.Request], tuple[int, int]] = {}
        self.answers: dict[type[wire.Request], Answer] = {ApiVersionsRequest: self._api_versions}
        self.peers: list[FakeBroker] = [self]
        self.leaders: dict[tuple[str, int], int] = {}
        self.replicas: list[int] = []  # of every partition; none: its leader alone
        self.epoch = 0
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.on(MetadataRequest, self._metadata)

    def on(self, request: type[wire.Request], answer: Answer, versions: tuple[int, int] | None = None) -> None:
        supported = wire.versions_of(request)
        self.versions[request] = versions or (supported[0], supported[-1])
        self.answers[request] = answer

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        while self._writers:
            await asyncio.sleep(0)

    def requests(self, kind: type[wire.Request]) -> list[Any]:
        return [message for message in self.asked if isinstance(message, kind)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                await self._respond(await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError, HangUp):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _respond(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        head = frames.decode_request_header(frame)
        kind = wire.request_type(head.api_key)
        message = wire.decode(kind, frame, head.api_version, head.body)
        self.asked.append(message)
        answer = self.answers[kind](message, head.api_version)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, bytes):
            writer.write(answer)
        elif answer is not None:
            parts = frames.encode_response(answer, head.api_key, head.api_version, head.correlation_id)
            writer.write(b"".join(parts))

    def _api_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        keys = [
            ApiVersion(api_key=kind.__api_key__, min_version=low, max_version=high)
            for kind, (low, high) in self.versions.items()
        ]
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        topics: dict[str, MetadataResponseTopic] = {}
        for (name, index), leader in self.leaders.items():
            if request.topics is not None and name not in [topic.name for topic in request.topics]:
                continue
            topic = topics.setdefault(name, MetadataResponseTopic(name=name, topic_id=TOPIC_ID, partitions=[]))
            topic.partitions.append(
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self.epoch,
                    replica_nodes=self.replicas or [leader],
                    isr_nodes=self.replicas or [leader],
                )
            )
        for asked in request.topics or ():
            if asked.name not in topics:
                topics[asked.name] = MetadataResponseTopic(name=asked.name, error_code=3, partitions=[])
        brokers = [MetadataResponseBroker(node_id=b.node_id, host="127.0.0.1", port=b.port) for b in self.peers]
        return MetadataResponse(brokers=brokers, cluster_id="fake", controller_id=1, topics=list(topics.values()))
