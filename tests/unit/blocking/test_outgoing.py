"""The queue in front of a blocking producer."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from klamm.blocking.outgoing import Delivery, Outgoing, Record
from klamm.errors import TransactionAborted


class Busy:
    """A producer in front of which there is always another record."""

    def __init__(self) -> None:
        self.outgoing = Outgoing(cast(Any, self))
        self.sent: list[object] = []

    async def start(self) -> None:
        pass

    async def send_soon(self, topic: str, value: object, **others: object) -> None:
        self.sent.append(value)
        await asyncio.sleep(0)
        self.put("of another thread")

    def put(self, value: str) -> Delivery:
        delivery = Delivery(Record("t", value, None, None, (), None), self.outgoing, cast(Any, None))
        self.outgoing.put(delivery, lambda begin: begin())
        return delivery


async def test_who_waits_for_records_does_not_wait_for_those_that_others_send_meanwhile() -> None:
    busy = Busy()
    await busy.outgoing.start()
    busy.put("mine")
    async with asyncio.timeout(30):
        await busy.outgoing.drained()
        assert "mine" in busy.sent
        await busy.outgoing.drained()
    busy.outgoing.drop(TransactionAborted("no more"))


async def test_who_waits_for_records_that_are_dropped_is_told() -> None:
    busy = Busy()
    await busy.outgoing.start()
    busy.put("in the middle of it")
    dropped = busy.put("dropped")
    waiting = [asyncio.ensure_future(busy.outgoing.drained()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    busy.outgoing.drop(TransactionAborted("dropped"))
    async with asyncio.timeout(30):
        await waiting[1]
    with pytest.raises(TransactionAborted):
        dropped.result()
