"""As much of HTTP as a scraper and a health check need: GET a page, get it, good-bye.

One request for each connection, no bodies, no files: a path is looked up in a table, and what is not in it is not
there. Whoever sends too much, takes too long or comes in too great a number is cut off; that a page fails is logged and
answered, and hurts nobody else. This must never grow into a web server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from klamm.core.env import Env, Listener
from klamm.server.logging import LimitedLog

MAX_HEAD_BYTES = 8 * 1024
MAX_CONNECTIONS = 16
TIMEOUT_S = 10.0
"""For the request to come and for the answer to be taken, together."""

_BLANK = 0x20  # below it there is nothing that a request line could start with
_TEXT = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_logger = logging.getLogger(__name__)


class Reply(NamedTuple):
    status: int
    body: str
    content_type: str = _TEXT


Page: TypeAlias = Callable[[], Awaitable[Reply]]


class HttpServer:
    """Serves a table of pages on one address."""

    __slots__ = ("_env", "_exchanges", "_listener", "log", "pages")

    def __init__(self, env: Env, pages: Mapping[str, Page]) -> None:
        self._env = env
        self._listener: Listener | None = None
        self._exchanges: set[_Exchange] = set()
        self.pages = pages
        self.log = LimitedLog(_logger, env.clock)

    async def start(self, host: str, port: int) -> int:
        """Listen; the port that it became. OSError if it cannot be had."""
        self._listener = await self._env.network.listen(host, port, lambda: _Exchange(self), backlog=MAX_CONNECTIONS)
        return self._listener.port

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for exchange in list(self._exchanges):
            exchange.abort()

    def admit(self, exchange: _Exchange) -> bool:
        if self._listener is None or len(self._exchanges) >= MAX_CONNECTIONS:
            return False
        self._exchanges.add(exchange)
        return True

    def leave(self, exchange: _Exchange) -> None:
        self._exchanges.discard(exchange)

    async def reply(self, head: bytes) -> tuple[Reply, bool]:
        """The answer to a request, and whether its body is wanted."""
        request = head.split(b"\r\n", 1)[0].split(b"\n", 1)[0].decode("latin-1").split(" ")
        if len(request) != 3 or not request[2].startswith("HTTP/1."):
            return Reply(400, "This is not HTTP/1.1.\n"), True
        method, target, _ = request
        if method not in ("GET", "HEAD"):
            return Reply(405, "Only GET and HEAD.\n"), True
        page = self.pages.get(target.partition("?")[0])
        if page is None:
            return Reply(404, f"There is {' and '.join(self.pages)}.\n"), method == "GET"
        try:
            return await page(), method == "GET"
        except Exception as error:  # noqa: BLE001 - whatever a page does, the broker goes on
            self.log.error("the page %s failed", target, failure=error)
            return Reply(500, "This page failed; the broker's log says why.\n"), method == "GET"


class _Exchange(asyncio.BufferedProtocol):
    """One connection with its one request."""

    _transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._buffer = bytearray(MAX_HEAD_BYTES)
        self._filled = 0
        self._heard = False  # the request is there; what still comes is not looked at
        self._timer: asyncio.TimerHandle | None = None
        self._work: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._server.admit(self):
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(TIMEOUT_S, self.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[0 if self._heard else self._filled :]

    def buffer_updated(self, count: int) -> None:
        if self._heard:
            return
        self._filled += count
        head = bytes(self._buffer[: self._filled])
        if b"\r\n\r\n" in head or b"\n\n" in head:
            self._heard = True
            self._work = asyncio.get_running_loop().create_task(self._answer(head))
        elif head[0] < _BLANK:  # the size of a frame: a Kafka client, which recognizes an answer in HTTP
            self._heard = True
            self._send(Reply(400, "This is not HTTP/1.1.\n"), True)
        elif self._filled == MAX_HEAD_BYTES:
            self._heard = True
            self._send(Reply(431, f"More than {MAX_HEAD_BYTES} bytes of headers.\n"), True)

    async def _answer(self, head: bytes) -> None:
        self._send(*await self._server.reply(head))

    def _send(self, reply: Reply, with_body: bool) -> None:
        body = reply.body.encode()
        head = (
            f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\n"
            f"Content-Type: {reply.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\n"
            f"{'Allow: GET, HEAD' + chr(13) + chr(10) if reply.status == 405 else ''}"
            "Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + (body if with_body else b""))
        # Not `close`: with more of the request in the socket that would be a reset, and the peer could lose the answer.
        # It hangs up when it has read to the end, and the timer sees to those who do not.
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._work is not None:
            self._work.cancel()
