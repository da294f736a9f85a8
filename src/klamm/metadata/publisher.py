"""Holds the current image and tells everyone when there is a new one. The image moves only by entries of the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from klamm.metadata.image import EMPTY, Image
from klamm.metadata.replay import Delta, difference, replay
from klamm.metadata.store import Entry

Subscriber: TypeAlias = Callable[[Image, Delta], None]


class Publisher:
    """`image` is read freely, on the loop; take it once per request, so that an answer is of one piece."""

    __slots__ = ("_expected", "_subscribers", "image")

    def __init__(self, image: Image = EMPTY) -> None:
        self.image = image
        self._subscribers: list[Subscriber] = []
        self._expected: deque[tuple[Entry, Image, Image, Delta]] = deque()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(image, delta)` now, with all there is as created, and after every change. Subscribers are
        called in the order in which they came, and must not raise: metadata that one half of a broker has taken and
        the other has not is worse than none."""
        self._subscribers.append(subscriber)
        subscriber(self.image, difference(EMPTY, self.image))

    def replay(self, entry: Entry) -> None:
        """The store's next entry."""
        before = self.image
        assert entry.base_offset == before.offset + 1, f"entry at {entry.base_offset} after {before.offset}"
        if self._expected:
            expected, base, image, delta = self._expected.popleft()
            if expected is entry and base is before:
                self._publish(image, delta)
                return
            self._expected.clear()
        self._publish(*replay(before, entry.records, offset=entry.last_offset, epoch=entry.epoch))

    def expect(self, entry: Entry, base: Image, image: Image, delta: Delta) -> None:
        """What replaying `entry` on `base` gives, from the controller that has worked it out already: saves doing it
        twice. It counts only if the store comes with that very entry on that very image."""
        self._expected.append((entry, base, image, delta))

    def reset(self, image: Image) -> None:
        """The store's latest snapshot, in place of entries that were dropped."""
        self._expected.clear()
        self._publish(image, difference(self.image, image))

    def _publish(self, image: Image, delta: Delta) -> None:
        self.image = image
        for subscriber in self._subscribers:
            subscriber(image, delta)
