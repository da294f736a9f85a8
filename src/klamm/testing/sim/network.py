"""A network in memory: names, ports, and connections that can be slow, cut in pieces, cut off or dead silent."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from random import Random  # noqa: TID251 - made from the seed alone
from typing import TypeAlias

from klamm.core.env import Sender, Tls
from klamm.testing.sim.incarnation import Incarnation
from klamm.testing.sim.pipe import Item, Pipe, Signal, Weather
from klamm.testing.sim.transport import SimSender, SimTransport

Factory: TypeAlias = Callable[[], asyncio.BufferedProtocol]

_FIRST_FREE_PORT = 40_000
_LOCAL_NAMES = ("", "0.0.0.0", "::", "localhost", "127.0.0.1")


class SimListener:
    def __init__(
        self, network: SimNetwork, address: tuple[str, int], factory: Factory, owner: Incarnation | None
    ) -> None:
        self.address = address
        self.factory = factory
        self.owner = owner
        self.context = _context_of(owner)
        self._network = network

    @property
    def port(self) -> int:
        return self.address[1]

    def close(self) -> None:
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]


class Connection:
    """Both ends of one connection, for those who want to harm it."""

    def __init__(self, number: int, client: SimTransport, server: SimTransport, pipes: tuple[Pipe, Pipe]) -> None:
        self.number = number
        self.client = client
        self.server = server
        self.pipes = pipes  # client to server, server to client

    @property
    def ends(self) -> tuple[SimTransport, SimTransport]:
        return self.client, self.server

    def cut(self) -> None:
        """A reset that both ends see; what is on its way is lost."""
        for pipe in self.pipes:
            pipe.drop()
            pipe.signal(Signal.RESET)

    def blackhole(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """From now on nothing arrives, and nobody is told."""
        self.pipes[0].lossy |= to_server
        self.pipes[1].lossy |= to_client

    @property
    def over(self) -> bool:
        return self.client.is_closing() and self.server.is_closing()


class SimNetwork:
    """The whole network. What a process sees of it is a `NodeNetwork`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: Random | int = 0,
        note: Callable[[str, str, str, bytes], None] | None = None,
    ) -> None:
        self.loop = loop
        self.rng = rng if isinstance(rng, Random) else Random(rng)
        self.weather = Weather()
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.connections: list[Connection] = []
        self._note = note
        self._made = 0
        self._next_port = _FIRST_FREE_PORT

    def view(self, host: str, owner: Incarnation | None = None) -> NodeNetwork:
        return NodeNetwork(self, host, owner)

    def open_connections(self) -> list[Connection]:
        self.connections = [connection for connection in self.connections if not connection.over]
        return self.connections

    def process_died(self, owner: Incarnation, *, power: bool) -> None:
        self.note(owner.name, "gone", "power" if power else "kill")
        for listener in [listener for listener in self.listeners.values() if listener.owner is owner]:
            listener.close()
        for connection in self.open_connections():
            for end in connection.ends:
                if end.owner is owner:
                    end.process_died(power=power)

    def note(self, node: str, kind: str, detail: str, data: bytes = b"") -> None:
        if self._note is not None:
            self._note(node, kind, detail, data)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def join(self, listener: SimListener, owner: Incarnation | None, host: str) -> Connection:
        """Make the two ends. The server's protocol is made when the news has reached it."""
        self._made += 1
        client_context = _context_of(owner)
        there = Pipe(self.loop, self.rng, self.weather, client_context)
        back = Pipe(self.loop, self.rng, self.weather, listener.context)
        here, far = (host, self.free_port()), listener.address
        client = SimTransport(self.loop, owner, client_context, back, there, {"sockname": here, "peername": far})
        server = SimTransport(
            self.loop, listener.owner, listener.context, there, back, {"sockname": far, "peername": here}
        )
        connection = Connection(self._made, client, server, (there, back))
        self._watch(connection, listener)
        self.connections.append(connection)
        there.signal(Signal.ACCEPT)
        return connection

    def _watch(self, connection: Connection, listener: SimListener) -> None:
        """Write what arrives into the trace, and let the first thing that arrives be the connection itself."""

        def wrap(pipe: Pipe, direction: str, receive: Callable[[Item], None]) -> None:
            def received(item: Item) -> None:
                data = item if isinstance(item, bytes) else item.value.encode()
                self.note(f"conn{connection.number}", direction, "", data)
                if item is not Signal.ACCEPT:
                    receive(item)
                elif self.listeners.get(listener.address) is not listener:
                    connection.server.abort()
                else:
                    protocol = listener.factory()
                    connection.server.set_protocol(protocol)
                    protocol.connection_made(connection.server)

            pipe.receive = received

        wrap(connection.pipes[0], ">", connection.server.receive)
        wrap(connection.pipes[1], "<", connection.client.receive)


class NodeNetwork:
    """The `Network` of `core.env` for one process."""

    def __init__(self, network: SimNetwork, host: str, owner: Incarnation | None) -> None:
        self._network = network
        self._host = host
        self._owner = owner

    async def listen(self, host: str, port: int, factory: Factory, *, backlog: int = 1024) -> SimListener:
        network = self._network
        address = (self._resolve(host), port or network.free_port())
        if address in network.listeners:
            raise OSError(98, "Address already in use")
        listener = SimListener(network, address, factory, self._owner)
        network.listeners[address] = listener
        return listener

    async def resolve(self, host: str, *, canonical: bool = False) -> list[str]:
        return [host]

    async def connect(
        self, host: str, port: int, factory: Factory, *, tls: Tls | None = None
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        assert tls is None, "encrypted, nothing would be the same twice"
        network = self._network
        await asyncio.sleep(2 * network.weather.latency_s(network.rng))
        listener = network.listeners.get((self._resolve(host), port))
        if listener is None:
            raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
        connection = network.join(listener, self._owner, self._host)
        protocol = factory()
        connection.client.set_protocol(protocol)
        protocol.connection_made(connection.client)
        return connection.client, protocol

    def sender(
        self, transport: asyncio.Transport, on_progress: Callable[[], None], on_error: Callable[[OSError], None]
    ) -> Sender:
        assert isinstance(transport, SimTransport)
        return SimSender(transport, on_progress, on_error)

    def _resolve(self, host: str) -> str:
        return self._host if host in _LOCAL_NAMES else host


def _context_of(owner: Incarnation | None) -> contextvars.Context:
    return contextvars.Context() if owner is None else owner.context()
