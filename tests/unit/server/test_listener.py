from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.core.env.real import real_env
from klamm.core.options import ListenerSpec
from klamm.server.connection import Connection
from klamm.server.limits import Limits
from klamm.server.listener import Server
from klamm.server.outbox import Slot


def local(name: str, port: int = 0) -> ListenerSpec:
    return ListenerSpec(name, "127.0.0.1", port, "PLAINTEXT", "127.0.0.1", port)


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


class Who:
    """Answers with the name of the listener; "later" when told to."""

    def __init__(self) -> None:
        self.later: list[Slot] = []
        self.handled = 0

    def handle(self, connection: Connection, frame: memoryview) -> None:
        self.handled += 1
        if frame == b"later":
            self.later.append(connection.outbox.reserve(len(frame)))
        else:
            connection.outbox.answer([framed(connection.peer.listener.encode())])


async def test_each_listener_has_its_name_its_port_and_its_advertised_address(serve: Any) -> None:
    server = Server(real_env(), Limits(), Who())
    await server.start([local("INSIDE"), ListenerSpec("OUTSIDE", "127.0.0.1", 0, "PLAINTEXT", "broker.example", 9999)])
    inside, outside = server.bound["INSIDE"], server.bound["OUTSIDE"]
    assert inside.port != outside.port
    assert (inside.advertised_host, inside.advertised_port) == ("127.0.0.1", inside.port)
    assert (outside.advertised_host, outside.advertised_port) == ("broker.example", 9999)
    for endpoint in server.bound.values():
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(framed(b"who"))
        assert (await reader.readexactly(4 + len(endpoint.name)))[4:] == endpoint.name.encode()
        writer.close()
    await server.stop(5.0)


async def test_a_port_in_use_is_an_error_that_leaves_nothing_open() -> None:
    first = Server(real_env(), Limits(), Who())
    await first.start([local("A")])
    second = Server(real_env(), Limits(), Who())
    with pytest.raises(OSError):
        await second.start([local("B"), local("C", first.bound["A"].port)])
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", second.bound["B"].port)
    await first.stop(1.0)


async def test_who_connects_before_the_broker_is_ready_waits_and_is_served(serve: Any) -> None:
    who = Who()
    server = Server(real_env(), Limits(), who)
    await server.bind(local("EARLY"))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.bound["EARLY"].port)
    writer.write(framed(b"who"))
    while not server.connections:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert who.handled == 0
    server.open()
    assert (await reader.readexactly(9))[4:] == b"EARLY"
    writer.close()
    await server.stop(1.0)


async def test_a_stop_answers_what_is_in_flight_and_reads_no_more(serve: Any) -> None:
    who = Who()
    place = await serve(who)
    client, idle = await place.connect(), await place.connect()
    client.send(b"later", b"who")
    await place.until(lambda: who.handled == 2)
    stopping = asyncio.ensure_future(place.server.stop(30.0))
    assert await idle.is_cut_off()
    with pytest.raises(OSError):
        await place.connect()
    client.send(b"never handled", b"x" * 100_000)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not stopping.done()
    who.later[0].fill([framed(b"at last")])
    assert await client.receive() == b"at last"
    assert await client.receive() == b"PLAINTEXT"
    assert await client.is_cut_off()
    await client.close()
    await idle.close()
    await stopping
    assert who.handled == 2


async def test_a_stop_lets_a_slow_reader_have_the_whole_answer(serve: Any) -> None:
    class Large:
        def handle(self, connection: Connection, frame: memoryview) -> None:
            connection.outbox.answer([framed(b"x" * 20_000_000)])

    place = await serve(Large())
    client = await place.connect(limit=10_000)
    client.send(b"more")
    await client.reader.readexactly(4)
    stopping = asyncio.ensure_future(place.server.stop(30.0))
    assert len(await client.reader.readexactly(20_000_000)) == 20_000_000
    assert await client.is_cut_off()
    await client.close()
    await stopping


async def test_a_stop_does_not_wait_longer_than_its_grace(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    who = Who()
    place = await serve(who)
    client = await place.connect()
    client.send(b"later")
    await place.until(lambda: who.handled == 1)
    await place.server.stop(0.02)
    assert await client.is_cut_off()
    assert "1 connections did not finish" in caplog.text


async def test_a_stop_forgets_who_waits_for_memory(serve: Any) -> None:
    place = await serve(Who(), max_frame_memory_bytes=100_000)
    holder, waiter = await place.connect(), await place.connect()
    holder.send_raw(framed(b"x" * 100_000)[:-1])
    memory = place.server.shared.frame_memory
    await place.until(lambda: memory.used_bytes > 0)
    waiter.send_raw(framed(b"x" * 100_000)[:-1])
    await place.until(lambda: memory.is_short)
    await place.server.stop(0.02)
    assert not memory.is_short
    assert memory.used_bytes == 0


async def test_the_sweep_runs_by_itself(serve: Any) -> None:
    place = await serve(Who(), idle_s=0.04)
    client = await place.connect()
    await place.until(lambda: place.server.connections == 1)
    place.clock.now += 1
    assert await client.is_cut_off()
