"""Long work on the loop, in slices: a generator that yields where somebody else may have a turn, and returns what came
of it. Whoever runs it decides whether there are turns at all, so the work itself stays free of `async`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

R = TypeVar("R")

Sliced: TypeAlias = Generator[None, None, R]


def at_once(work: Sliced[R]) -> R:
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result


async def in_slices(work: Sliced[R]) -> R:
    """The loop gets its turn at every yield; work that never yields is done when this is first awaited."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result
        await asyncio.sleep(0)
