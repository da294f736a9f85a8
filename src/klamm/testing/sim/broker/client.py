"""A client as small as can be: one connection, requests matched with their answers in order, and a timeout."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple, TypeVar

from klamm import wire
from klamm.core.env import FileRange
from klamm.core.env import Network as EnvNetwork
from klamm.wire import frames

R = TypeVar("R", bound=wire.Response)

_RECEIVE_BYTES = 16 * 1024
REQUEST_TIMEOUT_S = 10.0


class Lost(Exception):
    """No answer came: what was asked for may have happened or not."""


class _Waiting(NamedTuple):
    correlation_id: int
    response: type[wire.Response]
    version: int
    future: asyncio.Future[Any]


class Client(asyncio.BufferedProtocol):
    """Answers must come in the order of the requests; anything else is a broken broker and fails the run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self._chunk = bytearray(_RECEIVE_BYTES)
        self._received = bytearray()
        self._waiting: deque[_Waiting] = deque()
        self._next_id = 0
        self._transport: asyncio.Transport | None = None
        self.lost: str | None = None

    @classmethod
    async def connect(cls, network: EnvNetwork, name: str, host: str, port: int) -> Client:
        try:
            _, client = await network.connect(host, port, lambda: cls(name))
        except OSError as error:
            raise Lost(str(error)) from None
        assert isinstance(client, cls)
        return client

    def send(self, message: wire.Request, version: int) -> None:
        """Send what has no answer (acks=0)."""
        if self._transport is not None and self.lost is None:
            self._write(message, version)

    def call(self, message: wire.Request, version: int, timeout_s: float = REQUEST_TIMEOUT_S) -> asyncio.Future[Any]:
        """Send a request; the answer, or `Lost`, comes through the future."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.lost is not None:
            future.set_exception(Lost(self.lost))
            return future
        correlation_id = self._write(message, version)
        answer = wire.response_type(message.__api_key__)
        self._waiting.append(_Waiting(correlation_id, answer, version, future))
        timer = self._loop.call_later(timeout_s, self._fail, "timeout")
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def close(self) -> None:
        self._fail("closed")

    def _write(self, message: wire.Request, version: int) -> int:
        assert self._transport is not None
        self._next_id += 1
        for part in frames.encode_request(message, version, self._next_id, self.name):
            assert not isinstance(part, FileRange)
            self._transport.write(part)
        return self._next_id

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._chunk

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._chunk[:nbytes]
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        waiting = self._waiting.popleft()
        correlation_id, response = frames.decode_response(waiting.response, frame, waiting.version)
        assert correlation_id == waiting.correlation_id, "answers are out of order"
        if not waiting.future.done():
            waiting.future.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(str(error or "connection closed"))

    def _fail(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        if self._transport is not None:
            self._transport.abort()
        for waiting in self._waiting:
            if not waiting.future.done():
                waiting.future.set_exception(Lost(reason))
        self._waiting.clear()
