"""A thread that sends may be interrupted at any moment. It must leave the queue so that others can use it."""

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
