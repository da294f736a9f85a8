"""Tells a story: makes the world of a seed, runs the story in it to its end, and says what it was like.

What the broker logs goes into the trace. Whatever went wrong is raised: a `Violation`, or what a task died of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from klamm.testing.sim.trace import Trace
from klamm.testing.sim.world import World

LIMIT_S: Final = 3600.0
"""Of its own time: whatever hangs for ever is found by it."""


class Story(Protocol):
    async def run(self) -> None: ...


S = TypeVar("S", bound=Story)
T = TypeVar("T")


def tell(seed: int, begin: Callable[[World], S], told: Callable[[S], T], *, trace_into: list[str] | None = None) -> T:
    """Run one seed to its end. `told` says what it was like, for those who want to know that it was not a dull one."""
    with World(seed, trace_into=trace_into) as world:

        async def main() -> S:
            story = begin(world)
            await story.run()
            return story

        with _remarks(world.trace):
            return told(world.run(main(), limit_s=LIMIT_S))


class _Remarks(logging.Handler):
    """Puts what the broker logs into the trace, for those who read it."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace.remark(f"{record.levelname} {record.name}: {self.format(record)}")


@contextmanager
def _remarks(trace: Trace) -> Iterator[None]:
    """What the broker logs goes into the trace, and nowhere else."""
    logger = logging.getLogger("klamm")
    handler, propagate = _Remarks(trace), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
