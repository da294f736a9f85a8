from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.core.env import FileRange
from klamm.core.env.real import ThreadExecutor, real_env
from klamm.core.env.sockets import RealNetwork, SocketSender

MIB = 1024 * 1024


class PinnedFile:
    """A real file that counts its pins, and can be told what to answer."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        with open(path, "wb") as file:
            file.write(data)
        self.fd = os.open(path, os.O_RDONLY)
        self.pins = 0
        self.pinned_in_all = 0
        self.closed = False
        self.cached = True
        self.reads_ahead: list[tuple[int, int]] = []
        self.fail_pread = False

    def pread(self, size: int, offset: int) -> bytes:
        if self.fail_pread:
            raise OSError(5, "I/O error")
        return os.pread(self.fd, size, offset)

    def fileno(self) -> int:
        return self.fd

    def is_cached(self, offset: int, size: int) -> bool:
        return self.cached

    def read_ahead(self, offset: int, size: int) -> None:
        self.reads_ahead.append((offset, size))

    def pin(self) -> None:
        self.pins += 1
        self.pinned_in_all += 1

    def unpin(self) -> None:
        self.pins -= 1
        assert self.pins >= 0
        self._close_if_done()

    def close(self) -> None:
        self.closed = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.closed and not self.pins and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Wire:
    """A sender and the other end of its connection."""

    def __init__(self, executor: Any = None, buffer_bytes: int | None = None) -> None:
        ours, self.peer = socket.socketpair()
        if buffer_bytes:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
            self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        ours.setblocking(False)
        self.peer.setblocking(False)
        self.errors: list[OSError] = []
        self.failed = asyncio.Event()
        self.progress = 0
        self.sender = SocketSender(asyncio.get_running_loop(), ours, self._on_progress, self._on_error, executor)

    def _on_progress(self) -> None:
        self.progress += 1

    def _on_error(self, error: OSError) -> None:
        self.errors.append(error)
        self.failed.set()

    async def read(self, size: int, chunk: int = 65536) -> bytes:
        loop = asyncio.get_running_loop()
        parts = []
        while size and (data := await loop.sock_recv(self.peer, min(size, chunk))):
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def close(self) -> None:
        self.sender.close()
        self.peer.close()


@pytest.fixture
def file(tmp_path: Any) -> Iterator[PinnedFile]:
    made = PinnedFile(str(tmp_path / "segment"), os.urandom(3 * MIB + 17))
    yield made
    made.pins = 0
    made.close()


async def test_a_small_response_leaves_at_once() -> None:
    wire = Wire()
    wire.sender.send([b"hello"])
    assert wire.sender.queued_bytes == 0
    assert await wire.read(5) == b"hello"
    wire.close()


async def test_small_parts_and_small_file_ranges_are_joined(file: PinnedFile) -> None:
    wire = Wire()
    wire.sender.send([b"head", FileRange(file, 10, 100), memoryview(b"-tail-")[1:5], FileRange(file, 0, 0)])
    assert await wire.read(108) == b"head" + file.data[10:110] + b"tail"
    assert file.pinned_in_all == 0
    wire.close()


@pytest.mark.parametrize("chunk", [1000, 65536])
async def test_large_file_ranges_arrive_byte_for_byte_at_a_slow_reader(file: PinnedFile, chunk: int) -> None:
    wire = Wire(buffer_bytes=20_000)
    ranges = [(0, MIB), (17, 2 * MIB), (MIB, 70_000), (5, 100), (100, MIB)]
    expected = b""
    for offset, size in ranges:
        wire.sender.send([b"<%d>" % size, FileRange(file, offset, size), b"."])
        expected += b"<%d>" % size + file.data[offset : offset + size] + b"."
    assert wire.sender.queued_bytes > 3 * MIB
    assert await wire.read(len(expected), chunk) == expected
    assert wire.sender.queued_bytes == 0
    assert file.pins == 0
    assert file.pinned_in_all == 4
    assert wire.progress > 0
    wire.close()


async def test_a_buffer_that_does_not_fit_is_sent_as_the_reader_reads() -> None:
    wire = Wire(buffer_bytes=10_000)
    data = os.urandom(MIB)
    wire.sender.send([data])
    assert 0 < wire.sender.queued_bytes < len(data)
    wire.sender.send([b"more", data])
    assert await wire.read(2 * MIB + 4) == data + b"more" + data
    wire.close()


async def test_a_file_that_is_closed_while_queued_is_sent_whole(file: PinnedFile) -> None:
    wire = Wire(buffer_bytes=10_000)
    wire.sender.send([FileRange(file, 0, 3 * MIB)])
    file.close()
    assert file.fd >= 0
    assert await wire.read(3 * MIB) == file.data[: 3 * MIB]
    assert file.fd == -1
    wire.close()


async def test_closing_the_sender_lets_go_of_every_pin_once(file: PinnedFile) -> None:
    wire = Wire(buffer_bytes=10_000)
    for _ in range(3):
        wire.sender.send([FileRange(file, 0, MIB), b"x"])
    await wire.read(100_000)
    assert file.pins == 3
    wire.sender.close()
    wire.sender.close()
    assert file.pins == 0
    assert wire.sender.queued_bytes == 0
    wire.sender.send([FileRange(file, 0, MIB)])
    assert file.pins == 0
    wire.close()


async def test_a_read_error_inside_send_goes_to_on_error(file: PinnedFile) -> None:
    wire = Wire(buffer_bytes=10_000)
    wire.sender.send([FileRange(file, 0, MIB)])
    file.fail_pread = True
    wire.sender.send([b"head", FileRange(file, 0, MIB), FileRange(file, 0, 100)])
    assert [error.errno for error in wire.errors] == [5]
    assert file.pins == 0
    wire.close()


@pytest.mark.parametrize("size", [1000, 100_000])
async def test_a_file_that_is_shorter_than_promised_goes_to_on_error(file: PinnedFile, size: int) -> None:
    wire = Wire()
    wire.sender.send([b"head", FileRange(file, len(file.data) - 10, size)])
    await wire.failed.wait()
    assert len(wire.errors) == 1
    assert "ends before" in str(wire.errors[0])
    assert file.pins == 0
    wire.close()


async def test_a_peer_that_is_gone_is_reported_once() -> None:
    wire = Wire()
    wire.peer.close()
    wire.sender.send([b"x"])
    wire.sender.send([b"x"])
    assert len(wire.errors) == 1
    assert isinstance(wire.errors[0], ConnectionError)


async def test_a_peer_that_goes_away_in_the_middle_is_reported_once(file: PinnedFile) -> None:
    wire = Wire(buffer_bytes=10_000)
    wire.sender.send([FileRange(file, 0, MIB), b"x", FileRange(file, 0, MIB)])
    assert file.pins == 2
    wire.peer.close()
    await wire.failed.wait()
    assert len(wire.errors) == 1
    assert file.pins == 0


async def test_one_send_does_not_keep_the_loop_to_itself(file: PinnedFile, monkeypatch: Any) -> None:
    """Even if the socket takes everything, the rest waits for the next turn of the loop."""
    wire = Wire()
    taken: list[int] = []

    def sendfile(out: int, fd: int, offset: int, count: int) -> int:
        taken.append(count)
        return count

    monkeypatch.setattr(os, "sendfile", sendfile)
    wire.sender.send([FileRange(file, 0, 3 * MIB)] * 4)
    assert sum(taken) == 4 * MIB
    assert wire.sender.queued_bytes == 8 * MIB
    while wire.sender.queued_bytes:
        await asyncio.sleep(0)
    assert sum(taken) == 12 * MIB
    assert file.pins == 0
    wire.close()


async def test_what_went_cold_in_the_queue_is_read_ahead_off_the_loop(file: PinnedFile) -> None:
    executor = ThreadExecutor(1)
    wire = Wire(executor, buffer_bytes=10_000)
    wire.sender.send([FileRange(file, 0, MIB)])
    file.cached = False
    assert await wire.read(MIB) == file.data[:MIB]
    assert len(file.reads_ahead) == 1
    assert sum(file.reads_ahead[0]) == MIB
    assert file.pins == 0
    wire.close()
    executor.close()


async def test_a_sender_closed_during_a_read_ahead_keeps_the_file_open_for_it(file: PinnedFile) -> None:
    job: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Slow:
        def submit(self, fn: Any, *args: Any) -> asyncio.Future[None]:
            return job

    wire = Wire(Slow(), buffer_bytes=10_000)
    wire.sender.send([FileRange(file, 0, MIB)])
    file.cached = False
    reading = asyncio.ensure_future(wire.read(MIB))
    while file.pins < 2:
        await asyncio.sleep(0)
    wire.sender.close()
    assert file.pins == 1
    assert len(await reading) < MIB
    wire.close()
    job.set_exception(OSError(5, "I/O error"))
    await asyncio.sleep(0)
    assert file.pins == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
async def test_a_listener_has_one_port_whatever_its_host(host: str) -> None:
    made: list[Protocol] = []

    class Protocol(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.lost = asyncio.Event()
            self.buffer = bytearray(10)
            made.append(self)

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set()

    network = RealNetwork()
    listener = await network.listen(host, 0, Protocol)
    transport, _ = await network.connect(host or "127.0.0.1", listener.port, Protocol)
    while len(made) < 2:
        await asyncio.sleep(0)
    transport.close()
    for protocol in made:
        await protocol.lost.wait()
    port = listener.port
    listener.close()
    assert listener.port == port


async def test_the_real_environment_sends_on_a_dup_of_the_transports_socket() -> None:
    env = real_env()
    received = asyncio.get_running_loop().create_future()

    class Server(asyncio.BufferedProtocol):
        def connection_made(self, transport: Any) -> None:
            self.sender = env.network.sender(transport, lambda: None, lambda error: None)
            self.sender.send([b"welcome"])
            self.sender.close()
            transport.close()

    class Client(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(100)

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, count: int) -> None:
            if not received.done():
                received.set_result(bytes(self.buffer[:count]))

    listener = await env.network.listen("127.0.0.1", 0, Server)
    transport, _ = await env.network.connect("127.0.0.1", listener.port, Client)
    assert await received == b"welcome"
    transport.close()
    listener.close()
    await asyncio.sleep(0)
