"""One direction of a simulated connection: bytes that take their time, arrive in pieces and in order.

A pipe holds at most `window_bytes`, as the kernel's buffers do; who has more to send keeps it until there is room.
What is in a pipe is out of its sender's hands: it arrives even if the sender is killed.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from enum import Enum
from random import Random  # noqa: TID251 - made from the seed alone
from typing import TypeAlias


class Signal(Enum):
    ACCEPT = "accept"
    END = "end"
    RESET = "reset"


Item: TypeAlias = bytes | Signal


class Weather:
    """How the network behaves; the same for all connections."""

    __slots__ = (
        "fragment_probability",
        "max_latency_s",
        "min_latency_s",
        "spike_probability",
        "spike_s",
        "window_bytes",
    )

    def __init__(self) -> None:
        self.min_latency_s = 50e-6
        self.max_latency_s = 500e-6
        self.spike_probability = 0.01
        self.spike_s = 0.1
        self.fragment_probability = 0.2  # of a write that arrives in several pieces
        self.window_bytes = 64 * 1024

    def latency_s(self, rng: Random) -> float:
        latency = rng.uniform(self.min_latency_s, self.max_latency_s)
        return latency + rng.random() * self.spike_s if rng.random() < self.spike_probability else latency


class Pipe:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, rng: Random, weather: Weather, sender_context: contextvars.Context
    ) -> None:
        self.receive: Callable[[Item], None] | None = None
        self.on_room: Callable[[], None] | None = None
        self.receiver_context: contextvars.Context | None = None
        self.lossy = False  # a black hole: nothing arrives any more, nobody is told
        self._loop = loop
        self._rng = rng
        self._weather = weather
        self._sender_context = sender_context
        self._travelling: deque[Item] = deque()
        self._last_arrival = 0.0
        self._window_bytes = weather.window_bytes
        self._used_bytes = 0

    @property
    def room(self) -> int:
        return self._window_bytes - self._used_bytes

    def push(self, data: bytes) -> None:
        assert 0 < len(data) <= self.room
        self._used_bytes += len(data)
        at = 0
        while len(data) - at > 1 and self._rng.random() < self._weather.fragment_probability:
            # Often tiny, so that lengths and headers are cut in two.
            size = self._rng.randint(1, min(len(data) - at - 1, self._rng.choice((3, 40, 5000))))
            self._send(data[at : at + size])
            at += size
        self._send(data[at:])

    def signal(self, signal: Signal) -> None:
        self._send(signal)

    def drop(self) -> None:
        """Lose what is on its way."""
        self._travelling.clear()

    def drop_some(self) -> None:
        """Lose the end of what is on its way: the machine that should have sent it again is gone."""
        for _ in range(self._rng.randint(0, len(self._travelling))):
            self._travelling.pop()

    def taken(self, size: int) -> None:
        """The receiver has read so much; the sender hears of the room after a while."""
        latency = self._weather.latency_s(self._rng)
        self._loop.call_later(latency, self._credit, size, context=self._sender_context)

    def _credit(self, size: int) -> None:
        self._used_bytes -= size
        if self.on_room is not None:
            self.on_room()

    def _send(self, item: Item) -> None:
        arrival = max(self._last_arrival, self._loop.time() + self._weather.latency_s(self._rng))
        self._last_arrival = arrival
        self._travelling.append(item)
        self._loop.call_at(arrival, self._arrive, context=self.receiver_context)

    def _arrive(self) -> None:
        # The timer says when, the queue says what: timers for the same moment come in no particular order.
        if self._travelling:
            item = self._travelling.popleft()
            if not self.lossy and self.receive is not None:
                self.receive(item)
