"""Run by test_world.py in processes of its own: a small world with crashes; prints the digest of its trace."""

from __future__ import annotations

import asyncio
import sys

from klamm.testing.sim.world import World


class Peer(asyncio.BufferedProtocol):
    def __init__(self):
        self.buffer = bytearray(100)

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.buffer

    def buffer_updated(self, nbytes):
        pass


class Echo(Peer):
    """Answers when the data is on the disk."""

    def __init__(self, env):
        super().__init__()
        self.env = env
        self.file = env.files.open("log", create=True)

    def buffer_updated(self, nbytes):
        data = bytes(self.buffer[:nbytes])
        self.file.append(data)
        self.env.executor.submit(self.file.sync).add_done_callback(lambda _: self.transport.write(data))


async def main(world):
    for _ in range(5):
        node = world.node("broker")
        await node.run(node.env.network.listen("", 1, lambda env=node.env: Echo(env)))
        for name in sorted({f"client-{i}" for i in range(8)}):
            transport, _ = await world.network.view(name).connect("broker", 1, Peer)
            transport.write(world.rng.randbytes(world.rng.randint(1, 5000)))
        await asyncio.sleep(world.rng.random() * 0.01)
        (world.kill if world.rng.random() < 0.5 else world.power_loss)(node)


if __name__ == "__main__":
    with World(int(sys.argv[1])) as world:
        world.run(main(world))
        print(world.trace.events, world.trace.digest())
