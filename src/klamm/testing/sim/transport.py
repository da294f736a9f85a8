"""The two ends of a simulated connection, as asyncio transports for buffered protocols, and the `Sender` on one."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from klamm.core.env import FileRange, Part
from klamm.testing.sim.incarnation import Incarnation
from klamm.testing.sim.pipe import Item, Pipe, Signal

_HIGH_WATER_BYTES = 64 * 1024


class SimTransport(asyncio.Transport):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: Incarnation | None,
        context: contextvars.Context,
        incoming: Pipe,
        outgoing: Pipe,
        names: dict[str, Any],
    ) -> None:
        super().__init__(names)
        self.owner = owner
        self.context = context
        self.sender: SimSender | None = None
        self.error: OSError | None = None  # why the connection is gone, if it broke
        self._loop = loop
        self._in = incoming
        self._out = outgoing
        self._protocol: asyncio.BufferedProtocol | None = None
        self._inbox: deque[bytes] = deque()
        self._outbox = bytearray()
        self._peer_ended = False
        self._end_told = False
        self._paused = False
        self._closing = False
        self._lost = False
        self._reading = False  # a read is scheduled
        self._high, self._low = _HIGH_WATER_BYTES, _HIGH_WATER_BYTES // 4
        self._writing_paused = False
        incoming.receiver_context = context
        outgoing.on_room = self._flush

    # --- what the kernel does ---

    def receive(self, item: Item) -> None:
        if item is Signal.RESET:
            self.lose(ConnectionResetError("the peer reset the connection"))
        elif self._closing:
            self._refuse(item)
        elif isinstance(item, bytes):
            self._inbox.append(item)
            self._read_soon()
        elif item is Signal.END:
            self._peer_ended = True
            self._read_soon()

    def process_died(self, *, power: bool) -> None:
        """The kernel of a killed process ends its connections; a machine without power says nothing at all."""
        self._lost = self._closing = True
        self._in.receive = self._refuse
        self._in.receiver_context = contextvars.Context()  # the kernel's: it lives
        if power:
            self._out.drop_some()
        else:
            self._out.signal(Signal.RESET if self._inbox else Signal.END)

    def _refuse(self, item: Item) -> None:
        """Nobody is left to read this: TCP answers with a reset."""
        if isinstance(item, bytes):
            self._out.drop()
            self._out.signal(Signal.RESET)

    def lose(self, error: OSError | None) -> None:
        """The connection is gone, now."""
        if self._lost:
            return
        self._lost = self._closing = True
        self.error = error
        self._inbox.clear()
        self._outbox.clear()
        self._loop.call_soon(self._tell_lost, error, context=self.context)
        if self.sender is not None:
            self._loop.call_soon(self.sender.broken, context=self.context)

    def _tell_lost(self, error: OSError | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    # --- reading ---

    def _read_soon(self) -> None:
        if not (self._reading or self._paused or self._closing):
            self._reading = True
            self._loop.call_soon(self._read, context=self.context)

    def _read(self) -> None:
        self._reading = False
        if self._paused or self._closing or self._protocol is None:
            return
        if self._inbox:
            buffer = memoryview(self._protocol.get_buffer(-1)).cast("B")
            assert len(buffer), "get_buffer() returned an empty buffer"
            got = 0
            while self._inbox and got < len(buffer):
                piece = self._inbox.popleft()
                taken = min(len(piece), len(buffer) - got)
                buffer[got : got + taken] = piece[:taken]
                got += taken
                if taken < len(piece):
                    self._inbox.appendleft(piece[taken:])
            buffer.release()
            self._in.taken(got)
            self._protocol.buffer_updated(got)
            if self._inbox or self._peer_ended:
                self._read_soon()
        elif self._peer_ended and not self._end_told:
            self._end_told = True
            if not self._protocol.eof_received():
                self.close()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        if self._inbox or (self._peer_ended and not self._end_told):
            self._read_soon()

    def is_reading(self) -> bool:
        return not (self._paused or self._closing)

    # --- writing ---

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing:
            return
        self._outbox += data
        self._flush()
        if len(self._outbox) > self._high and not self._writing_paused and self._protocol is not None:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _flush(self) -> None:
        if self._lost:
            return
        while self._outbox and self._out.room > 0:
            piece = bytes(self._outbox[: self._out.room])
            del self._outbox[: len(piece)]
            self._out.push(piece)
        if self.sender is not None and not self._outbox:
            self.sender.room()
        if self._writing_paused and len(self._outbox) <= self._low and self._protocol is not None:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and not self._outbox:
            self._finish()

    def push(self, data: bytes) -> int:
        """Send as much as there is room for, past the buffer of this transport."""
        if self._lost or self._closing:
            raise self.error or BrokenPipeError("the connection is closed")
        size = min(len(data), self._out.room)
        if size > 0:
            self._out.push(data[:size])
        return max(0, size)

    @property
    def room(self) -> int:
        return self._out.room

    def get_write_buffer_size(self) -> int:
        return len(self._outbox)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        return False

    # --- ending ---

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._outbox:
            self._finish()

    def _finish(self) -> None:
        if not self._lost:
            self._out.signal(Signal.RESET if self._inbox else Signal.END)
            self.lose(None)

    def abort(self) -> None:
        if not self._lost:
            self._out.drop()
            self._out.signal(Signal.RESET)
            self.lose(None)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol


class SimSender:
    """The `Sender` of `core.env`: files are read at the moment their bytes leave, as sendfile does it."""

    def __init__(
        self, transport: SimTransport, on_progress: Callable[[], None], on_error: Callable[[OSError], None]
    ) -> None:
        self._transport = transport
        self._on_progress = on_progress
        self._on_error = on_error
        self._queue: deque[Part] = deque()
        self._queued_bytes = 0
        self._closed = False
        transport.sender = self

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def send(self, parts: Sequence[Part]) -> None:
        if self._closed:
            return
        for part in parts:
            if isinstance(part, FileRange):
                part.file.pin()
                size = part.size
            else:
                size = len(part)
            if size:
                self._queue.append(part)
                self._queued_bytes += size
            elif isinstance(part, FileRange):
                part.file.unpin()
        self._write()

    def room(self) -> None:
        if self._queue and not self._closed:
            before = self._queued_bytes
            self._write()
            if self._queued_bytes < before and not self._closed:
                self._on_progress()

    def broken(self) -> None:
        """The connection is gone. Who has nothing queued finds out at the next `send`."""
        if self._queue:
            self._fail(self._transport.error or BrokenPipeError("the connection is closed"))

    def _write(self) -> None:
        try:
            while self._queue and (room := self._transport.room) > 0:
                part = self._queue.popleft()
                data, rest = _split(part, room)
                self._transport.push(data)
                self._queued_bytes -= len(data)
                if rest is not None:
                    self._queue.appendleft(rest)
                elif isinstance(part, FileRange):
                    part.file.unpin()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self._closed:
            self.close()
            self._on_error(error)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for part in self._queue:
            if isinstance(part, FileRange):
                part.file.unpin()
        self._queue.clear()
        self._queued_bytes = 0


def _split(part: Part, room: int) -> tuple[bytes, Part | None]:
    if not isinstance(part, FileRange):
        return bytes(part[:room]), memoryview(part)[room:] if len(part) > room else None
    size = min(part.size, room)
    data = part.file.pread(size, part.offset)
    if len(data) < size:
        raise OSError("a segment ended before the bytes that a response promised")
    return data, part._replace(offset=part.offset + size, size=part.size - size) if part.size > size else None
