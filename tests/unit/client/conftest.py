"""Fake brokers and clusters that are gone when a test is over."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the helper modules; test modules are imported by path

from client_broker import FakeBroker
from client_reading import Open

from klamm.aio import Consumer
from klamm.client import ClientConfig, Cluster
from klamm.core.env.real import real_env


@pytest.fixture
async def fake() -> AsyncIterator[Callable[[], Awaitable[FakeBroker]]]:
    """Start fake brokers, which know of each other."""
    brokers: list[FakeBroker] = []

    async def start() -> FakeBroker:
        broker = FakeBroker(len(brokers) + 1)
        await broker.start()
        brokers.append(broker)
        for other in brokers:
            other.peers = list(brokers)
        return broker

    yield start
    for broker in brokers:
        await broker.stop()


Connect = Callable[..., Awaitable[Cluster]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`await connect(bootstrap, **{"retry.backoff.ms": 1})` is a cluster that is closed when the test is over."""
    clusters: list[Cluster] = []
    env = real_env()

    async def to(*where: Any, **options: object) -> Cluster:
        addresses = [place if isinstance(place, str) else f"127.0.0.1:{place.port}" for place in where]
        quick = {"retry.backoff.ms": 1, "reconnect.backoff.ms": 1, "retry.backoff.max.ms": 20}
        config = ClientConfig.from_mapping({"bootstrap.servers": ",".join(addresses), **quick, **options})
        clusters.append(await Cluster.connect(config, env))
        return clusters[-1]

    yield to
    for cluster in clusters:
        await cluster.close()
    env.executor.close()


@pytest.fixture
async def consume() -> AsyncIterator[Open]:
    """`await consume(*brokers, **options)` is a consumer, closed when the test is over."""
    async with AsyncExitStack() as stack:

        async def start(*brokers: FakeBroker, **options: Any) -> Consumer:
            given = {
                "bootstrap_servers": ",".join(f"127.0.0.1:{broker.port}" for broker in brokers),
                "retry_backoff_ms": 1,
                "retry_backoff_max_ms": 20,
                "reconnect_backoff_ms": 1,
                "auto_offset_reset": "earliest",
                "fetch_max_wait_ms": 1,
            }
            return await stack.enter_async_context(Consumer(**{**given, **options}))

        yield start
