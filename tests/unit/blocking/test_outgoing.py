"""The queue in front of a blocking producer: its threads may be interrupted, and wait for no more than is theirs."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import pytest

from klamm.blocking.background import Background
from klamm.blocking.outgoing import Delivery, Outgoing, Record
from klamm.client.errors import TransactionAborted
from klamm.client.producer import Producer

LIMIT_S = 10


class Sink:
    """Where the records go, instead of a producer."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    async def start(self) -> None:
        pass

    async def send_soon(self, topic: str, value: bytes, **_: Any) -> None:
        self.values.append(value)


def interrupt_at(moment: int, function: Callable[[], None]) -> bool:
    """Raise KeyboardInterrupt where a function is called or returns: there Python looks for signals."""
    left = moment

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event in ("call", "return"):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    gc.collect()
    gc.disable()  # what it would have to finalize here could not be interrupted
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        gc.enable()
    return False


def new_outgoing() -> tuple[Outgoing, Sink, asyncio.AbstractEventLoop]:
    sink, loop = Sink(), asyncio.new_event_loop()
    outgoing = Outgoing(cast(Producer, sink))
    loop.run_until_complete(outgoing.start())
    return outgoing, sink, loop


def put(outgoing: Outgoing, value: bytes, loop: asyncio.AbstractEventLoop) -> None:
    record = Record("orders", value, None, None, (), None)

    def soon(work: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(work)

    outgoing.put(Delivery(record, outgoing, cast(Background, None)), soon)


@pytest.mark.parametrize("moment", range(1, 60))
def test_a_thread_that_is_interrupted_while_it_sends_does_not_keep_others_from_it(moment: int) -> None:
    outgoing, sink, loop = new_outgoing()
    try:
        interrupt_at(moment, lambda: put(outgoing, b"first", loop))
        other = threading.Thread(target=put, args=(outgoing, b"second", loop), daemon=True)
        other.start()
        other.join(LIMIT_S)
        assert not other.is_alive()
        loop.run_until_complete(asyncio.sleep(0))  # what was asked for is begun
        loop.run_until_complete(outgoing.drained())
        assert sink.values in ([b"first", b"second"], [b"second"])
    finally:
        loop.close()


def test_an_interruption_is_tried_at_every_moment_of_sending() -> None:
    outgoing, _, loop = new_outgoing()
    assert not interrupt_at(60, lambda: put(outgoing, b"first", loop))
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(outgoing.drained())
    loop.close()


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
