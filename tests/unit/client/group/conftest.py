"""Readers that are gone when a test is over."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the helper module; test modules are imported by path

from group_readers import Reader

from klamm.core.env.real import real_env

Start = Callable[..., Awaitable[Reader]]


@pytest.fixture
async def reader() -> AsyncIterator[Start]:
    """`await reader(bootstrap, group_protocol="consumer")` is a reader with a member."""
    readers: list[Reader] = []
    env = real_env()

    async def start(bootstrap: str, **options: object) -> Reader:
        readers.append(await Reader.start(bootstrap, env, **options))
        return readers[-1]

    yield start
    for one in readers:
        if not one._app.done():
            await one.vanish()
    env.executor.close()
