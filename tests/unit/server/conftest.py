"""A server on a free port with whatever handler a test wants, and a client that speaks bare frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from klamm.core.env import Env
from klamm.core.env.real import real_env
from klamm.core.options import ListenerSpec
from klamm.server.limits import Limits
from klamm.server.listener import Server


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))

    def send_raw(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def is_cut_off(self) -> bool:
        """Waits for the server to close the connection. False: it sent something instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


class Place:
    """One started server with its clients."""

    def __init__(self, server: Server, port: int, clock: FakeClock) -> None:
        self.server = server
        self.port = port
        self.clock = clock
        self.clients: list[Client] = []

    async def connect(self, port: int | None = None, **options: Any) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", port or self.port, **options))
        self.clients.append(client)
        return client

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0)

    @property
    def connection(self) -> Any:
        """The only connection."""
        (found,) = self.server.shared.connections.values()
        return found


Serve = Callable[..., Awaitable[Place]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    places: list[Place] = []

    async def start(handler: Any, **limits: Any) -> Place:
        env = real_env()
        clock = FakeClock()
        server = Server(Env(clock, env.rng, env.files, env.executor, env.network), Limits(**limits), handler)
        await server.start([ListenerSpec("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT", "127.0.0.1", 0)])
        places.append(Place(server, server.bound["PLAINTEXT"].port, clock))
        return places[-1]

    yield start
    for place in places:
        for client in place.clients:
            await client.close()
        await place.server.stop(grace_s=0.0)
        assert place.server.connections == 0
        assert place.server.shared.in_flight.requests == 0
        assert place.server.shared.in_flight.bytes == 0
        assert place.server.shared.frame_memory.used_bytes == 0
        assert place.server.shared.count.total == 0
    await asyncio.sleep(0)
