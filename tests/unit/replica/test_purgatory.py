"""Held operations: who wakes them, when they end, what they look at. Time is virtual, the log does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from klamm.core.env import FileRange
from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.log.config import LogConfig
from klamm.log.epochs import LeaderEpochs
from klamm.log.results import Appended, Rejected
from klamm.replica.fetch import DelayedFetch, Fetched, Limits, Wanted, read_all
from klamm.replica.partition import Partition
from klamm.replica.produce import ALL, LEADER, Awaited, DelayedProduce
from klamm.replica.purgatory import Purgatory
from klamm.testing.sim.loop import SimLoop


class FakeLog:
    """Each append is one record of `len(records)` bytes. With `queueing`, `end_offset` waits for `write`."""

    def __init__(self, queueing: bool = False) -> None:
        self.queueing = queueing
        self.sizes: list[int] = []
        self.start_offset = 0
        self.end_offset = 0
        self.failure: str | None = None
        self.listener: Callable[[FakeLog], None] | None = None
        self.epochs = LeaderEpochs()
        self.stable: int | None = None
        self.config = LogConfig()
        self.reads = 0

    def append(self, records: bytes, *, leader_epoch: int) -> Appended | Rejected:
        if self.failure:
            return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        offset = len(self.sizes)
        self.sizes.append(len(records))
        self.epochs.assign(leader_epoch, offset)
        if not self.queueing:
            self.end_offset = len(self.sizes)
        return Appended(offset, offset, -1)

    def write(self, count: int = 1) -> None:
        """The disk has caught up by some records."""
        self.end_offset += count
        assert self.listener is not None
        self.listener(self)

    def fail(self) -> None:
        self.failure = "the disk is gone"
        assert self.listener is not None
        self.listener(self)

    def read(self, offset: int, max_bytes: int, *, limit: int, min_one: bool = True) -> FileRange | Rejected | None:
        self.reads += 1
        if self.failure:
            return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        if not self.start_offset <= offset <= self.end_offset:
            return Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, "")
        if offset >= limit:
            return None
        size = sum(self.sizes[offset:limit])
        if size > max_bytes:
            size = max(max_bytes, self.sizes[offset] if min_one else 0)
        return FileRange(None, sum(self.sizes[:offset]), size)  # type: ignore[arg-type]

    def last_stable_offset(self, high_watermark: int) -> int:
        return high_watermark if self.stable is None else min(self.stable, high_watermark)

    def aborted_transactions(self, start: int, end: int, read: object = None) -> list[tuple[int, int]]:
        return []


class Replicas:
    """Stands in for the ReplicaManager: partitions of one topic."""

    def __init__(self, count: int, queueing: bool = False) -> None:
        self.logs = [FakeLog(queueing) for _ in range(count)]
        self.partitions = [Partition("t", b"i" * 16, i) for i in range(count)]
        for partition, log in zip(self.partitions, self.logs, strict=True):
            partition.lead(log, 1, 0, isr_size=1, min_isr=1)  # type: ignore[arg-type]

    def find(self, topic: str, index: int) -> Partition | None:
        return self.partitions[index] if topic == "t" and index < len(self.partitions) else None

    def append(self, index: int, size: int) -> None:
        assert isinstance(self.partitions[index].append(bytearray(size), ALL), Appended)
        self.partitions[index].wake()


class Fetch:
    """A fetch of all partitions, held, and what came of it."""

    def __init__(
        self,
        purgatory: Purgatory,
        replicas: Replicas,
        *,
        min_bytes: int = 1,
        max_bytes: int = 10_000,
        wait_s: float = 5,
        committed: bool = False,
    ) -> None:
        self.results: list[Fetched] | None = None
        wanted = [Wanted("t", ZERO_UUID, i, log.end_offset, 10_000) for i, log in enumerate(replicas.logs)]
        limits = Limits(committed=committed, min_bytes=min_bytes, max_bytes=max_bytes)
        first, self.ready = read_all(replicas, wanted, limits)  # type: ignore[arg-type]
        self.operation = DelayedFetch(replicas, wanted, limits, first, self._done)  # type: ignore[arg-type]
        if not self.ready:
            self.held = self.operation.hold(purgatory, first, wait_s)

    def _done(self, results: list[Fetched]) -> None:
        self.results = results

    @property
    def sizes(self) -> list[int]:
        assert self.results is not None
        return [r.records.size if r.records else 0 for r in self.results]


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(1)
    yield loop
    loop.close()


@pytest.fixture
def purgatory(loop: SimLoop) -> Purgatory:
    return Purgatory(loop)


def settle(loop: SimLoop, seconds: float = 0) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_a_fetch_of_an_empty_partition_is_held_and_an_append_completes_it(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(1)
    fetch = Fetch(purgatory, replicas)
    assert not fetch.ready and purgatory.held == 1
    replicas.append(0, 100)
    assert fetch.results is None, "never from inside the append"
    settle(loop)
    assert fetch.sizes == [100]
    assert purgatory.held == 0 and not replicas.partitions[0].waiters


def test_a_fetch_whose_time_is_up_is_answered_with_what_there_is(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(2)
    fetch = Fetch(purgatory, replicas, min_bytes=1000, wait_s=2)
    replicas.append(1, 100)
    settle(loop, 1.9)
    assert fetch.results is None
    settle(loop, 0.2)
    assert fetch.sizes == [0, 100]
    assert purgatory.held == 0


def test_min_bytes_count_over_all_partitions(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(3)
    fetch = Fetch(purgatory, replicas, min_bytes=250)
    replicas.append(0, 100)
    replicas.append(1, 100)
    settle(loop)
    assert fetch.results is None
    replicas.append(0, 50)
    settle(loop)
    assert fetch.sizes == [150, 100, 0]


def test_only_the_partition_that_moved_is_looked_at(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(50)
    fetch = Fetch(purgatory, replicas, min_bytes=1000)
    for log in replicas.logs:
        log.reads = 0
    for _ in range(9):
        replicas.append(7, 100)
    assert sum(log.reads for log in replicas.logs) == replicas.logs[7].reads == 9
    replicas.append(7, 100)
    settle(loop)
    assert sum(fetch.sizes) == 1000
    assert sum(log.reads for log in replicas.logs) == replicas.logs[7].reads, "the empty results of the others stand"


def test_several_appends_before_the_next_turn_of_the_loop_are_one_answer(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(2)
    fetch = Fetch(purgatory, replicas)
    for partition in replicas.partitions:
        partition.append(bytearray(10), ALL)
    for partition in replicas.partitions:
        partition.wake()
    settle(loop)
    assert fetch.sizes == [10, 10]


def test_a_committed_fetch_is_not_woken_by_an_open_transaction(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(1)
    fetch = Fetch(purgatory, replicas, committed=True)
    replicas.logs[0].stable = 0
    replicas.append(0, 100)
    settle(loop)
    assert fetch.results is None
    replicas.logs[0].stable = None
    replicas.partitions[0].wake()
    settle(loop)
    assert fetch.sizes == [100]


@pytest.mark.parametrize(
    ("happening", "error"),
    [
        (lambda r: r.logs[0].fail(), ErrorCode.KAFKA_STORAGE_ERROR),
        (
            lambda r: r.partitions[0].stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 1),
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ),
        (
            lambda r: r.partitions[0].stop_leading(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    ],
)
def test_a_partition_that_can_no_longer_be_read_ends_the_wait_with_its_error(
    loop: SimLoop, purgatory: Purgatory, happening: Callable[[Replicas], None], error: ErrorCode
) -> None:
    replicas = Replicas(2)
    fetch = Fetch(purgatory, replicas)
    happening(replicas)
    settle(loop)
    assert fetch.results is not None
    assert [r.error for r in fetch.results] == [error, ErrorCode.NONE]


def test_a_new_leader_epoch_ends_the_wait(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(1)
    fetch = Fetch(purgatory, replicas)
    replicas.partitions[0].lead(replicas.logs[0], 1, 1, isr_size=1, min_isr=1)  # type: ignore[arg-type]
    settle(loop)
    assert fetch.results is not None


def test_an_error_is_not_held_back(purgatory: Purgatory) -> None:
    replicas = Replicas(2)
    replicas.logs[1].fail()
    assert Fetch(purgatory, replicas).ready


def test_a_cancelled_operation_leaves_nothing_behind(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(3)
    fetch = Fetch(purgatory, replicas)
    fetch.operation.cancel()
    fetch.operation.cancel()
    assert purgatory.held == 0 and not any(p.waiters for p in replicas.partitions)
    replicas.append(0, 1)
    settle(loop, 10)
    assert fetch.results is None


def test_the_number_of_held_operations_is_bounded(loop: SimLoop) -> None:
    purgatory = Purgatory(loop, max_held=2)
    replicas = Replicas(1)
    fetches = [Fetch(purgatory, replicas) for _ in range(3)]
    assert [f.held for f in fetches] == [True, True, False]


def test_the_first_batch_is_whole_and_the_rest_fits_max_bytes(purgatory: Purgatory) -> None:
    replicas = Replicas(3)
    wanted = [Wanted("t", ZERO_UUID, i, 0, 10_000) for i in range(3)]
    for i in range(3):
        replicas.append(i, 100)
    limits = Limits(committed=False, min_bytes=1, max_bytes=150)
    results, ready = read_all(replicas, wanted, limits)  # type: ignore[arg-type]
    assert ready and [r.records.size if r.records else 0 for r in results] == [100, 50, 0]
    limits = Limits(committed=False, min_bytes=1, max_bytes=1)
    results, ready = read_all(replicas, wanted, limits)  # type: ignore[arg-type]
    assert ready and [r.records.size if r.records else 0 for r in results] == [100, 0, 0]


class Produce:
    def __init__(self, purgatory: Purgatory, replicas: Replicas, acks: int = ALL, wait_s: float = 5) -> None:
        self.errors: list[ErrorCode | None] | None = None
        awaited = []
        for partition in replicas.partitions:
            result = partition.append(bytearray(1), acks)
            assert isinstance(result, Appended)
            awaited.append(Awaited(partition, result.last_offset))
        self.operation = DelayedProduce(awaited, acks, lambda done: self._done([a.error for a in done]))
        self.operation.hold(purgatory, wait_s)

    def _done(self, errors: list[ErrorCode | None]) -> None:
        self.errors = errors


@pytest.mark.parametrize("acks", [ALL, LEADER])
def test_an_acknowledgement_waits_until_every_partition_has_written(
    loop: SimLoop, purgatory: Purgatory, acks: int
) -> None:
    replicas = Replicas(2, queueing=True)
    produce = Produce(purgatory, replicas, acks)
    replicas.logs[0].write()
    settle(loop)
    assert produce.errors is None
    replicas.logs[1].write()
    settle(loop)
    assert produce.errors == [ErrorCode.NONE, ErrorCode.NONE]
    assert purgatory.held == 0


def test_an_earlier_write_does_not_acknowledge_a_later_append(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(1, queueing=True)
    first = Produce(purgatory, replicas)
    second = Produce(purgatory, replicas)
    replicas.logs[0].write()
    settle(loop)
    assert first.errors == [ErrorCode.NONE] and second.errors is None


def test_an_append_that_is_not_written_in_time_times_out_alone(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(2, queueing=True)
    produce = Produce(purgatory, replicas, wait_s=1)
    replicas.logs[0].write()
    settle(loop, 2)
    assert produce.errors == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]


def test_a_log_that_fails_fails_those_who_wait_for_it(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(1, queueing=True)
    produce = Produce(purgatory, replicas)
    replicas.logs[0].fail()
    settle(loop)
    assert produce.errors == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_losing_the_leadership_fails_those_who_wait_for_followers(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(1, queueing=True)
    produce = Produce(purgatory, replicas)
    replicas.partitions[0].stop_leading(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 1)
    settle(loop)
    assert produce.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_write_wakes_the_fetches_too(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(1, queueing=True)
    fetch = Fetch(purgatory, replicas)
    replicas.append(0, 70)
    settle(loop)
    assert fetch.results is None
    replicas.logs[0].write()
    settle(loop)
    assert fetch.sizes == [70]


def test_a_stop_answers_fetches_at_once_and_lets_acknowledgements_wait(loop: SimLoop, purgatory: Purgatory) -> None:
    replicas = Replicas(1, queueing=True)
    fetch = Fetch(purgatory, replicas, wait_s=600)
    produce = Produce(purgatory, replicas)
    purgatory.hurry()
    assert fetch.sizes == [0] and produce.errors is None
    replicas.logs[0].write()
    settle(loop)
    assert produce.errors == [ErrorCode.NONE]
