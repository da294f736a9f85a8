"""The answers of one connection, in the order of its requests.

Kafka's clients match answers to requests by their order, so an answer that is ready before its turn waits. Whoever
cannot answer at once reserves a `Slot` and fills it later; answers that are ready in a row leave in one send. An
answer that waits here keeps its files pinned. What an answer says is none of this module's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from klamm.core.env import FileRange, Part, Sender
from klamm.server.limits import InFlight

_BATCH_BYTES = 64 * 1024
"""Small answers to requests that came in one read leave in one send, up to this much."""


class Slot:
    """The place of one answer. `cancel` is called if the connection goes before it is filled."""

    __slots__ = ("alone", "cancel", "held", "held_bytes", "outbox", "parts", "request_bytes")

    def __init__(self, outbox: Outbox, request_bytes: int) -> None:
        self.alone = False  # no other request is to be handled before it is filled
        self.outbox: Outbox | None = outbox  # None: the connection is gone
        self.request_bytes = request_bytes
        self.parts: list[Part] | None = None  # None: not ready; empty: ready, and nothing is sent
        self.held = False  # ready before its turn: its files are pinned
        self.held_bytes = 0
        self.cancel: Callable[[], None] | None = None

    def fill(self, parts: list[Part]) -> None:
        """Once. Nothing happens if the connection is gone."""
        if self.outbox is not None:
            self.outbox.fill(self, parts)


class Outbox:
    __slots__ = (
        "_batch",
        "_batch_bytes",
        "_corked",
        "_in_flight",
        "_on_room",
        "_send",
        "held_bytes",
        "in_flight_bytes",
        "slots",
    )

    def __init__(self, sender: Sender, in_flight: InFlight, on_room: Callable[[], None]) -> None:
        self._send = sender.send
        self._in_flight = in_flight
        self._on_room = on_room  # called whenever slots have left
        self.slots: deque[Slot] = deque()
        self.in_flight_bytes = 0  # what the requests that have a slot came as
        self.held_bytes = 0  # answers that are ready before their turn
        self._corked = False
        self._batch: list[Part] = []
        self._batch_bytes = 0

    def cork(self) -> None:
        """More requests are at hand: collect small answers until `uncork`."""
        self._corked = True

    def uncork(self) -> None:
        self._corked = False
        if self._batch:
            self._flush()

    def answer(self, parts: list[Part]) -> None:
        """The answer to the latest request is ready now."""
        if self.slots:
            self._hold(self.reserve(0), parts)
        elif not self._corked:
            self._send(parts)
        elif len(parts) == 1 and not isinstance(part := parts[0], FileRange):
            self._batch.append(part)
            self._batch_bytes += len(part)
            if self._batch_bytes > _BATCH_BYTES:
                self._flush()
        else:  # with files, which are not pinned: they must not wait for what the next handler does
            self._batch.extend(parts)
            self._flush()

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        self._batch_bytes = 0
        self._send(batch)

    def reserve(self, request_bytes: int) -> Slot:
        """The answer to the latest request comes later."""
        slot = Slot(self, request_bytes)
        self.slots.append(slot)
        self.in_flight_bytes += request_bytes
        self._in_flight.requests += 1
        self._in_flight.bytes += request_bytes
        return slot

    def plug(self) -> Slot:
        """Hold everything back that has not left yet, until the slot is filled with nothing."""
        slot = self.reserve(0)
        self.slots.rotate(1)
        return slot

    def fill(self, slot: Slot, parts: list[Part]) -> None:
        assert slot.parts is None, "an answer was given twice"
        slot.cancel = None
        if self.slots[0] is slot:
            slot.parts = parts
            self._release()
        else:
            self._hold(slot, parts)

    def _hold(self, slot: Slot, parts: list[Part]) -> None:
        for part in parts:
            if isinstance(part, FileRange):
                part.file.pin()
                slot.held_bytes += part.size
            else:
                slot.held_bytes += len(part)
        slot.parts = parts
        slot.held = True
        self.held_bytes += slot.held_bytes

    def _release(self) -> None:
        """The first slots are ready: send them together."""
        ready = self._batch
        held: list[Slot] = []
        while self.slots and (parts := self.slots[0].parts) is not None:
            slot = self.slots.popleft()
            ready.extend(parts)
            self._leave(slot)
            if slot.held:
                held.append(slot)
        if ready:
            self._flush()
        for slot in held:  # the sender has its own pins by now
            _unpin(slot)
        self._on_room()

    def _leave(self, slot: Slot) -> None:
        slot.outbox = None
        self.held_bytes -= slot.held_bytes
        self.in_flight_bytes -= slot.request_bytes
        self._in_flight.requests -= 1
        self._in_flight.bytes -= slot.request_bytes

    def close(self) -> None:
        """The connection is gone: nobody will read the answers."""
        self._batch = []
        while self.slots:
            slot = self.slots.popleft()
            self._leave(slot)
            if slot.held:
                _unpin(slot)
            cancel, slot.cancel = slot.cancel, None
            if cancel is not None:
                cancel()


def _unpin(slot: Slot) -> None:
    for part in slot.parts or ():
        if isinstance(part, FileRange):
            part.file.unpin()
