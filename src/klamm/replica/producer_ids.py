"""Producer ids for this broker to hand out: blocks of them come from the controller, through the metadata log.

A block belongs to one broker for ever; what is left of it at a restart is never used, so an id is never given twice.
The next block is asked for before the current one is used up, so that nobody waits for the metadata log in between.
This module must never invent an id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from klamm.controller import ProducerIdBlock
from klamm.core.errors import BrokerError

PREFETCH_LEFT = 100  # ids left at which the next block is asked for; a block has 1000


class ProducerIds:
    __slots__ = ("_allocate", "_asking", "_end", "_next", "_spare")

    def __init__(self, allocate: Callable[[], Coroutine[Any, Any, ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._spare: ProducerIdBlock | None = None
        self._asking: asyncio.Task[None] | None = None

    async def take(self) -> int:
        """The next id. BrokerError if the controller has none to give just now."""
        while (taken := self.take_now()) is None:
            # Shielded: one client that goes away must not take the block from the others.
            await asyncio.shield(self._ask())
        return taken

    @property
    def at_hand(self) -> bool:
        """Whether `take_now` has an id to give."""
        return self._next != self._end or self._spare is not None

    async def have(self) -> None:
        """Returns when there is one at hand. BrokerError as above."""
        while not self.at_hand:
            await asyncio.shield(self._ask())

    def take_now(self) -> int | None:
        """The next id, or None if there is none at hand: then it has been asked for."""
        if self._next == self._end:
            if self._spare is None:
                self._ask()
                return None
            _, first, size = self._spare
            self._next, self._end, self._spare = first, first + size, None
        taken = self._next
        self._next += 1
        if self._end - self._next <= PREFETCH_LEFT and self._spare is None:
            self._ask()
        return taken

    def _ask(self) -> asyncio.Task[None]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._fetch_block())
            self._asking.add_done_callback(_retrieve)
        return self._asking

    async def _fetch_block(self) -> None:
        block = await self._allocate()
        if block.error:
            raise BrokerError(block.error)
        self._spare = block


def _retrieve(task: asyncio.Task[None]) -> None:
    """A refused prefetch is asked for again when an id is needed; anything else is a bug and surfaces."""
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, BrokerError):
        raise error
