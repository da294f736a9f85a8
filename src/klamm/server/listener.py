"""The listeners of a broker: several names, each with an address it binds and one that clients are told.

Starts and stops them, and sweeps the connections every few seconds. A stop is graceful: no new connections, no new
requests, answers for what is in flight, then the end, within a time that the caller sets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from klamm.core.env import Env, Listener
from klamm.core.options import ListenerSpec
from klamm.server.connection import Connection, Handler, Shared
from klamm.server.limits import Limits
from klamm.server.logging import LimitedLog

_SWEEP_S = 2.0
_logger = logging.getLogger(__name__)


class Server:
    """All listeners and connections of one broker."""

    __slots__ = ("_clock", "_listeners", "_next_id", "_shared", "_sweep_s", "_timer", "bound")

    def __init__(self, env: Env, limits: Limits, handler: Handler) -> None:
        self._clock = env.clock
        self._shared = Shared(env.network, limits, handler, LimitedLog(_logger, env.clock))
        self._listeners: list[Listener] = []
        self._next_id = 0
        self._sweep_s = min(_SWEEP_S, limits.idle_s / 4)
        self._timer: asyncio.TimerHandle | None = None
        self.bound: dict[str, ListenerSpec] = {}  # by name, with the real ports

    @property
    def connections(self) -> int:
        return len(self._shared.connections)

    @property
    def shared(self) -> Shared:
        """The limits and counters, for metrics and tests."""
        return self._shared

    async def start(self, listeners: Iterable[ListenerSpec]) -> None:
        """Bind and serve. OSError if an address cannot be had: those that were bound are closed again."""
        try:
            for spec in listeners:
                await self.bind(spec)
        except OSError:
            self.stop_accepting()
            raise
        self.open()

    async def bind(self, spec: ListenerSpec) -> None:
        """Take an address; its port is known from here on. Who connects already waits until `open`."""
        assert spec.name not in self.bound, f"two listeners named {spec.name}"
        listener = await self._listen(spec)
        self.bound[spec.name] = spec.bound(listener.port)

    async def _listen(self, spec: ListenerSpec) -> Listener:
        listener = await self._shared.network.listen(
            spec.host, spec.port, lambda: self._connection(spec.name), backlog=self._shared.limits.accept_backlog
        )
        self._listeners.append(listener)
        return listener

    async def accept_again(self) -> None:
        """Take the addresses back that `stop_accepting` let go of. OSError if somebody else has one by now."""
        if not self._listeners:
            for spec in self.bound.values():
                await self._listen(spec)

    def open(self) -> None:
        """Let requests through: whatever the handlers need is there now."""
        self._shared.is_open = True
        for connection in list(self._shared.connections.values()):
            connection.admit()
        self._timer = asyncio.get_running_loop().call_later(self._sweep_s, self._tick)

    def _connection(self, listener: str) -> Connection:
        self._next_id += 1
        return Connection(self._shared, self._next_id, listener, self._clock.monotonic())

    def _tick(self) -> None:
        self.sweep()
        self._timer = asyncio.get_running_loop().call_later(self._sweep_s, self._tick)

    def sweep(self) -> None:
        """Give back the memory of idle connections, close those that idle for too long."""
        now = self._clock.monotonic()
        for connection in list(self._shared.connections.values()):
            connection.sweep(now)

    def stop_accepting(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    async def stop(self, grace_s: float) -> None:
        """Answer what is in flight, for `grace_s` at most, and close everything."""
        self.stop_accepting()
        self._shared.stopping = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connections = self._shared.connections
        for connection in list(connections.values()):
            connection.drain()
        if connections:
            await self._until_empty(grace_s)
        if connections:
            _logger.warning("%d connections did not finish within %g s and are cut off", len(connections), grace_s)
            for connection in list(connections.values()):
                connection.abort(None)

    async def _until_empty(self, timeout_s: float) -> None:
        empty = asyncio.Event()
        self._shared.on_close = lambda: empty.set() if not self._shared.connections else None
        try:
            async with asyncio.timeout(timeout_s):
                await empty.wait()
        except TimeoutError:
            pass
        self._shared.on_close = None
