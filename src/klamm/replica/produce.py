"""Waiting for an append to be safe enough: written (acks=1) or committed (acks=-1).

Only what was not so when the append returned comes here: on a single broker whose disk keeps up that is nothing.
This module must never append.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from klamm.core.errors import ErrorCode
from klamm.replica.purgatory import Delayed

if TYPE_CHECKING:
    from klamm.replica.partition import Partition
    from klamm.replica.purgatory import Purgatory

ALL = -1  # acks: every in-sync replica has it
LEADER = 1  # acks: the leader has it
NOBODY = 0  # acks: no answer at all


class Awaited:
    """One append whose acknowledgement is due when its partition has got past `last_offset`."""

    __slots__ = ("epoch", "error", "last_offset", "partition")

    def __init__(self, partition: Partition, last_offset: int) -> None:
        self.partition = partition
        self.last_offset = last_offset
        self.epoch = partition.leader_epoch
        self.error: ErrorCode | None = None  # None: still waiting


class DelayedProduce(Delayed):
    """Ends when every append is acknowledged or has failed, or when the time is up."""

    __slots__ = ("_acks", "_awaited", "_missing", "_on_done")

    def __init__(self, awaited: Sequence[Awaited], acks: int, on_done: Callable[[Sequence[Awaited]], None]) -> None:
        super().__init__()
        self._awaited = awaited
        self._acks = acks
        self._on_done = on_done
        self._missing = len(awaited)

    def hold(self, purgatory: Purgatory, timeout_s: float) -> bool:
        return purgatory.hold(self, [a.partition for a in self._awaited], timeout_s)

    def progress(self, partition: Partition, slot: int) -> bool:
        awaited = self._awaited[slot]
        if awaited.error is None:
            awaited.error = partition.acknowledgement(awaited.last_offset, awaited.epoch, self._acks)
            if awaited.error is not None:
                self._missing -= 1
        return not self._missing

    def interrupt(self, partition: Partition, slot: int) -> bool:
        return self.progress(partition, slot)

    def complete(self, timed_out: bool) -> None:
        for awaited in self._awaited:
            if awaited.error is None:  # or a request that names a partition twice: only one of them was told
                partition = awaited.partition
                error = partition.acknowledgement(awaited.last_offset, awaited.epoch, self._acks)
                awaited.error = ErrorCode.REQUEST_TIMED_OUT if error is None else error
        self._on_done(self._awaited)
