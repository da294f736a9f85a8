"""The time limits of one shard: a heap of moments, each under a key.

Most limits are put off again and again (a member that is heard of) and hardly ever reached. So putting one off only
notes the later moment; the heap learns of it when the earlier one comes up. A timer says which key is due and nothing
more: what to do then is decided by the part of the machine that the key names. Must never read a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

_SLACK = 64
"""Entries of timers that are gone, beyond as many as are alive, before the heap is made anew."""


class TimerKey(NamedTuple):
    """Whose limit it is. One timer for each key: setting it again moves it."""

    part: str
    """The part of the machine that is called: "classic", "consumer", "offsets"."""
    what: str
    group_id: str = ""
    member_id: str = ""


class Timers:
    """Bounded by its keys: the heap has at most twice as many entries, and `_SLACK`."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[TimerKey, float] = {}
        self._heap: list[tuple[float, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __iter__(self) -> Iterator[TimerKey]:
        return iter(self._due)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._due

    def due(self, key: TimerKey) -> float | None:
        return self._due.get(key)

    def set(self, key: TimerKey, due: float) -> None:
        """`due` on the monotonic clock."""
        old = self._due.get(key)
        self._due[key] = due
        if old is None or due < old:
            heapq.heappush(self._heap, (due, key))
            if len(self._heap) > 2 * len(self._due) + _SLACK:
                self._heap = [(moment, key) for key, moment in self._due.items()]
                heapq.heapify(self._heap)

    def cancel(self, key: TimerKey) -> None:
        """One that is not set is fine."""
        self._due.pop(key, None)

    @property
    def next_due(self) -> float | None:
        """When to look again: at or before the first limit."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> TimerKey | None:
        """One whose moment has come; it is not set any more."""
        self._settle()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, key = heapq.heappop(self._heap)
        del self._due[key]
        return key

    def _settle(self) -> None:
        """Bring the first entry up to what it stands for now."""
        heap = self._heap
        while heap:
            moment, key = heap[0]
            due = self._due.get(key)
            if due == moment:
                return
            if due is None or due < moment:  # cancelled; or there is an earlier entry, which was here before
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (due, key))
