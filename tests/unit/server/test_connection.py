from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from klamm.core.env import FileRange
from klamm.core.env.real import RealFiles
from klamm.server.buffer import SMALL_BYTES, START_BYTES
from klamm.server.connection import Connection
from klamm.server.outbox import Slot

MIB = 1024 * 1024


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


class Echo:
    """Answers each frame with itself; those that start with "later" when `release` is called."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.later: list[tuple[Slot, bytes]] = []

    def handle(self, connection: Connection, frame: memoryview) -> None:
        data = bytes(frame)
        self.frames.append(data)
        if data.startswith(b"later"):
            self.later.append((connection.outbox.reserve(len(data)), data))
        elif not data.startswith(b"silent"):
            connection.outbox.answer([framed(data)])

    def release(self, index: int = 0) -> None:
        slot, data = self.later.pop(index)
        slot.fill([framed(data)])


async def test_answers_leave_in_the_order_of_the_requests(serve: Any) -> None:
    echo = Echo()
    place = await serve(echo)
    client = await place.connect()
    client.send(b"1", b"later 2", b"3", b"later 4", b"5")
    assert await client.receive() == b"1"
    await place.until(lambda: len(echo.later) == 2)
    echo.release(1)
    client.send(b"6")
    await place.until(lambda: len(echo.frames) == 6)
    echo.release(0)
    assert [await client.receive() for _ in range(5)] == [b"later 2", b"3", b"later 4", b"5", b"6"]


async def test_a_request_without_an_answer_leaves_no_gap(serve: Any) -> None:
    place = await serve(Echo())
    client = await place.connect()
    client.send(b"silent", b"1", b"silent", b"2")
    assert [await client.receive(), await client.receive()] == [b"1", b"2"]


async def test_a_frame_may_come_byte_by_byte(serve: Any) -> None:
    place = await serve(Echo())
    client = await place.connect(limit=MIB)
    client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in framed(b"hello") + framed(b"") + framed(b"world"):
        client.send_raw(bytes([byte]))
        await asyncio.sleep(0)
    assert [await client.receive() for _ in range(3)] == [b"hello", b"", b"world"]


async def test_large_frames_and_small_ones_take_turns(serve: Any) -> None:
    place = await serve(Echo())
    client = await place.connect(limit=4 * MIB)
    frames = [os.urandom(size) for size in (10, 3 * MIB, 1, 5000, 2 * MIB, 0, 20_000, MIB)]
    client.send(*frames)
    for frame in frames:
        assert await client.receive() == frame


async def test_thousands_of_pipelined_requests_share_the_loop_with_others(serve: Any) -> None:
    echo = Echo()
    place = await serve(echo)
    greedy, modest = await place.connect(), await place.connect()
    greedy.send(*[b"%d" % i for i in range(5000)])
    modest.send(b"me")
    assert await modest.receive() == b"me"
    assert len(echo.frames) < 5000
    assert [await greedy.receive() for _ in range(5000)] == [b"%d" % i for i in range(5000)]


@pytest.mark.parametrize(
    ("size", "hint"), [(-1, ""), (-(2**31), ""), (1001, ""), (0x16030100, "looks like TLS"), (0x47455420, "HTTP")]
)
async def test_an_impossible_frame_size_costs_that_connection_only(
    serve: Any, caplog: pytest.LogCaptureFixture, size: int, hint: str
) -> None:
    place = await serve(Echo(), max_frame_bytes=1000)
    bad, good = await place.connect(), await place.connect()
    bad.send(b"fine")
    assert await bad.receive() == b"fine"
    bad.send_raw(struct.pack(">i", size) + b"\3" * 10)
    assert await bad.is_cut_off()
    good.send(b"x" * 1000)
    assert await good.receive() == b"x" * 1000
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert f"frame of {size} bytes" in lines[0]
    assert hint in lines[0]


async def test_a_flood_of_bad_frames_is_not_a_flood_of_log_lines(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    place = await serve(Echo())
    for _ in range(30):
        client = await place.connect()
        client.send_raw(b"\xff\xff\xff\xff")
        assert await client.is_cut_off()
    assert len(caplog.records) == 10
    place.clock.now += 60
    client = await place.connect()
    client.send_raw(b"\xff\xff\xff\xff")
    assert await client.is_cut_off()
    assert "20 more lines" in caplog.records[10].getMessage()


async def test_a_client_that_dies_in_the_middle_of_a_frame_leaves_nothing_behind(serve: Any) -> None:
    echo = Echo()
    place = await serve(echo)
    client = await place.connect()
    client.send_raw(framed(b"x" * MIB)[:-1])
    await place.until(lambda: place.server.shared.frame_memory.used_bytes > 0)
    await client.close()
    await place.until(lambda: place.server.connections == 0)
    assert echo.frames == []
    assert place.server.shared.frame_memory.used_bytes == 0


async def test_a_client_that_dies_before_its_answer_cancels_it(serve: Any) -> None:
    echo = Echo()
    place = await serve(echo)
    client = await place.connect()
    client.send(b"later 1", b"2")
    await place.until(lambda: len(echo.frames) == 2)
    cancelled: list[bool] = []
    slot, _ = echo.later[0]
    slot.cancel = lambda: cancelled.append(True)
    await client.close()
    await place.until(lambda: place.server.connections == 0)
    assert cancelled == [True]
    echo.release()


async def test_a_client_that_dies_in_the_middle_of_an_answer_unpins_its_file(serve: Any, tmp_path: Any) -> None:
    files = Files(tmp_path, 8 * MIB)
    place = await serve(files)
    client = await place.connect(limit=1024)
    client.send(b"0", b"1")
    await client.reader.readexactly(100)
    assert files.pins > 0
    client.writer.transport.abort()
    await place.until(lambda: place.server.connections == 0)
    assert files.pins == 0


class Files:
    """Answers every frame with the same large range of a file."""

    def __init__(self, folder: Any, size: int) -> None:
        self.data = os.urandom(MIB) * (size // MIB)
        (folder / "segment").write_bytes(self.data)
        self.file = RealFiles().open(str(folder / "segment"), readonly=True)
        self.handled = 0

    @property
    def pins(self) -> int:
        return self.file._pins

    def handle(self, connection: Connection, frame: memoryview) -> None:
        self.handled += 1
        size = len(self.data)
        connection.outbox.answer([struct.pack(">i", size + 4), bytes(4), FileRange(self.file, 0, size)])


async def test_large_file_answers_arrive_byte_for_byte_at_a_slow_reader_even_if_the_file_is_closed(
    serve: Any, tmp_path: Any
) -> None:
    files = Files(tmp_path, 4 * MIB)
    place = await serve(files)
    client = await place.connect(limit=2048)
    client.send(b"0", b"1", b"2")
    first = await client.receive()
    await place.until(lambda: files.handled >= 2)
    files.file.close()
    assert files.file.fileno() != -1
    second = await client.receive()
    assert first == second == bytes(4) + files.data


async def test_a_slow_reader_is_not_read_from_until_it_catches_up(serve: Any) -> None:
    class Talker:
        handled = 0

        def handle(self, connection: Connection, frame: memoryview) -> None:
            self.handled += 1
            connection.outbox.answer([framed(b"x" * 100_000)])

    talker = Talker()
    place = await serve(talker, max_outbound_bytes=500_000)
    client = await place.connect(limit=1024)
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
    requests = 100
    client.send(*[b"more"] * requests)
    sender = place.connection._sender
    await place.until(lambda: sender.queued_bytes > 500_000)
    for _ in range(100):
        await asyncio.sleep(0)
    assert sender.queued_bytes < 1_000_000
    assert talker.handled < requests
    for _ in range(requests):
        assert len(await client.receive()) == 100_000
        assert sender.queued_bytes < 1_000_000
    assert talker.handled == requests


async def test_answers_held_back_by_a_slow_one_are_bounded_too(serve: Any) -> None:
    echo = Echo()
    place = await serve(echo, max_outbound_bytes=10_000)
    client = await place.connect()
    client.send(b"later", *[b"x" * 1000] * 100)
    await place.until(lambda: place.connection.outbox.held_bytes > 10_000)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(echo.frames) == 1 + 10
    echo.release()
    assert [len(await client.receive()) for _ in range(101)] == [5] + [1000] * 100


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_in_flight_per_connection": 3}, 3),
        ({"max_in_flight_bytes_per_connection": 15}, 3),
        ({"max_in_flight_requests": 4}, 4),
        ({"max_in_flight_bytes": 22}, 4),
    ],
)
async def test_requests_in_flight_are_bounded(serve: Any, limits: dict[str, int], expected: int) -> None:
    echo = Echo()
    place = await serve(echo, **limits)
    client = await place.connect()
    client.send(*[b"later%d" % i for i in range(10)])
    await place.until(lambda: len(echo.frames) == expected)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(echo.frames) == expected
    for i in range(10):
        await place.until(lambda: bool(echo.later))
        echo.release()
        assert await client.receive() == b"later%d" % i


async def test_one_request_gets_through_however_much_others_have_in_flight(serve: Any) -> None:
    """A follower's fetch, say, for which all the others wait."""
    echo = Echo()
    place = await serve(echo, max_in_flight_requests=2, max_in_flight_bytes=10)
    busy, other = await place.connect(), await place.connect()
    busy.send(*[b"later"] * 10)
    await place.until(lambda: len(echo.frames) == 2)
    other.send(b"let me pass")
    assert await other.receive() == b"let me pass"
    for _ in range(10):
        await place.until(lambda: bool(echo.later))
        echo.release()


async def test_an_answer_given_inside_another_handler_does_not_run_our_next_request_there(serve: Any) -> None:
    depth = 0
    deepest = 0
    echo = Echo()

    class Releasing:
        def handle(self, connection: Connection, frame: memoryview) -> None:
            nonlocal depth, deepest
            depth += 1
            deepest = max(deepest, depth)
            echo.handle(connection, frame)
            if bytes(frame) == b"release":
                echo.release()
            depth -= 1

    place = await serve(Releasing(), max_in_flight_per_connection=1)
    waiting, other = await place.connect(), await place.connect()
    waiting.send(b"later", b"next")
    await place.until(lambda: len(echo.later) == 1)
    other.send(b"release")
    assert [await waiting.receive(), await waiting.receive()] == [b"later", b"next"]
    assert deepest == 1


async def test_frame_memory_is_bounded_over_all_connections_and_every_frame_gets_through(serve: Any) -> None:
    echo = Echo()
    place = await serve(echo, max_frame_memory_bytes=3 * MIB)
    clients = [await place.connect(limit=2 * MIB) for _ in range(8)]
    memory = place.server.shared.frame_memory
    frames = [os.urandom(MIB) for _ in clients]
    for client, frame in zip(clients, frames, strict=True):
        client.send(frame, frame)

    async def receive_two(client: Any, frame: bytes) -> None:
        assert await client.receive() == frame
        assert memory.used_bytes <= 3 * MIB
        assert await client.receive() == frame

    await asyncio.gather(*map(receive_two, clients, frames))


async def test_a_stalled_large_frame_is_dropped_when_others_wait_for_its_memory(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place = await serve(Echo(), max_frame_memory_bytes=MIB, stall_s=10.0)
    stalled, other = await place.connect(), await place.connect(limit=2 * MIB)
    stalled.send_raw(struct.pack(">i", MIB) + b"x" * 10)
    await place.until(lambda: place.server.shared.frame_memory.used_bytes > 0)
    other.send(b"y" * MIB)
    await place.until(lambda: place.server.shared.frame_memory.is_short)
    place.server.sweep()
    place.clock.now += 9
    place.server.sweep()
    assert place.server.connections == 2
    place.clock.now += 2
    place.server.sweep()
    assert await stalled.is_cut_off()
    assert await other.receive() == b"y" * MIB
    assert "in the middle of a frame" in caplog.text


async def test_announcing_a_huge_frame_costs_no_memory(serve: Any) -> None:
    place = await serve(Echo())
    clients = [await place.connect() for _ in range(20)]
    for client in clients[:2]:
        client.send_raw(struct.pack(">i", 100 * MIB) + b"x" * 100)
    await place.until(lambda: place.server.shared.frame_memory.used_bytes > 199 * MIB)
    assert all(c._buffer.capacity <= SMALL_BYTES for c in place.server.shared.connections.values())


async def test_an_idle_connection_gives_its_buffer_back_and_is_closed_in_the_end(serve: Any) -> None:
    place = await serve(Echo(), idle_s=600.0)
    client = await place.connect(limit=2 * MIB)
    client.send(b"x" * MIB)
    assert len(await client.receive()) == MIB
    assert place.connection._buffer.capacity == MIB + 4
    place.server.sweep()
    assert place.connection._buffer.capacity == MIB + 4
    place.clock.now += 2
    place.server.sweep()
    assert place.connection._buffer.capacity == START_BYTES
    assert place.server.shared.frame_memory.used_bytes == 0
    place.clock.now += 599
    client.send(b"still here")
    assert await client.receive() == b"still here"
    place.server.sweep()
    place.clock.now += 599
    place.server.sweep()
    assert place.server.connections == 1
    place.clock.now += 1
    place.server.sweep()
    assert place.server.connections == 0
    assert await client.is_cut_off()


async def test_a_negative_idle_time_switches_the_idle_check_off(serve: Any) -> None:
    place = await serve(Echo(), idle_s=-0.001)
    client = await place.connect()
    client.send(b"1")
    assert await client.receive() == b"1"
    for _ in range(3):
        place.server.sweep()
        place.clock.now += 1e9
    client.send(b"2")
    assert await client.receive() == b"2"


async def test_a_connection_that_waits_for_an_answer_is_not_idle(serve: Any) -> None:
    echo = Echo()
    place = await serve(echo, idle_s=600.0)
    client = await place.connect()
    client.send(b"later")
    await place.until(lambda: len(echo.later) == 1)
    for _ in range(10):
        place.server.sweep()
        place.clock.now += 600
    assert place.server.connections == 1
    echo.release()
    assert await client.receive() == b"later"


async def test_connections_over_the_limit_are_closed_and_the_others_go_on(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place = await serve(Echo(), max_connections_per_host=2)
    first, second = await place.connect(), await place.connect()
    await place.until(lambda: place.server.connections == 2)
    third = await place.connect()
    assert await third.is_cut_off()
    assert "max.connections.per.ip is 2" in caplog.text
    first.send(b"1")
    assert await first.receive() == b"1"
    await second.close()
    await place.until(lambda: place.server.connections == 1)
    fourth = await place.connect()
    fourth.send(b"4")
    assert await fourth.receive() == b"4"


async def test_hundreds_of_connections_are_served(serve: Any) -> None:
    place = await serve(Echo())
    clients = [await place.connect() for _ in range(300)]
    for i, client in enumerate(clients):
        client.send(b"%d" % i)
    assert [await client.receive() for client in clients] == [b"%d" % i for i in range(300)]


async def test_an_abort_inside_the_handler_stops_the_frames_behind_it(serve: Any) -> None:
    class Aborting(Echo):
        def handle(self, connection: Connection, frame: memoryview) -> None:
            super().handle(connection, frame)
            if frame == b"bad":
                connection.abort("told to")

    aborting = Aborting()
    place = await serve(aborting)
    client = await place.connect()
    client.send(b"bad", b"never")
    assert await client.is_cut_off()
    assert aborting.frames == [b"bad"]


# -- without a real socket


class MemoryTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("::ffff:10.0.0.7", 1234, 0, 0)})
        self.reading = True
        self.aborted = False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return False

    def abort(self) -> None:
        self.aborted = True


class MemoryNetwork:
    def __init__(self) -> None:
        self.sent = b""
        self.queued_bytes = 0
        self.closed = False
        self.on_progress: Callable[[], None] = lambda: None
        self.on_error: Callable[[OSError], None] = lambda error: None

    def sender(self, transport: Any, on_progress: Any, on_error: Any) -> MemoryNetwork:
        self.on_progress, self.on_error = on_progress, on_error
        return self

    def send(self, parts: Any) -> None:
        self.sent += b"".join(parts)

    def close(self) -> None:
        self.closed = True


def in_memory(handler: Any, **limits: Any) -> tuple[Connection, MemoryNetwork, MemoryTransport]:
    from klamm.server.connection import Shared
    from klamm.server.limits import Limits
    from klamm.server.logging import LimitedLog

    class Clock:
        def time_ms(self) -> int:
            return 0

        def monotonic(self) -> float:
            return 0.0

    network: Any = MemoryNetwork()
    shared = Shared(network, Limits(**limits), handler, LimitedLog(logging.getLogger("test"), Clock()))
    shared.is_open = True
    shared.is_open = True
    connection = Connection(shared, 1, "SIM", 0.0)
    transport = MemoryTransport()
    connection.connection_made(transport)
    return connection, network, transport


def feed(connection: Connection, data: bytes) -> None:
    while data:
        room = connection.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


async def test_a_simulated_transport_and_sender_are_enough() -> None:
    connection, network, transport = in_memory(Echo(), max_outbound_bytes=10)
    assert connection.peer.host == "10.0.0.7"
    feed(connection, framed(b"one") + framed(b"two")[:3])
    assert network.sent == framed(b"one")
    feed(connection, framed(b"two")[3:])
    assert network.sent == framed(b"one") + framed(b"two")
    network.queued_bytes = 11
    feed(connection, framed(b"three"))
    assert not transport.reading
    network.queued_bytes = 0
    network.on_progress()
    await asyncio.sleep(0)
    assert transport.reading
    assert network.sent.endswith(framed(b"three"))
    network.on_error(ConnectionResetError())
    assert transport.aborted and network.closed and not connection.is_open


async def test_a_send_that_fails_on_our_side_is_worth_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    connection, network, _ = in_memory(Echo())
    network.on_error(OSError(5, "I/O error"))
    assert not connection.is_open
    assert "I/O error" in caplog.text
