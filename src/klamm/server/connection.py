"""One client connection: frames in, answers out, and when to stop reading.

A thin driver around two cores, the receive buffer and the outbox. It reads as long as the limits allow: not while the
peer does not take its answers, not while too much of it is in flight, not while there is no memory for a large frame.
Nothing here knows what a request means; that is the `Handler`'s business. A frame is valid until the handler returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from klamm.apis.api import Peer
from klamm.core.env import Network, Sender
from klamm.server.buffer import SMALL_BYTES, START_BYTES, BadFrameSize, FrameBuffer
from klamm.server.limits import ConnectionCount, FrameMemory, InFlight, Limits
from klamm.server.logging import LimitedLog
from klamm.server.outbox import Outbox

_FRAMES_PER_TURN = 128
"""Requests that one connection gets through before the others have their turn: about a millisecond."""
_LINGER_S = 1.0
"""How long a peer may take to hang up after a stopping server has said its last word."""

# Why reading is paused; several may hold at once.
_LIMIT = 1  # too much in flight, or too much that the peer did not take yet
_TURN = 2  # others first
_MEMORY = 4  # waiting for memory for a large frame
_DRAIN = 8  # the server stops
_GATE = 16  # the broker is still starting, or a test has paused it


class Handler(Protocol):
    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request: answer through `connection.outbox`, now or later, or `connection.abort`. Must not
        raise, and must not keep the frame."""


class Shared:
    """What all connections of a server have in common."""

    __slots__ = (
        "connections",
        "count",
        "frame_memory",
        "handler",
        "in_flight",
        "is_open",
        "limits",
        "log",
        "network",
        "on_close",
        "stopping",
    )

    def __init__(self, network: Network, limits: Limits, handler: Handler, log: LimitedLog) -> None:
        self.network = network
        self.limits = limits
        self.handler = handler
        self.log = log
        self.count = ConnectionCount(limits)
        self.in_flight = InFlight()
        self.frame_memory = FrameMemory(limits.max_frame_memory_bytes)
        self.connections: dict[int, Connection] = {}  # by id, so that a walk over them is in the same order twice
        self.is_open = False  # requests are let through
        self.stopping = False
        self.on_close: Callable[[], None] | None = None


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_asked_for",
        "_buffer",
        "_granted_to",
        "_lingering",
        "_loop",
        "_paused",
        "_resuming",
        "_sender",
        "_shared",
        "_transport",
        "active",
        "idle_since",
        "is_open",
        "outbox",
        "peer",
    )

    outbox: Outbox
    _sender: Sender
    _transport: asyncio.Transport

    def __init__(self, shared: Shared, connection_id: int, listener: str, now: float) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._buffer = FrameBuffer(shared.limits.max_frame_bytes)
        self._granted_to = SMALL_BYTES  # the buffer may grow to this
        self._asked_for = 0  # while waiting for more
        self._paused = 0
        self._resuming = False
        self._lingering = False
        self.is_open = False
        self.active = False  # since the last sweep
        self.idle_since = now
        self.peer = Peer(connection_id, listener, "")

    def __str__(self) -> str:
        return f"{self.peer.host or 'unknown'} (connection {self.peer.connection_id}, listener {self.peer.listener})"

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        shared = self._shared
        self._transport = transport
        self.peer.host = host = _host_of(transport)
        if shared.stopping:  # it was accepted just before the listeners closed
            transport.abort()
            return
        refusal = shared.count.admit(host)
        if refusal is not None:
            shared.log.warning("refused a connection from %s: %s", host, refusal)
            transport.abort()
            return
        try:
            self._sender = shared.network.sender(transport, self._on_room, self._on_send_error)
        except OSError as error:  # no file descriptor left, most likely
            shared.count.release(host)
            shared.log.error("refused a connection from %s: %s", host, error)
            transport.abort()
            return
        self.outbox = Outbox(self._sender, shared.in_flight, self._on_room)
        self.is_open = True
        shared.connections[self.peer.connection_id] = self
        if not shared.is_open:
            self.hold()

    def hold(self) -> None:
        """Read nothing until `admit`."""
        self._pause(_GATE)

    def admit(self) -> None:
        """The broker is ready: read what this client has to say."""
        self._paused &= ~_GATE
        if self._paused or len(self._buffer):
            self._resume_soon()
        else:
            self._read_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.writable()

    def buffer_updated(self, count: int) -> None:
        self.active = True
        if not self._lingering:
            self._buffer.received(count)
            self._serve()

    def eof_received(self) -> bool:
        """A peer that has said its last word gets no more answers, as with Kafka."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()

    # -- requests

    def _serve(self) -> None:
        """Handle the requests that are there, as far as the limits allow."""
        outbox, sender = self.outbox, self._sender
        next_frame = self._buffer.next_frame
        handle = self._shared.handler.handle
        outbox.cork()
        handled = 0
        try:
            while True:
                if (outbox.slots or sender.queued_bytes) and self._over_a_limit():
                    if len(self._buffer):  # else there is nothing to hold back yet, and most likely nothing comes
                        self._pause(_LIMIT)
                    break
                frame = next_frame()
                if frame is None:
                    break
                handle(self, frame)
                handled += 1
                if handled == _FRAMES_PER_TURN:
                    self._pause(_TURN)
                    self._resume_soon()
                    break
        except BadFrameSize as bad:
            limit = self._buffer.max_frame_bytes
            self.abort(f"frame of {bad.size} bytes announced, at most {limit} allowed{_guess(bad.first_bytes)}")
        outbox.uncork()
        if handled and self._granted_to > SMALL_BYTES and self._shared.frame_memory.is_short:
            self._shrink_to(SMALL_BYTES)
        if self._buffer.needed > self._granted_to:
            self._ask_for_memory()

    def _over_a_limit(self) -> bool:
        limits, outbox = self._shared.limits, self.outbox
        if self._sender.queued_bytes + outbox.held_bytes > limits.max_outbound_bytes:
            return True
        waiting = len(outbox.slots)
        if not waiting:
            return False  # nothing of ours is in flight: one request may always be read
        if outbox.slots[-1].alone:
            return True  # nothing comes after it, so it is the last
        in_flight = self._shared.in_flight
        return (
            waiting >= limits.max_in_flight_per_connection
            or outbox.in_flight_bytes >= limits.max_in_flight_bytes_per_connection
            or in_flight.requests >= limits.max_in_flight_requests
            or in_flight.bytes >= limits.max_in_flight_bytes
        )

    # -- when to read

    def _pause(self, reason: int) -> None:
        if not self._paused:
            self._transport.pause_reading()
        self._paused |= reason

    def _on_room(self) -> None:
        """Answers have left."""
        self.active = True
        if self._paused & _DRAIN or (self._paused & _LIMIT and not self._over_a_limit()):
            self._resume_soon()

    def _resume_soon(self) -> None:
        # Not at once: an answer may become ready inside another connection's handler, which must not find the
        # handlers of our next requests on top of it.
        if not self._resuming:
            self._resuming = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        if not self.is_open:
            return
        if self._paused & _DRAIN:
            self._finish_if_drained()
            return
        if self._paused & _GATE:
            return  # `admit` comes back to it
        self._paused &= ~(_LIMIT | _TURN)
        self._serve()
        self._read_on()

    def _read_on(self) -> None:
        if not self._paused and self.is_open:
            self._transport.resume_reading()

    # -- memory for large frames

    def keep_frame(self) -> None:
        """Called by a handler: somebody goes on using the memory of this frame after the handler has returned."""
        self._buffer.detach()

    def _ask_for_memory(self) -> None:
        """A frame has begun that is larger than this connection's buffer may be."""
        if self._paused & _MEMORY:
            return
        self._asked_for = self._buffer.needed
        if self._shared.frame_memory.take(self._asked_for - self._granted_to, self._memory_granted):
            self._granted_to = self._asked_for
        else:
            self._pause(_MEMORY)

    def _memory_granted(self) -> None:
        self._granted_to = self._asked_for
        self._paused &= ~_MEMORY
        self._read_on()

    def _stop_waiting_for_memory(self) -> None:
        if self._paused & _MEMORY:
            self._paused &= ~_MEMORY
            self._shared.frame_memory.forget(self._memory_granted)

    def _shrink_to(self, keep_bytes: int) -> None:
        buffer = self._buffer
        buffer.shrink(keep_bytes)
        keep = max(keep_bytes, SMALL_BYTES)
        if buffer.capacity <= keep < self._granted_to and not self._paused & _MEMORY:
            surplus, self._granted_to = self._granted_to - keep, keep
            self._shared.frame_memory.give_back(surplus)

    def sweep(self, now: float) -> None:
        """Every few seconds: let go of memory that is not used, and of peers that are not there."""
        buffer = self._buffer
        limits = self._shared.limits
        if self.active:
            self.active = False
            self.idle_since = now
            self._shrink_to(max(buffer.largest, buffer.needed))
            buffer.largest = 0
            return
        self._shrink_to(max(START_BYTES, buffer.needed))
        idle_s = now - self.idle_since
        if idle_s >= limits.idle_s and not self.outbox.slots:
            self.abort(None)
        elif idle_s >= limits.stall_s and self._holds_up_others():
            self.abort(f"stopped in the middle of a frame of {buffer.needed} bytes while others wait for memory")

    def _holds_up_others(self) -> bool:
        """It has memory that others wait for, and it is the peer that does not go on, not we."""
        return self._granted_to > SMALL_BYTES and not self._paused and self._shared.frame_memory.is_short

    # -- the end

    def _on_send_error(self, error: OSError) -> None:
        # That a peer goes away is no news. Anything else is our side: a file that could not be read.
        self.abort(None if isinstance(error, ConnectionError | TimeoutError) else f"sending failed: {error}")

    def abort(self, why: str | None) -> None:
        """Close at once; what was not sent is dropped. `why` goes to the log, if it is worth a line."""
        if self.is_open:
            if why is not None:
                self._shared.log.warning("closed %s: %s", self, why)
            self._transport.abort()
            self._let_go()

    def drain(self) -> None:
        """Read no more requests; answer those that were read, then close."""
        if self.is_open:
            self._stop_waiting_for_memory()
            self._pause(_DRAIN)
            self._buffer.clear()
            self._finish_if_drained()

    def _finish_if_drained(self) -> None:
        if self._lingering or self.outbox.slots or self._sender.queued_bytes:
            return
        if not self._transport.can_write_eof():
            self.abort(None)
            return
        # To close with unread requests in the socket would reset the connection, and the peer could lose the last
        # answers. So: say that no more comes, throw away what still arrives, and wait for the peer to hang up.
        self._lingering = True
        try:
            self._transport.write_eof()
        except OSError:  # it is gone already
            self.abort(None)
            return
        self._paused = 0
        self._read_on()
        self._loop.call_later(_LINGER_S, self.abort, None)

    def _let_go(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        shared = self._shared
        del shared.connections[self.peer.connection_id]
        shared.count.release(self.peer.host)
        self._sender.close()
        self.outbox.close()
        self._buffer.clear()
        self._stop_waiting_for_memory()
        if self._granted_to > SMALL_BYTES:
            shared.frame_memory.give_back(self._granted_to - SMALL_BYTES)
            self._granted_to = SMALL_BYTES
        if shared.on_close is not None:
            shared.on_close()


def _host_of(transport: asyncio.Transport) -> str:
    peername = transport.get_extra_info("peername")
    # An IPv4 peer of a socket for both families: it is the same host under either name.
    return str(peername[0]).removeprefix("::ffff:") if peername else ""


def _guess(first_bytes: bytes) -> str:
    """What the peer speaks, if it is one of the usual mistakes."""
    if first_bytes[:2] == b"\x16\x03":
        return " (it looks like TLS, on a listener without it)"
    if first_bytes[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD"):
        return " (it looks like HTTP)"
    return ""
