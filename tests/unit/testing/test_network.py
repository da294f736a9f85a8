from __future__ import annotations

import asyncio
from random import Random

import pytest

from klamm.core.env import FileRange
from klamm.testing.sim.disk import SimDisk
from klamm.testing.sim.world import World

PORT = 9092


class Peer(asyncio.BufferedProtocol):
    """Collects what arrives."""

    def __init__(self, buffer_bytes=4096):
        self.buffer = bytearray(buffer_bytes)
        self.received = bytearray()
        self.updates = 0
        self.lost = asyncio.get_running_loop().create_future()
        self.writable = True
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        self.updates += 1
        self.received += self.buffer[:nbytes]

    def pause_writing(self):
        self.writable = False

    def resume_writing(self):
        self.writable = True

    def connection_lost(self, error):
        self.lost.set_result(error)


class Pair:
    def __init__(self, world):
        self.world = world
        self.node = world.node("broker")
        self.accepted = []

    async def open(self):
        def factory():
            self.accepted.append(Peer())
            return self.accepted[-1]

        network = self.world.network.view("client")
        self.listener = await self.node.run(self.node.env.network.listen("", PORT, factory))
        _, self.client = await network.connect("broker", PORT, Peer)
        await asyncio.sleep(1)
        self.server = self.accepted[0]
        return self


def simulate(scenario, seed=0):
    with World(seed) as world:

        async def main():
            return await scenario(world, await Pair(world).open())

        return world.run(main())


def test_bytes_arrive_in_order_and_in_pieces():
    data = Random(1).randbytes(300_000)

    async def scenario(world, pair):
        pair.client.transport.write(data)
        await asyncio.sleep(60)
        assert pair.server.received == data
        return pair.server.updates

    assert len({simulate(scenario, seed) for seed in range(5)}) > 1


def test_a_reader_that_pauses_fills_the_writers_buffer():
    async def scenario(world, pair):
        pair.server.transport.pause_reading()
        pair.client.transport.write(bytes(500_000))
        await asyncio.sleep(60)
        assert not pair.server.received
        assert not pair.client.writable
        assert pair.client.transport.get_write_buffer_size() == 500_000 - world.network.weather.window_bytes
        pair.server.transport.resume_reading()
        await asyncio.sleep(60)
        assert len(pair.server.received) == 500_000
        assert pair.client.writable

    simulate(scenario)


def test_close_delivers_what_was_written_and_then_ends_both_sides():
    async def scenario(world, pair):
        pair.client.transport.write(bytes(200_000))
        pair.client.transport.close()
        assert await pair.client.lost is None
        assert await pair.server.lost is None
        assert len(pair.server.received) == 200_000

    simulate(scenario)


def test_abort_and_cut_are_seen_as_a_reset():
    async def aborted(world, pair):
        pair.client.transport.abort()
        assert await pair.client.lost is None
        assert isinstance(await pair.server.lost, ConnectionResetError)

    async def cut(world, pair):
        pair.client.transport.write(bytes(100))
        world.network.open_connections()[0].cut()
        assert isinstance(await pair.client.lost, ConnectionResetError)
        assert isinstance(await pair.server.lost, ConnectionResetError)
        assert not pair.server.received

    simulate(aborted)
    simulate(cut)


def test_in_a_black_hole_nothing_arrives_and_nobody_is_told():
    async def scenario(world, pair):
        world.network.open_connections()[0].blackhole(to_client=False)
        pair.client.transport.write(b"lost")
        pair.server.transport.write(b"found")
        await asyncio.sleep(600)
        assert not pair.server.received
        assert pair.client.received == b"found"
        assert not pair.client.lost.done()

    simulate(scenario)


def test_a_killed_process_ends_its_connections_and_its_listeners():
    async def scenario(world, pair):
        pair.server.transport.write(b"last words")
        world.kill(pair.node)
        assert await pair.client.lost is None
        assert pair.client.received == b"last words"
        assert not pair.server.lost.done()
        with pytest.raises(ConnectionRefusedError):
            await world.network.view("client").connect("broker", PORT, Peer)

    simulate(scenario)


def test_a_machine_without_power_says_nothing_until_somebody_writes_to_it():
    async def scenario(world, pair):
        world.power_loss(pair.node)
        await asyncio.sleep(600)
        assert not pair.client.lost.done()
        pair.client.transport.write(b"hello?")
        assert isinstance(await pair.client.lost, ConnectionResetError)

    simulate(scenario)


def test_a_closed_listener_refuses_and_open_connections_go_on():
    async def scenario(world, pair):
        pair.listener.close()
        with pytest.raises(ConnectionRefusedError):
            await world.network.view("client").connect("broker", PORT, Peer)
        pair.client.transport.write(b"still here")
        await asyncio.sleep(1)
        assert pair.server.received == b"still here"

    simulate(scenario)


class TestSender:
    def test_files_are_read_when_their_bytes_leave(self):
        async def scenario(world, pair):
            file = pair.node.env.files.open("a", create=True)
            file.append(b"x" * 200_000)
            progress = []
            sender = pair.node.env.network.sender(pair.server.transport, lambda: progress.append(1), progress.append)
            pair.client.transport.pause_reading()
            sender.send([b"head", FileRange(file, 10, 150_000), b"tail"])
            file.close()
            await asyncio.sleep(1)
            assert sender.queued_bytes == 150_008 - world.network.weather.window_bytes
            pair.node.env.files.open("a").pwrite(b"y" * 10, 149_999)
            pair.client.transport.resume_reading()
            await asyncio.sleep(60)
            assert sender.queued_bytes == 0
            assert pair.client.received == b"head" + b"x" * 149_989 + b"y" * 10 + b"x" + b"tail"
            assert progress
            with pytest.raises(OSError):
                file.pread(1, 0)  # closed, and no longer pinned

        simulate(scenario)

    def test_a_broken_connection_is_told_once(self):
        async def scenario(world, pair):
            errors = []
            sender = pair.node.env.network.sender(pair.server.transport, lambda: None, errors.append)
            sender.send([bytes(200_000)])
            world.network.open_connections()[0].cut()
            await asyncio.sleep(10)
            sender.send([b"more"])
            await asyncio.sleep(10)
            assert [type(error) for error in errors] == [ConnectionResetError]

        simulate(scenario)

    def test_a_file_that_is_too_short_is_an_error(self):
        async def scenario(world, pair):
            errors = []
            file = SimDisk().mount().open("a", create=True)
            sender = pair.node.env.network.sender(pair.server.transport, lambda: None, errors.append)
            sender.send([FileRange(file, 0, 10)])
            assert len(errors) == 1

        simulate(scenario)
