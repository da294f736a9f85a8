"""Trouble on demand, for tests of clients: a broker that pauses, refuses, delays, fails, or hangs up in bad moments.

`klamm.testing` makes one of these for a running node; nothing else does. A fault sits in the `Route` of its API, in
place of the handler, and is gone again when it has done its work, so a broker without faults pays nothing for them.
What the log holds is never touched: every fault is one that a client has to be able to live with.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from klamm.apis.api import Answer, Api, Context, Handler, Hangup, Pending, Response
from klamm.core.env import Part
from klamm.core.errors import BrokerError, ErrorCode
from klamm.wire import Struct

if TYPE_CHECKING:
    from klamm.server.connection import Connection
    from klamm.server.listener import Server
    from klamm.server.outbox import Slot

MAX_FAULTS = 1000
"""Faults that may wait for their turn at one API."""


class FaultError(ValueError):
    """A fault that cannot be had; the text says why."""


class Route(Protocol):
    """What is used of the dispatcher's routes."""

    api: Api
    requests: int
    handle: Handler
    shortcut: Callable[[Context, memoryview, int], bytes | list[Part] | Answer] | None


class _Fault:
    """One kind of trouble, for the next `times` requests; None is until it is cleared."""

    __slots__ = ("code", "times")

    def __init__(self, times: int | None, code: ErrorCode | None = None) -> None:
        self.times = times
        self.code = code  # None: handle the request, then hang up instead of answering


class _Armed:
    """The route of one API with the faults that are in front of its handler."""

    __slots__ = ("_connections", "_handle", "_route", "_shortcut", "delay_s", "faults")

    def __init__(self, route: Route, connections: Mapping[int, Connection]) -> None:
        self._route = route
        self._connections = connections
        self._handle = route.handle
        self._shortcut = route.shortcut
        self.faults: deque[_Fault] = deque()
        self.delay_s = 0.0

    def update(self) -> None:
        """Stand in front of the handler as long as there is a reason to."""
        if self.faults or self.delay_s:
            self._route.handle = self.handle
            self._route.shortcut = None
        else:
            self._route.handle = self._handle
            self._route.shortcut = self._shortcut

    def clear(self) -> None:
        self.faults.clear()
        self.delay_s = 0.0
        self.update()

    def handle(self, ctx: Context, request: Struct) -> Answer:
        connection = self._connections[ctx.peer.connection_id]
        if self.delay_s:
            # The request is handled now; its answer, and by their order all that follow, wait behind this.
            slot = connection.outbox.reserve(0)
            asyncio.get_running_loop().call_later(self.delay_s, slot.fill, [])
        fault = self._next()
        if fault is None:
            return self._handle(ctx, request)
        if fault.code is not None:
            raise BrokerError(fault.code)
        return _hang_up_after(connection, self._handle(ctx, request))

    def _next(self) -> _Fault | None:
        if not self.faults:
            return None
        fault = self.faults[0]
        if fault.times is not None:
            fault.times -= 1
            if not fault.times:
                self.faults.popleft()
                self.update()
        return fault


def _hang_up_after(connection: Connection, answer: Answer) -> Answer:
    """Let the work of a handler be done, and close the connection in place of the answer."""
    if isinstance(answer, Pending):
        never = Pending(answer.cancel)
        answer.then(lambda _: connection.abort(None))
        if connection.is_open:
            return never
        raise _hang_up(connection)  # it was there already
    if answer is None or isinstance(answer, Struct):
        raise _hang_up(connection)
    return _hang_up_later(connection, answer)


async def _hang_up_later(connection: Connection, answer: Awaitable[Response]) -> Response:
    await answer
    raise _hang_up(connection)


def _hang_up(connection: Connection) -> Hangup:
    connection.abort(None)
    return Hangup(ErrorCode.NETWORK_EXCEPTION)


class Faults:
    """The switches of one running broker. All calls on the loop."""

    def __init__(self, server: Server, routes: Mapping[int, Route]) -> None:
        self._server = server
        self._routes = routes
        self._armed: dict[int, _Armed] = {}
        self._plugs: list[Slot] | None = None  # while paused

    # -- the whole broker

    def pause(self) -> None:
        """Read no request and send no answer. Connections stay, and new ones are taken (but not heard)."""
        if self._plugs is None:
            shared = self._server.shared
            shared.is_open = False
            connections = list(shared.connections.values())
            self._plugs = [connection.outbox.plug() for connection in connections]
            for connection in connections:
                connection.hold()

    def resume(self) -> None:
        if self._plugs is not None:
            plugs, self._plugs = self._plugs, None
            shared = self._server.shared
            shared.is_open = True
            for plug in plugs:
                plug.fill([])
            for connection in list(shared.connections.values()):
                connection.admit()

    def refuse_connections(self) -> None:
        """Nobody listens any more, and connections that there are get cut."""
        self._server.stop_accepting()
        self.drop_connections()

    async def accept_connections(self) -> None:
        await self._server.accept_again()

    def drop_connections(self) -> int:
        connections = list(self._server.shared.connections.values())
        for connection in connections:
            connection.abort(None)
        return len(connections)

    # -- one API

    def fail(self, api: str | int, code: int, times: int | None = 1) -> None:
        """Answer the next requests with an error, without handling them."""
        route = self._find(api)
        if route.api.on_error is None:
            raise FaultError(f"{route.api.name} has no answer that could carry an error")
        error = next((known for known in ErrorCode if known == code and code), None)
        if error is None:
            raise FaultError(f"{code} is no error code of Kafka's")
        self._arm(route, _Fault(times, error))

    def hang_up_after(self, api: str | int, times: int | None = 1) -> None:
        """Handle the next requests (append the records, create the topic), then close the connection unanswered."""
        self._arm(self._find(api), _Fault(times))

    def delay(self, seconds: float, api: str | int | None = None) -> None:
        """Hold back each answer, of one API or of all, for so long; 0 ends it, but not for what is held already."""
        if seconds < 0:
            raise FaultError("a delay cannot be negative")
        routes = list(self._routes.values()) if api is None else [self._find(api)]
        for route in routes:
            armed = self._armed_for(route)
            armed.delay_s = seconds
            armed.update()

    async def clear(self) -> None:
        """Be a good broker again."""
        for armed in self._armed.values():
            armed.clear()
        await self.accept_connections()
        self.resume()

    # -- what a test may want to know

    def requests(self, api: str | int) -> int:
        """How many of its requests have come so far."""
        return self._find(api).requests

    def left(self, api: str | int) -> int:
        """How many faults still wait for a request of this API; one without a number counts once."""
        armed = self._armed.get(self._find(api).api.key)
        return sum(1 if fault.times is None else fault.times for fault in armed.faults) if armed else 0

    # --

    def _find(self, api: str | int) -> Route:
        for key, route in self._routes.items():
            if api == key or (isinstance(api, str) and api.lower() == route.api.name.lower()):
                return route
        import difflib

        names = [route.api.name for route in self._routes.values()]
        near = difflib.get_close_matches(str(api), names, n=1)
        raise FaultError(f"{api} is not an API of this broker" + (f"; did you mean {near[0]}?" if near else ""))

    def _armed_for(self, route: Route) -> _Armed:
        key = route.api.key
        if key not in self._armed:
            self._armed[key] = _Armed(route, self._server.shared.connections)
        return self._armed[key]

    def _arm(self, route: Route, fault: _Fault) -> None:
        if fault.times is not None and fault.times < 1:
            raise FaultError("a fault has to happen once at least")
        armed = self._armed_for(route)
        if len(armed.faults) >= MAX_FAULTS:
            raise FaultError(f"{MAX_FAULTS} faults wait for {route.api.name} already")
        armed.faults.append(fault)
        armed.update()
