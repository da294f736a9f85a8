"""Connections that nobody uses are closed: the broker would do so a little later, perhaps in the middle of a request.

Nothing is written down when a request is sent; it is only looked now and then whether there was one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from klamm.client.errors import ConnectionLost

if TYPE_CHECKING:
    from klamm.client.connection import Connection

LOOKS: Final = 8
"""How often a connection is looked at before it is closed. It may be closed early, by one part in so many."""


class Idle:
    """Watches one connection."""

    __slots__ = ("_connection", "_limit_s", "_quiet", "_seen_id", "_timer")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._limit_s = 0.0
        self._quiet = 0
        self._seen_id = 0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timer = asyncio.get_running_loop().call_later(limit_s / LOOKS, self._look)

    def _look(self) -> None:
        connection = self._connection
        used = connection.in_flight > 0 or connection.last_id != self._seen_id
        self._seen_id = connection.last_id
        self._quiet = 0 if used else self._quiet + 1
        if self._quiet >= LOOKS - 1:
            connection.fail(ConnectionLost(f"The connection to {connection.address} was closed: nobody used it."))
        else:
            self.watch(self._limit_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
