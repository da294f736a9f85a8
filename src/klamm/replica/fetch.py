"""Fetching over many partitions: what is wanted, what was found, and the wait for more.

The rules are Kafka's: partitions are read in the order they were asked for until `max_bytes` is used up; the first
batch found is given whole however small the limits are (KIP-74), so that a fetcher always gets on; an answer waits for
`min_bytes` at most `max_wait`, and an error or a diverging epoch is never held back.

A held fetch is looked at again only where something happened: one partition moved, one partition is looked at. Nothing
is polled. This module must never block: whether the bytes are in the page cache is the caller's concern.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from klamm.core.env import FileRange
from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.replica.purgatory import Delayed

if TYPE_CHECKING:
    from klamm.log.txn_index import AbortedTxn
    from klamm.replica.manager import ReplicaManager
    from klamm.replica.partition import Partition
    from klamm.replica.purgatory import Purgatory

CONSUMER = -1  # the replica id of everybody who is not a follower

MAX_RANGES = 1000
"""Partitions that one answer carries records of: each is an open file until the answer is sent. The others are there
for the next fetch, as if the answer's bytes were used up."""


class Wanted:
    """One partition that a fetcher asks for, and from where. Also what its session remembers of the last answer."""

    __slots__ = (
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start",
        "max_bytes",
        "offset",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        offset: int,
        max_bytes: int,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start: int = -1,
    ) -> None:
        self.topic = topic  # "" where the fetcher goes by id
        self.topic_id = topic_id
        self.index = index
        self.offset = offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start = log_start
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    @property
    def key(self) -> tuple[str | bytes, int]:
        return (self.topic or self.topic_id), self.index


class Fetched:
    """What one partition gave. Offsets are -1 where they are not known, `records` None where there are none."""

    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "partition",
        "preferred_replica",
        "records",
        "wanted",
    )

    def __init__(
        self,
        wanted: Wanted,
        partition: Partition | None,
        error: ErrorCode = ErrorCode.NONE,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        records: FileRange | None = None,
        aborted: Sequence[AbortedTxn] | None = None,
    ) -> None:
        self.wanted = wanted
        self.partition = partition
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.aborted = aborted
        self.diverging: tuple[int, int] | None = None  # (epoch, end offset) where the fetcher's log leaves ours
        self.preferred_replica = -1  # KIP-392: the seam for fetching from a closer replica

    def is_stale(self) -> bool:
        """Whether the partition has moved since."""
        partition = self.partition
        return partition is None or partition.high_watermark != self.high_watermark or bool(partition.available())


class Limits:
    """How one fetch is to be answered."""

    __slots__ = ("committed", "max_bytes", "min_bytes", "replica_id")

    def __init__(self, *, committed: bool, min_bytes: int, max_bytes: int, replica_id: int = CONSUMER) -> None:
        self.committed = committed
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.replica_id = replica_id


def read_all(
    replicas: ReplicaManager, wanted: Sequence[Wanted], limits: Limits, known: Sequence[Fetched | None] | None = None
) -> tuple[list[Fetched], bool]:
    """The results in the order of `wanted`, and whether they may be sent at once.

    `known` holds results that stand already, by slot (they are without records and take nothing of the budget).
    """
    results: list[Fetched] = []
    left = limits.max_bytes
    found = ranges = 0
    urgent = False
    for slot, want in enumerate(wanted):
        result = known[slot] if known is not None else None
        if result is None:
            result = read_one(replicas, want, limits, left, found == 0)
            if result.records is not None:
                left -= result.records.size
                found += result.records.size
                ranges += 1
                if ranges == MAX_RANGES:
                    left = 0
        if result.error or result.diverging is not None or result.preferred_replica >= 0:
            urgent = True
        results.append(result)
    return results, urgent or found >= limits.min_bytes or not wanted


def read_one(replicas: ReplicaManager, want: Wanted, limits: Limits, left: int, min_one: bool) -> Fetched:
    by_id = want.topic_id is not ZERO_UUID and want.topic_id != ZERO_UUID
    partition = replicas.find_by_id(want.topic_id, want.index) if by_id else replicas.find(want.topic, want.index)
    if partition is None:
        missing = by_id and not replicas.knows_id(want.topic_id)
        return Fetched(want, None, ErrorCode.UNKNOWN_TOPIC_ID if missing else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return partition.fetch(want, want.max_bytes if want.max_bytes < left else left, min_one, limits)


class DelayedFetch(Delayed):
    """A fetch that found less than it asked for.

    With `min_bytes` up to 1, which nearly every client sends, a look is a comparison of two offsets; above it, one
    index lookup in the partition that moved.
    """

    __slots__ = ("_bytes", "_known", "_limits", "_on_done", "_replicas", "_sizes", "_wanted")

    ends_early = True

    def __init__(
        self,
        replicas: ReplicaManager,
        wanted: Sequence[Wanted],
        limits: Limits,
        results: Sequence[Fetched],
        on_done: Callable[[list[Fetched]], None],
    ) -> None:
        super().__init__()
        self._replicas = replicas
        self._wanted = wanted
        self._limits = limits
        self._on_done = on_done
        self._sizes = [0 if r.records is None else r.records.size for r in results]
        self._bytes = sum(self._sizes)
        # An empty result stands until its partition moves. One with records does not: its file is not pinned.
        # Nor does a follower's: it sees more than the high watermark tells of.
        keep = limits.replica_id == CONSUMER
        self._known: list[Fetched | None] = [r if keep and r.records is None else None for r in results]

    def hold(self, purgatory: Purgatory, results: Sequence[Fetched], timeout_s: float) -> bool:
        return purgatory.hold(self, [r.partition for r in results], timeout_s)

    def progress(self, partition: Partition, slot: int) -> bool:
        self._known[slot] = None
        if partition.available():
            return True
        want = self._wanted[slot]
        limits = self._limits
        if limits.min_bytes <= 1:
            return partition.limit(limits) > want.offset
        nothing_else = self._bytes == self._sizes[slot]  # then the first batch here will be given whole
        result = partition.fetch(want, want.max_bytes, nothing_else, limits)
        size = 0 if result.records is None else result.records.size
        self._bytes += size - self._sizes[slot]
        self._sizes[slot] = size
        return bool(result.error) or self._bytes >= limits.min_bytes

    def interrupt(self, partition: Partition, slot: int) -> bool:
        self._known[slot] = None
        return True

    def complete(self, timed_out: bool) -> None:
        known = self._known
        for slot, result in enumerate(known):
            # Partitions that moved after the one that ended the wait have not told us any more.
            if result is not None and result.is_stale():
                known[slot] = None
        results, _ = read_all(self._replicas, self._wanted, self._limits, known)
        self._on_done(results)
