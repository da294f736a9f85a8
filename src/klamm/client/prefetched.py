"""What was fetched and waits to be taken, in the order in which it came. Pure.

What belongs to a partition that is paused, or that its group holds, is set aside and comes back with it. Only what can
be taken counts for the bound of prefetching, or paused partitions would keep the others from being read; so what is set
aside has the same bound of its own: beyond it a partition's bytes are let go, and will be fetched again.
"""

from __future__ import annotations

from collections import deque

from klamm.client.cursor import Cursor
from klamm.client.subscription import Subscriptions


class Prefetched:
    def __init__(self, subscriptions: Subscriptions, max_aside_bytes: int) -> None:
        self._subscriptions = subscriptions
        self._max_aside_bytes = max_aside_bytes
        self._version = subscriptions.version
        self._ready: deque[Cursor] = deque()
        self._aside: list[Cursor] = []
        self._size = 0

    def put(self, cursor: Cursor) -> None:
        self._sort_out()
        if cursor.state.is_wanted:
            self._ready.append(cursor)
            self._size += cursor.size
        else:
            cursor.detach()
            self._aside.append(cursor)

    @property
    def size(self) -> int:
        """Bytes that can be taken."""
        self._sort_out()
        return self._size

    def first(self) -> Cursor | None:
        self._sort_out()
        return self._ready[0] if self._ready else None

    def drop_first(self) -> None:
        """It has been taken."""
        self._size -= self._ready.popleft().size

    def clear(self) -> None:
        self._ready.clear()
        self._aside.clear()
        self._size = 0

    def _sort_out(self) -> None:
        """Look again at what can be taken, if anything has changed. What was set aside is older than what is ready."""
        if self._version == self._subscriptions.version:
            return
        self._version = self._subscriptions.version
        kept = [cursor for cursor in (*self._aside, *self._ready) if not cursor.is_stale]
        self._ready = deque(cursor for cursor in kept if cursor.state.is_wanted)
        self._aside = [cursor for cursor in kept if not cursor.state.is_wanted]
        self._size = sum(cursor.size for cursor in self._ready)
        for cursor in self._aside:
            cursor.detach()
        aside_bytes = sum(cursor.size for cursor in self._aside)
        while aside_bytes > self._max_aside_bytes:
            last = self._aside[-1].state
            aside_bytes -= sum(cursor.size for cursor in self._aside if cursor.state is last)
            self._aside = [cursor for cursor in self._aside if cursor.state is not last]
            last.go_back()
