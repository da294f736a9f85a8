"""The bounds of the network side, each with a name, and the counters that are held against them.

Everything here is plain arithmetic on the loop. Two rules keep the bounds from locking each other up:
a connection with nothing in flight may always read one small request, so that whatever others wait for (a follower's
fetch, say) gets through; and memory for a large frame is granted for the whole frame before more of it is read, so
that a frame that was begun can always be finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf

_NO_LIMIT = 2**31 - 1


class Limits:
    """The bounds, by name. Where Kafka has the option, its name is beside it; the defaults are Kafka's where it has
    one that is a bound."""

    __slots__ = (
        "accept_backlog",
        "idle_s",
        "max_connections",
        "max_connections_per_host",
        "max_frame_bytes",
        "max_frame_memory_bytes",
        "max_in_flight_bytes",
        "max_in_flight_bytes_per_connection",
        "max_in_flight_per_connection",
        "max_in_flight_requests",
        "max_outbound_bytes",
        "per_host_overrides",
        "stall_s",
    )

    def __init__(
        self,
        *,
        max_frame_bytes: int = 100 * 1024 * 1024,  # socket.request.max.bytes
        max_frame_memory_bytes: int = 256 * 1024 * 1024,  # queued.max.request.bytes (Kafka: no bound)
        max_in_flight_per_connection: int = 256,  # Kafka: 1; clients pipeline 5 and more
        max_in_flight_bytes_per_connection: int = 64 * 1024 * 1024,
        max_in_flight_requests: int = 100_000,
        max_in_flight_bytes: int = 256 * 1024 * 1024,
        max_outbound_bytes: int = 1024 * 1024,
        max_connections: int = _NO_LIMIT,  # max.connections
        max_connections_per_host: int = _NO_LIMIT,  # max.connections.per.ip
        per_host_overrides: Mapping[str, int] | None = None,  # max.connections.per.ip.overrides
        idle_s: float = 600.0,  # connections.max.idle.ms
        stall_s: float = 10.0,
        accept_backlog: int = 1024,  # socket.listen.backlog.size
    ) -> None:
        self.accept_backlog = accept_backlog
        self.max_frame_bytes = max_frame_bytes
        self.max_frame_memory_bytes = max_frame_memory_bytes
        self.max_in_flight_per_connection = max_in_flight_per_connection
        self.max_in_flight_bytes_per_connection = max_in_flight_bytes_per_connection
        self.max_in_flight_requests = max_in_flight_requests
        self.max_in_flight_bytes = max_in_flight_bytes
        self.max_outbound_bytes = max_outbound_bytes
        self.max_connections = max_connections
        self.max_connections_per_host = max_connections_per_host
        self.per_host_overrides = dict(per_host_overrides or {})
        self.idle_s = idle_s if idle_s > 0 else inf  # as with Kafka, -1 switches it off
        self.stall_s = stall_s

    def take_connection_limits(self, other: Limits) -> None:
        """What can change while the broker runs. Connections that are there stay, also above a lower bound."""
        self.max_connections = other.max_connections
        self.max_connections_per_host = other.max_connections_per_host
        self.per_host_overrides = other.per_host_overrides


class InFlight:
    """Requests of all connections that were read and not answered yet, with the bytes they came as."""

    __slots__ = ("bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0


class FrameMemory:
    """What the receive buffers of all connections take together, beyond the small ones that everybody has.

    A grant is for a whole frame. Who does not get one waits in line, with reading paused. A frame that is larger than
    the whole bound passes when it is alone.
    """

    __slots__ = ("_waiting", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_short(self) -> bool:
        """Somebody waits."""
        return bool(self._waiting)

    def _fits(self, size: int) -> bool:
        return self.used_bytes + size <= self.limit_bytes or not self.used_bytes

    def take(self, size: int, on_grant: Callable[[], None]) -> bool:
        """True: granted. False: `on_grant` is called when it is (it has to be forgotten by then, if not wanted)."""
        if not self._waiting and self._fits(size):
            self.used_bytes += size
            return True
        self._waiting.append((size, on_grant))
        return False

    def give_back(self, size: int) -> None:
        self.used_bytes -= size
        assert self.used_bytes >= 0, "more frame memory given back than taken"
        while self._waiting and self._fits(self._waiting[0][0]):
            size, on_grant = self._waiting.popleft()
            self.used_bytes += size
            on_grant()

    def forget(self, on_grant: Callable[[], None]) -> None:
        """Who waits with this callback does not want it any more."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != on_grant)
        self.give_back(0)  # the next in line may be smaller


class ConnectionCount:
    """Open connections, in all and for each address; and how many there ever were."""

    __slots__ = ("_by_host", "_limits", "admitted", "refused", "total")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_host: dict[str, int] = {}
        self.total = 0
        self.admitted = 0
        self.refused = 0

    def admit(self, host: str) -> str | None:
        """Count one more connection, or say which bound it would break."""
        limits = self._limits
        if self.total >= limits.max_connections:
            self.refused += 1
            return f"max.connections is {limits.max_connections}"
        here = self._by_host.get(host, 0)
        allowed = limits.per_host_overrides.get(host, limits.max_connections_per_host)
        if here >= allowed:
            self.refused += 1
            return f"max.connections.per.ip is {allowed} for this address"
        self._by_host[host] = here + 1
        self.total += 1
        self.admitted += 1
        return None

    def release(self, host: str) -> None:
        self.total -= 1
        left = self._by_host[host] - 1
        if left:
            self._by_host[host] = left
        else:
            del self._by_host[host]
