"""Producer ids: never one twice, never a wait that could have been avoided."""

from __future__ import annotations

import asyncio

import pytest

from klamm.controller import ProducerIdBlock
from klamm.core.errors import BrokerError, ErrorCode
from klamm.replica.producer_ids import ProducerIds


class Source:
    """Gives out blocks of a thousand, when it is allowed to."""

    def __init__(self) -> None:
        self.next = 0
        self.asked = 0
        self.error = ErrorCode.NONE
        self.gate = asyncio.Event()
        self.gate.set()

    async def allocate(self) -> ProducerIdBlock:
        self.asked += 1
        await self.gate.wait()
        if self.error:
            return ProducerIdBlock(self.error)
        first, self.next = self.next, self.next + 1000
        return ProducerIdBlock(ErrorCode.NONE, first, 1000)


async def test_ids_are_consecutive_over_blocks() -> None:
    ids = ProducerIds(Source().allocate)
    assert [await ids.take() for _ in range(2500)] == list(range(2500))


async def test_those_who_wait_share_one_request() -> None:
    source = Source()
    source.gate.clear()
    ids = ProducerIds(source.allocate)
    waiting = [asyncio.ensure_future(ids.take()) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    source.gate.set()
    assert sorted(await asyncio.gather(*waiting[1:])) == [0, 1, 2, 3]
    assert source.asked == 1


async def test_the_next_block_is_asked_for_before_this_one_is_used_up() -> None:
    source = Source()
    ids = ProducerIds(source.allocate)
    for _ in range(899):
        await ids.take()
    assert source.asked == 1
    await ids.take()
    await asyncio.sleep(0)
    assert source.asked == 2
    source.gate.clear()
    assert [await ids.take() for _ in range(200)][-1] == 1099, "without waiting"


async def test_a_refusal_reaches_whoever_asks_and_the_next_one_tries_again() -> None:
    source = Source()
    source.error = ErrorCode.NOT_CONTROLLER
    ids = ProducerIds(source.allocate)
    with pytest.raises(BrokerError):
        await ids.take()
    source.error = ErrorCode.NONE
    assert await ids.take() == 0


async def test_a_refused_prefetch_hurts_nobody_while_there_are_ids() -> None:
    source = Source()
    ids = ProducerIds(source.allocate)
    await ids.take()
    source.error = ErrorCode.NOT_CONTROLLER
    assert [await ids.take() for _ in range(999)][-1] == 999
    with pytest.raises(BrokerError):
        await ids.take()
