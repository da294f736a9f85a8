"""All limits at once, set so low that every one of them bites: nothing may be lost, reordered or stuck."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from klamm.core.env import FileRange, Part
from klamm.core.env.real import RealFiles
from klamm.server.connection import Connection


class Moody:
    """Answers with the request's number and as many bytes as it asks for: now or later, from memory or from a file."""

    def __init__(self, rng: random.Random, path: str, data: bytes) -> None:
        self.rng = rng
        self.data = data
        self.file = RealFiles().open(path, readonly=True)

    def handle(self, connection: Connection, frame: memoryview) -> None:
        number, want = frame[:4], int.from_bytes(frame[4:8], "big")
        assert bytes(frame[8:]) == bytes([number[3]]) * (len(frame) - 8)
        head = (4 + want).to_bytes(4, "big") + bytes(number)
        body: Part = FileRange(self.file, 0, want) if self.rng.random() < 0.5 else self.data[:want]
        mood = self.rng.random()
        if mood < 0.5:
            connection.outbox.answer([head, body])
            return
        slot = connection.outbox.reserve(len(frame))
        loop = asyncio.get_running_loop()
        if mood < 0.8:
            loop.call_soon(slot.fill, [head, body])
        else:
            loop.call_later(self.rng.random() * 0.005, slot.fill, [head, body])


@pytest.mark.parametrize("seed", range(4))
async def test_every_request_is_answered_in_order_under_pressure(serve: Any, tmp_path: Any, seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(300_000)
    (tmp_path / "segment").write_bytes(data)
    moody = Moody(rng, str(tmp_path / "segment"), data)
    place = await serve(
        moody,
        max_in_flight_per_connection=3,
        max_in_flight_bytes_per_connection=50_000,
        max_in_flight_requests=8,
        max_in_flight_bytes=100_000,
        max_outbound_bytes=40_000,
        max_frame_memory_bytes=250_000,
    )

    def size() -> int:
        return rng.choice((0, 10, 100, 3000, 20_000, 200_000))

    async def talk(requests: int) -> None:
        client = await place.connect(limit=rng.choice((2000, 500_000)))
        wants = [size() for _ in range(requests)]

        async def ask() -> None:
            for i, want in enumerate(wants):
                client.send(i.to_bytes(4, "big") + want.to_bytes(4, "big") + bytes([i % 256]) * size())
                await client.writer.drain()

        asking = asyncio.ensure_future(ask())
        for i, want in enumerate(wants):
            answer = await client.receive()
            assert answer[:4] == i.to_bytes(4, "big")
            assert answer[4:] == data[:want]
        await asking
        await client.close()

    sweeping = asyncio.ensure_future(_sweep(place))
    await asyncio.gather(*(talk(40) for _ in range(10)))
    sweeping.cancel()
    await place.until(lambda: place.server.connections == 0)
    assert moody.file._pins == 0
    moody.file.close()


async def _sweep(place: Any) -> None:
    while True:
        place.server.sweep()
        await asyncio.sleep(0.002)
