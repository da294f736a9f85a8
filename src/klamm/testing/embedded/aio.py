"""`AsyncBroker`: the same broker for asyncio. Whatever waits for the child does so in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import TracebackType

from klamm.core.errors import ErrorCode
from klamm.testing.embedded.broker import Broker
from klamm.testing.embedded.values import OptionValue, StoredRecord


class AsyncBroker:
    """What `Broker` is, with coroutines for everything that talks to the child."""

    def __init__(self, broker: Broker) -> None:
        self.sync = broker
        """The broker underneath, for code that is not async."""

    # -- life

    async def __aenter__(self) -> AsyncBroker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """As `Broker.start`. If the task is cancelled meanwhile, the broker is ended again."""
        starting = asyncio.ensure_future(asyncio.to_thread(self.sync.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            if not starting.cancelled():
                starting.exception()  # it is the cancellation that counts
            await self.close()
            raise

    async def stop(self) -> None:
        await asyncio.to_thread(self.sync.stop)

    async def kill(self) -> None:
        await asyncio.to_thread(self.sync.kill)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def close(self) -> None:
        await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(self.sync.close)))

    # -- where and what it is

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, for a client's `bootstrap_servers`."""
        return self.sync.bootstrap

    @property
    def host(self) -> str:
        return self.sync.host

    @property
    def port(self) -> int:
        return self.sync.port

    @property
    def pid(self) -> int:
        return self.sync.pid

    async def is_running(self) -> bool:
        return await asyncio.to_thread(lambda: self.sync.is_running)

    @property
    def data(self) -> str:
        return self.sync.data

    @property
    def log(self) -> str:
        return self.sync.log

    def __repr__(self) -> str:
        return repr(self.sync).replace("Broker", "AsyncBroker", 1)

    # -- topics and records

    async def create_topic(self, name: str, partitions: int = 1, **configs: OptionValue) -> None:
        await asyncio.to_thread(self.sync.create_topic, name, partitions, **configs)

    async def topics(self) -> dict[str, int]:
        return await asyncio.to_thread(self.sync.topics)

    async def records(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        return await asyncio.to_thread(self.sync.records, topic, partition)

    # -- faults

    async def pause(self) -> None:
        await asyncio.to_thread(self.sync.pause)

    async def resume(self) -> None:
        await asyncio.to_thread(self.sync.resume)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """`async with broker.paused():`"""
        await self.pause()
        try:
            yield
        finally:
            await self.resume()

    async def refuse_connections(self) -> None:
        await asyncio.to_thread(self.sync.refuse_connections)

    async def accept_connections(self) -> None:
        await asyncio.to_thread(self.sync.accept_connections)

    @asynccontextmanager
    async def unreachable(self) -> AsyncIterator[None]:
        """`async with broker.unreachable():`"""
        await self.refuse_connections()
        try:
            yield
        finally:
            await self.accept_connections()

    async def drop_connections(self) -> int:
        return await asyncio.to_thread(self.sync.drop_connections)

    async def delay(self, seconds: float, api: str | int | None = None) -> None:
        await asyncio.to_thread(self.sync.delay, seconds, api)

    async def fail(self, api: str | int, error: ErrorCode | str | int, times: int | None = 1) -> None:
        await asyncio.to_thread(self.sync.fail, api, error, times)

    async def drop_after(self, api: str | int = "Produce", times: int | None = 1) -> None:
        await asyncio.to_thread(self.sync.drop_after, api, times)

    async def clear_faults(self) -> None:
        await asyncio.to_thread(self.sync.clear_faults)

    async def request_count(self, api: str | int) -> int:
        return await asyncio.to_thread(self.sync.request_count, api)

    async def faults_left(self, api: str | int) -> int:
        return await asyncio.to_thread(self.sync.faults_left, api)

    async def advance_time(self, by: float | timedelta) -> None:
        await asyncio.to_thread(self.sync.advance_time, by)
