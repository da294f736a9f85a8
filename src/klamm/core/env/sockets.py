"""Real sockets: listening, connecting, and the fast way out.

Responses leave through a dup of the connection's socket with a queue of our own, because an asyncio transport can
neither `sendfile` without a task per response nor hold back a small header with MSG_MORE. Reading stays with asyncio.

What must never happen here: waiting for the disk on the loop, one connection keeping the loop to itself, or a file
descriptor that is closed (and perhaps used again for another file) while a part of it waits in a queue.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from klamm.core.env import Buffer, Executor, FileRange, Listener, Part, Sender, Tls

_MSG_MORE = getattr(socket, "MSG_MORE", 0)  # Linux only: macOS sends the header in a packet of its own
_SENDFILE_MIN_BYTES = 64 * 1024
"""Smaller file ranges are read and joined with their neighbours: cheaper than a system call of their own (measured)."""
_TURN_BYTES = 4 * 1024 * 1024
"""What one connection may send before the others get their turn: one to two milliseconds over loopback."""

_ErrorCallback: TypeAlias = Callable[[OSError], None]


class RealListener:
    __slots__ = ("_port", "_server")

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self._port = cast(int, server.sockets[0].getsockname()[1])

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self._server.close()


class SocketSender:
    """Sends parts on a dup'd non-blocking socket; what does not fit waits in a queue for `add_writer`.

    Invariant: every FileRange in `_queue` is pinned once. It is pinned where it enters the queue, the pin stays with
    what is left of it after a partial send, and goes when the range leaves the queue, sent or dropped.
    """

    __slots__ = (
        "_closed",
        "_executor",
        "_fd",
        "_loop",
        "_on_error",
        "_on_progress",
        "_queue",
        "_send_now",
        "_sock",
        "_waiting",
        "_warm_to",
        "queued_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_progress: Callable[[], None],
        on_error: _ErrorCallback,
        executor: Executor | None = None,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._send_now = sock.send
        self._on_progress = on_progress
        self._on_error = on_error
        self._executor = executor
        self._queue: deque[Part] = deque()
        self.queued_bytes = 0  # a plain attribute, because the connection looks at it for every request
        self._waiting = False  # for the socket to become writable
        self._warm_to: tuple[object, int] = (None, 0)  # file and offset up to which its pages were read ahead
        self._closed = False

    def send(self, parts: Sequence[Part]) -> None:
        if self._closed:
            return
        idle = not self._queue
        try:
            if idle and len(parts) == 1 and type(data := parts[0]) is bytes:
                self._send_one(data)
                return
            self._enqueue(parts)
            if idle:
                self._drain(fresh=True)
        except OSError as error:
            self._fail(error)

    def _send_one(self, data: bytes) -> None:
        """The usual response: one buffer, nothing queued before it."""
        try:
            sent = self._send_now(data)
        except BlockingIOError:
            sent = 0
        if sent != len(data):
            self._queue.append(memoryview(data)[sent:])
            self.queued_bytes = len(data) - sent
            self._wait()

    def _enqueue(self, parts: Sequence[Part]) -> None:
        """Append to the queue. Small file ranges are read now, and small neighbours joined, so that a small
        response is one `send`. OSError if a file cannot be read: the queue is then still sound, but short."""
        run: list[Buffer] = []
        run_bytes = 0
        for part in parts:
            if isinstance(part, FileRange):
                if part.size >= _SENDFILE_MIN_BYTES:
                    self._append_run(run, run_bytes)
                    run, run_bytes = [], 0
                    part.file.pin()
                    self._queue.append(part)
                    self.queued_bytes += part.size
                    continue
                data: Buffer = part.file.pread(part.size, part.offset)
                if len(data) != part.size:
                    raise _shorter_than_promised(part)
            else:
                data = part
            if run_bytes + len(data) > _SENDFILE_MIN_BYTES:
                self._append_run(run, run_bytes)
                run, run_bytes = [], 0
            run.append(data)
            run_bytes += len(data)
        self._append_run(run, run_bytes)

    def _append_run(self, run: list[Buffer], size: int) -> None:
        if size:
            self._queue.append(run[0] if len(run) == 1 else b"".join(run))
            self.queued_bytes += size

    def _drain(self, *, fresh: bool) -> None:
        """Send from the queue until the socket is full or this turn's share is used up. OSError: the peer is gone,
        or a file cannot be read. `fresh`: the parts were queued just now, by a caller who knows them to be cached."""
        queue = self._queue
        share = _TURN_BYTES
        while queue and share > 0:
            part = queue[0]
            try:
                if isinstance(part, FileRange):
                    want = min(part.size, share)
                    if not fresh and self._read_ahead(part, want):
                        return
                    sent = self._send_file(part, want)
                else:
                    want = len(part)
                    sent = self._send_now(part, _MSG_MORE if len(queue) > 1 else 0)
            except BlockingIOError:
                break
            self._sent(part, sent)
            share -= sent
            if sent < want:
                break  # the socket is full: asking again would only cost another system call
        if queue:
            self._wait()
        else:
            self._stop_waiting()

    def _send_file(self, part: FileRange, want: int) -> int:
        fd = part.file.fileno()
        assert fd is not None, "a simulated file on a real socket"
        sent = os.sendfile(self._fd, fd, part.offset, want)
        if sent == 0:
            raise _shorter_than_promised(part)
        return sent

    def _sent(self, part: Part, sent: int) -> None:
        """Take `sent` bytes off the head of the queue, which is `part`."""
        self.queued_bytes -= sent
        if isinstance(part, FileRange):
            if sent < part.size:
                self._queue[0] = FileRange(part.file, part.offset + sent, part.size - sent)
                return
            part.file.unpin()
        elif sent < len(part):
            self._queue[0] = memoryview(part)[sent:]
            return
        self._queue.popleft()

    def _read_ahead(self, part: FileRange, size: int) -> bool:
        """A range that waited for a slow reader may have left the page cache since. True: it is being read in a
        thread, and sending goes on when that is done."""
        end = part.offset + size
        file, warm_to = self._warm_to
        if self._executor is None or (file is part.file and end <= warm_to) or part.file.is_cached(part.offset, size):
            return False
        self._stop_waiting()
        self._warm_to = part.file, end
        part.file.pin()  # the thread's own: a close in between must not hand its descriptor number to another file
        job = self._executor.submit(part.file.read_ahead, part.offset, size)
        job.add_done_callback(lambda done: self._read_ahead_done(part, done))
        return True

    def _read_ahead_done(self, part: FileRange, job: asyncio.Future[None]) -> None:
        part.file.unpin()
        if not job.cancelled():
            job.exception()  # looked at, not lost: the send that follows meets the same error
        if not self._closed:
            self._wait()

    def _wait(self) -> None:
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._fd, self._writable)

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        if self._closed:
            return
        before = self.queued_bytes
        try:
            self._drain(fresh=False)
        except OSError as error:
            self._fail(error)
            return
        if self.queued_bytes < before:
            self._on_progress()

    def _fail(self, error: OSError) -> None:
        if not self._closed:
            self.close()
            self._on_error(error)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_waiting()
        self._sock.close()
        for part in self._queue:
            if isinstance(part, FileRange):
                part.file.unpin()
        self._queue.clear()
        self.queued_bytes = 0


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return True
        except OSError:
            continue
    return False


def _shorter_than_promised(part: FileRange) -> OSError:
    # The size went out with the header: the framing of this connection cannot be saved.
    return OSError(f"{part.file.path} ends before the {part.size} bytes at {part.offset} that a response promised")


class RealNetwork:
    __slots__ = ("_executor",)

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BufferedProtocol], *, backlog: int = 1024
    ) -> Listener:
        loop = asyncio.get_running_loop()
        if host:
            if port == 0:  # a name with several addresses would get another free port for each
                host = str((await loop.getaddrinfo(host, 0, type=socket.SOCK_STREAM))[0][4][0])
            return RealListener(await loop.create_server(factory, host, port, backlog=backlog))
        # All interfaces: one socket for both families where the system can, so that there is one port.
        if socket.has_dualstack_ipv6():
            sock = socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        else:
            sock = socket.create_server(("", port), backlog=backlog)
        return RealListener(await loop.create_server(factory, sock=sock, backlog=backlog))

    async def resolve(self, host: str, *, canonical: bool = False) -> list[str]:
        loop = asyncio.get_running_loop()
        if not canonical and _is_address(host):
            return [host]
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not canonical:
            return addresses
        names = []
        for address in addresses:
            try:
                names.append((await loop.getnameinfo((address, 0), socket.NI_NAMEREQD))[0])
            except OSError:
                names.append(address)
        return list(dict.fromkeys(names))

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.BufferedProtocol], *, tls: Tls | None = None
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        loop = asyncio.get_running_loop()
        if tls is None:
            transport, protocol = await loop.create_connection(factory, host, port)
        else:
            transport, protocol = await loop.create_connection(
                factory, host, port, ssl=tls.context, server_hostname=tls.server_name
            )
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # for brokers that vanish while nobody asks
        return transport, protocol

    def sender(self, transport: asyncio.Transport, on_progress: Callable[[], None], on_error: _ErrorCallback) -> Sender:
        assert transport.get_extra_info("sslcontext") is None, "this would go around the encryption"
        # A dup, because asyncio refuses add_writer on the descriptor of one of its own transports.
        sock = transport.get_extra_info("socket")
        own = socket.socket(fileno=os.dup(sock.fileno()))
        own.setblocking(False)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # for peers that vanish while an answer is pending
        return SocketSender(asyncio.get_running_loop(), own, on_progress, on_error, self._executor)
