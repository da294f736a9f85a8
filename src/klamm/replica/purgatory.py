"""Where operations wait: an acknowledgement for its offset, a fetch for its bytes.

Nothing is polled. An operation hangs on the partitions it waits for; a partition that moves asks those, and only
those, whether that is enough; one timer each ends the wait. The number of held operations is bounded: what does not
fit is answered as if its time were up.

An operation is completed on the next turn of the loop, never from inside the append that made it possible: the
producer's answer leaves first, an append that touches several partitions wakes a fetch once, and a failure in one
connection's answer cannot surface in another's request. This module must never read or write a log.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from klamm.replica.partition import Partition

MAX_HELD = 100_000  # the server's limits on connections and requests in flight are far below; this is the backstop


class Delayed:
    """An operation that waits on partitions. `slot` tells it which of its partitions is meant."""

    __slots__ = ("_partitions", "_purgatory", "_timer")

    ends_early: ClassVar[bool] = False
    """Whether an answer before its time is as good as one later: so for a fetch, which then has less in it."""

    def __init__(self) -> None:
        self._purgatory: Purgatory | None = None  # None: not held (any more)
        self._partitions: Sequence[Partition | None] = ()
        self._timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def progress(self, partition: Partition, slot: int) -> bool:
        """The partition's offsets moved. Whether the wait is over."""

    @abstractmethod
    def interrupt(self, partition: Partition, slot: int) -> bool:
        """The partition's leadership, or its very existence, changed. Whether the wait is over."""

    @abstractmethod
    def complete(self, timed_out: bool) -> None:
        """Called once, on the loop, unless the operation was cancelled first."""

    def moved(self, partition: Partition, slot: int) -> None:
        if self.progress(partition, slot):
            self._release()

    def interrupted(self, partition: Partition, slot: int) -> None:
        if self.interrupt(partition, slot):
            self._release()

    def cancel(self) -> None:
        """Nobody wants the result any more."""
        if self._purgatory is not None:
            self._let_go()

    def _release(self) -> None:
        purgatory = self._purgatory
        if purgatory is not None:
            self._let_go()
            purgatory.loop.call_soon(self.complete, False)

    def _expire(self) -> None:
        if self._purgatory is not None:
            self._let_go()
            self.complete(True)

    def _let_go(self) -> None:
        assert self._purgatory is not None
        del self._purgatory.operations[self]
        self._purgatory = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._partitions:
            if partition is not None:
                partition.waiters.pop(self, None)
        self._partitions = ()


class Purgatory:
    """What is held, and the loop that the timers run on."""

    __slots__ = ("loop", "max_held", "operations")

    def __init__(self, loop: asyncio.AbstractEventLoop, max_held: int = MAX_HELD) -> None:
        self.loop = loop
        self.max_held = max_held
        self.operations: dict[Delayed, None] = {}  # in the order in which they came

    @property
    def held(self) -> int:
        return len(self.operations)

    def hold(self, operation: Delayed, partitions: Sequence[Partition | None], timeout_s: float) -> bool:
        """Hold until a partition says so or the time is up. False: there is no room, the caller completes it."""
        if len(self.operations) >= self.max_held:
            return False
        self.operations[operation] = None
        operation._purgatory = self
        operation._partitions = partitions
        operation._timer = self.loop.call_later(timeout_s, operation._expire)
        for slot, partition in enumerate(partitions):
            if partition is not None:
                partition.waiters[operation] = slot
        return True

    def hurry(self) -> None:
        """The broker stops: whoever can be answered now is."""
        for operation in list(self.operations):
            if operation.ends_early:
                operation._expire()
