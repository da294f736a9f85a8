"""Real sockets: listening, connecting, and the fast way out.

Responses leave through a dup of the connection's socket with a queue of our own, because an asyncio transport can
neither `sendfile` without a task per response nor hold back a small header with MSG_MORE. Reading stays with asyncio.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from klamm.core.env import FileRange, Listener, Part, Sender

_MSG_MORE = getattr(socket, "MSG_MORE", 0)  # Linux only: macOS sends the header in a packet of its own
_SENDFILE_MIN_BYTES = 64 * 1024  # below this pread + join costs less than the extra system call (measured)
_MAX_SENDFILE_BYTES = 1 << 30


class RealListener:
    __slots__ = ("_server",)

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        return cast(int, self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        self._server.close()


class SocketSender:
    """Sends parts on a dup'd non-blocking socket; on EAGAIN the rest waits in a queue for `add_writer`."""

    __slots__ = ("_closed", "_loop", "_on_error", "_on_progress", "_queue", "_queued_bytes", "_sock")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_progress: Callable[[], None],
        on_error: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._on_progress = on_progress
        self._on_error = on_error
        self._queue: deque[Part] = deque()
        self._queued_bytes = 0
        self._closed = False

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def send(self, parts: Sequence[Part]) -> None:
        if self._closed:
            return
        flat = _flatten(parts)
        if self._queue:
            self._enqueue(flat)
            return
        try:
            rest = self._write(flat)
        except OSError as error:
            self._fail(error)
            return
        if rest:
            self._enqueue(rest)
            self._loop.add_writer(self._sock.fileno(), self._flush)

    def _write(self, parts: Sequence[Part]) -> list[Part]:
        """Send until the socket is full; what is left."""
        last = len(parts) - 1
        for i, part in enumerate(parts):
            if isinstance(part, FileRange):
                left = self._sendfile(part)
                if left.size:
                    return [left, *parts[i + 1 :]]
                continue
            size = len(part)
            try:
                sent = self._sock.send(part, _MSG_MORE if i < last else 0)
            except (BlockingIOError, InterruptedError):
                sent = 0
            if sent < size:
                return [memoryview(part)[sent:], *parts[i + 1 :]]
        return []

    def _sendfile(self, part: FileRange) -> FileRange:
        fd = part.file.fileno()
        assert fd is not None
        offset, size = part.offset, part.size
        while size:
            try:
                sent = os.sendfile(self._sock.fileno(), fd, offset, min(size, _MAX_SENDFILE_BYTES))
            except (BlockingIOError, InterruptedError):
                break
            if sent == 0:  # the file is shorter than promised: the framing of this connection is lost
                raise OSError("a segment ended before the bytes that a response promised")
            offset += sent
            size -= sent
        return FileRange(part.file, offset, size)

    def _enqueue(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if isinstance(part, FileRange):
                part.file.pin()
                self._queued_bytes += part.size
            else:
                self._queued_bytes += len(part)
            self._queue.append(part)

    def _flush(self) -> None:
        parts = list(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        try:
            rest = self._write(parts)
        except OSError as error:
            _unpin(parts)
            self._fail(error)
            return
        self._enqueue(rest)
        _unpin(parts)
        if not rest:
            self._loop.remove_writer(self._sock.fileno())
        self._on_progress()

    def _fail(self, error: OSError) -> None:
        if not self._closed:
            self.close()
            self._on_error(error)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._sock.fileno() >= 0:
            self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        _unpin(self._queue)
        self._queue.clear()
        self._queued_bytes = 0


def _flatten(parts: Sequence[Part]) -> Sequence[Part]:
    """Read small file ranges into memory and join neighbours, so that a small response is one `send`."""
    if len(parts) == 1 and not isinstance(parts[0], FileRange):
        return parts
    flat: list[Part] = []
    run: list[bytes | bytearray | memoryview] = []
    for part in parts:
        if not isinstance(part, FileRange):
            run.append(part)
        elif part.size < _SENDFILE_MIN_BYTES:
            data = part.file.pread(part.size, part.offset)
            if len(data) != part.size:
                raise OSError("a segment ended before the bytes that a response promised")
            run.append(data)
        else:
            if run:
                flat.append(run[0] if len(run) == 1 else b"".join(run))
                run = []
            flat.append(part)
    if run:
        flat.append(run[0] if len(run) == 1 else b"".join(run))
    return flat


def _unpin(parts: Sequence[Part] | deque[Part]) -> None:
    for part in parts:
        if isinstance(part, FileRange):
            part.file.unpin()


class RealNetwork:
    __slots__ = ()

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BufferedProtocol], *, backlog: int = 1024
    ) -> Listener:
        loop = asyncio.get_running_loop()
        return RealListener(await loop.create_server(factory, host or None, port, backlog=backlog))

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.BufferedProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        return await asyncio.get_running_loop().create_connection(factory, host, port)

    def sender(
        self, transport: asyncio.Transport, on_progress: Callable[[], None], on_error: Callable[[OSError], None]
    ) -> Sender:
        # A dup, because asyncio refuses add_writer on the descriptor of one of its own transports.
        sock = transport.get_extra_info("socket")
        own = socket.socket(sock.family, sock.type, sock.proto, fileno=os.dup(sock.fileno()))
        own.setblocking(False)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return SocketSender(asyncio.get_running_loop(), own, on_progress, on_error)
