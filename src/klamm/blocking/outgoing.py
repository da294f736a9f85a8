"""Records on their way from the threads of an application to the producer on its loop.

A thread that waited for the loop with every record would send some ten thousand in a second. So `send_soon` puts a
record into a queue and goes on, and the loop takes out what is there, in order. The queue is short: a thread waits
while it is full, which it is as long as the producer waits for room in buffer.memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from klamm.blocking.background import Background
from klamm.client.delivery import Delivery as AioDelivery
from klamm.client.delivery import RecordMetadata
from klamm.client.errors import ClientError, Closed, TimedOut, TransactionAborted
from klamm.client.prepared import PreparedTransaction
from klamm.client.producer import Producer as AioProducer

MAX_RECORDS: Final = 1000
MAX_BYTES: Final = 1 << 20
"""How much may wait in the queue; as much again may be on its way out of it."""
_SIZED: Final = (bytes, bytearray, str)


class Record(NamedTuple):
    topic: str
    value: Any
    key: Any
    partition: int | None
    headers: Any
    timestamp_ms: int | None

    @property
    def size(self) -> int:
        """As far as that is known before it is serialized."""
        key, value = self.key, self.value
        return (len(value) if isinstance(value, _SIZED) else 0) + (len(key) if isinstance(key, _SIZED) else 0)


class Delivery:
    """What becomes of a record. `result` waits for it, in any thread."""

    __slots__ = ("_background", "_error", "_found", "_outgoing", "_record")

    def __init__(self, record: Record, outgoing: Outgoing, background: Background) -> None:
        self._record: Record | None = record
        self._outgoing = outgoing
        self._background = background
        self._found: AioDelivery | None = None
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether `result` would not wait."""
        return self._error is not None or (self._found is not None and self._found.done)

    def result(self, timeout_ms: int | None = None) -> RecordMetadata:
        """Where the record landed; raises what went wrong, and `TimedOut` if neither is known in time."""
        if not self.done:
            return self._background.call(lambda: self._wait(timeout_ms))
        try:
            self._result().send(None)
        except StopIteration as end:  # known already: there is nothing to wait for, with or without a loop
            found: RecordMetadata = end.value
            return found
        raise AssertionError("a delivery that is done has to wait")

    async def _wait(self, timeout_ms: int | None) -> RecordMetadata:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._outgoing.drained()
                return await self._result()
        except TimeoutError:
            raise TimedOut(f"Nothing was heard of a record within {timeout_ms} ms.") from None

    async def _result(self) -> RecordMetadata:
        if self._error is not None:
            raise self._error
        if self._found is None:
            raise Closed("The producer was closed before the record was sent.")
        return await self._found.result()

    # For the queue.

    @property
    def size(self) -> int:
        return 0 if self._record is None else self._record.size

    async def send_with(self, producer: AioProducer) -> None:
        record, self._record = self._record, None
        assert record is not None
        try:
            self._found = await producer.send_soon(
                record.topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
            )
        except asyncio.CancelledError:
            self.fail(Closed("The record was given up before it was sent."))
            raise
        except Exception as error:  # noqa: BLE001 - for whoever asks for the result
            self._error = error

    def fail(self, error: ClientError) -> None:
        self._record = None
        self._error = error


class _Mark:
    """A place in the queue: whoever waits for `passed` knows that all before it was taken out."""

    __slots__ = ("passed",)

    def __init__(self) -> None:
        self.passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send_with(self, producer: AioProducer) -> None:
        self._pass()

    def fail(self, error: ClientError) -> None:
        self._pass()

    def _pass(self) -> None:
        if not self.passed.done():
            self.passed.set_result(None)


class Outgoing:
    """The producer with the queue in front of it. Everything that must not overtake records goes through here."""

    def __init__(self, producer: AioProducer) -> None:
        self.producer = producer
        self._lock = threading.RLock()
        """Taken as it is, not by way of the condition: that one does it in Python, where Ctrl-C could come between
        taking it and noting that it has to be given back."""
        self._room = threading.Condition(self._lock)
        self._waiting: deque[Delivery | _Mark] = deque()
        self._bytes = 0
        self._is_pumping = False  # the loop looks, or is going to look, for what waits
        self._is_closed = True
        self._taken: deque[Delivery | _Mark] = deque()  # of the loop
        self._pumping: asyncio.Task[None] | None = None

    # In any thread.

    def put(self, delivery: Delivery, soon: Callable[[Callable[[], None]], None]) -> None:
        """Queue it; `soon` gets what has to be called on the loop then."""
        with self._lock:
            while len(self._waiting) >= MAX_RECORDS or self._bytes >= MAX_BYTES:
                self._check_open()
                self._room.wait()
            self._check_open()
            self._waiting.append(delivery)
            self._bytes += delivery.size
            if not self._is_pumping:
                soon(self._begin)  # first this: an interruption between the two asks twice, which does no harm
                self._is_pumping = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("This producer is closed.")

    # On the loop.

    def _begin(self) -> None:
        if self._pumping is None:
            self._pumping = asyncio.ensure_future(self._pump())

    async def _pump(self) -> None:
        while self._take():
            while self._taken:
                await self._taken.popleft().send_with(self.producer)

    def _take(self) -> bool:
        with self._lock:
            if self._waiting:
                self._taken, self._waiting = self._waiting, deque()
                self._bytes = 0
                self._room.notify_all()
                return True
            self._is_pumping = False
            self._pumping = None
            return False

    async def drained(self) -> None:
        """Wait until the producer has what was put here before; not for what other threads put here meanwhile."""
        with self._lock:
            if self._pumping is None and not self._waiting:
                return
            mark = _Mark()
            self._waiting.append(mark)
            self._begin()
        await mark.passed

    def drop(self, error: ClientError) -> None:
        """What waits is not sent, nor is the one that waits for room in the producer."""
        with self._lock:
            dropped = [*self._taken, *self._waiting]
            self._taken.clear()
            self._waiting.clear()
            self._bytes = 0
            if self._pumping is not None:
                self._pumping.cancel()
                self._pumping, self._is_pumping = None, False
            self._room.notify_all()
        for delivery in dropped:
            delivery.fail(error)

    # The producer's calls, in order with the records.

    async def start(self) -> None:
        await self.producer.start()
        self._is_closed = False

    async def close(self, *, abort: bool = False) -> None:
        with self._lock:
            self._is_closed = True
            self._room.notify_all()
        try:
            if abort:
                self.drop(Closed("The producer was closed before the record was sent."))
            else:
                await self.drained()
        finally:
            await self.producer.close(abort=abort)

    async def send(self, record: Record) -> RecordMetadata:
        if self._pumping is not None:
            await self.drained()
        topic, value, key, partition, headers, timestamp_ms = record
        return await self.producer.send(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )

    async def flush(self) -> None:
        await self.drained()
        await self.producer.flush()

    async def commit(self) -> None:
        await self.drained()
        await self.producer.commit()

    async def prepare(self) -> PreparedTransaction:
        await self.drained()
        return await self.producer.prepare()

    async def abort(self) -> None:
        self.drop(_aborted())
        await self.producer.abort()

    async def leave(self, block: AbstractAsyncContextManager[object], error: BaseException | None) -> None:
        """The end of a block with a transaction."""
        if error is None:
            await self.drained()
            await block.__aexit__(None, None, None)
        else:
            self.drop(_aborted())
            await block.__aexit__(type(error), error, error.__traceback__)


def _aborted() -> TransactionAborted:
    return TransactionAborted("The transaction was aborted before the record was sent.")
