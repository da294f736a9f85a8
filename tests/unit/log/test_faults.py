"""Disks that are full, broken or slow."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from klamm.core.errors import ErrorCode
from klamm.log.results import Appended, Rejected
from klamm.log.txn_index import AbortedTxn
from klamm.log.writer import MAX_QUEUED_BYTES, SLOW_WRITE_S
from klamm.records.record import ControlType, EndMarker, encode_end_marker
from klamm.testing.sim.faults import NAME, READ, SYNC, WRITE


def bases(world: Any) -> list[int]:
    return [header.base_offset for header, _ in world.batches()]


@pytest.mark.parametrize("free", range(0, 200, 7))
def test_a_full_disk_refuses_the_append_and_leaves_no_trace(world: Any, free: int) -> None:
    world.fill(3)
    size = len(world.file_bytes("00000000000000000000.log"))
    world.disk.fill(free)
    result = world.append(1, 200, base_sequence=0, producer_id=1, producer_epoch=0)
    assert result.code == ErrorCode.KAFKA_STORAGE_ERROR and world.log.failure is None
    assert len(world.file_bytes("00000000000000000000.log")) == size
    assert bases(world) == [0, 1, 2]
    world.disk.capacity_bytes = None
    retried = world.append(1, 200, base_sequence=0, producer_id=1, producer_epoch=0)
    assert retried == Appended(3, 3, -1)
    world.kill()
    assert bases(world) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [WRITE, NAME, SYNC])
@pytest.mark.parametrize("after", range(12))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_at_any_operation_is_answered_and_nothing_acknowledged_is_lost(
    world: Any, kind: str, after: int, code: int
) -> None:
    world.configure(segment_bytes=500)
    world.disk.faults.fail(kind, after=after, code=code)
    acknowledged = []
    for i in range(30):
        result = world.append(1, 20, base_sequence=len(acknowledged), producer_id=1, producer_epoch=0)
        if isinstance(result, Appended):
            assert not result.duplicate and result.base_offset == len(acknowledged)
            acknowledged.append(i)
        else:
            assert result.code == ErrorCode.KAFKA_STORAGE_ERROR
    if world.log.failure is None:
        assert len(acknowledged) >= 29 and bases(world) == list(range(len(acknowledged)))
    world.save()
    world.kill()
    assert world.log.failure is None
    assert bases(world) == list(range(len(acknowledged)))


@pytest.mark.parametrize("after", range(4))
def test_too_many_open_files_when_a_log_is_first_used_pass(world: Any, after: int) -> None:
    for i in range(5):
        world.append(1, 20, base_sequence=i, producer_id=1, producer_epoch=0)
    world.reopen()
    world.disk.faults.fail(READ, after=after, code=errno.EMFILE)
    world.do(world.log.read, 2, 100, limit=100)
    world.append(1, 20, base_sequence=5, producer_id=1, producer_epoch=0)
    assert world.log.failure is None
    world.append(1, 20, base_sequence=5, producer_id=1, producer_epoch=0)
    assert bases(world) == list(range(6))


@pytest.mark.parametrize("kind", [WRITE, NAME])
@pytest.mark.parametrize("after", range(3))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_transaction_that_cannot_be_aborted_now_is_aborted_later(
    world: Any, kind: str, after: int, code: int
) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    world.append(base_sequence=0, **producer)
    world.fill(1)
    marker = encode_end_marker(EndMarker(ControlType.ABORT, 0), producer_id=7, producer_epoch=0, timestamp=0)

    def abort() -> Any:
        return world.do(world.log.append, bytearray(marker), leader_epoch=0, from_client=False)

    world.disk.faults.fail(kind, after=after, code=code)
    result = abort()
    if isinstance(result, Rejected):
        assert result.code == ErrorCode.KAFKA_STORAGE_ERROR and world.log.failure is None
        assert world.log.last_stable_offset(world.log.end_offset) == 0
        assert not world.log.aborted_transactions(0, 9)
        assert abort() == Appended(2, 2, -1)
    expected = [AbortedTxn(7, 0, 2, 3)]
    assert world.log.aborted_transactions(0, 9) == expected
    assert world.log.last_stable_offset(world.log.end_offset) == 3
    world.disk.faults._failures.clear()
    for restart in (world.kill, world.reopen):
        restart()
        assert world.log.aborted_transactions(0, 9) == expected
        assert bases(world) == [0, 1, 2]


@pytest.mark.parametrize("limits", [{"segment_bytes": 77}, {"max_message_bytes": 77}])
def test_no_limit_of_sizes_keeps_a_transaction_from_ending(world: Any, limits: dict[str, int]) -> None:
    world.configure(**limits)
    world.append(size=0, base_sequence=0, producer_id=7, producer_epoch=0, transactional=True)
    marker = encode_end_marker(EndMarker(ControlType.COMMIT, 0), producer_id=7, producer_epoch=0, timestamp=0)
    assert len(marker) == 78
    assert world.do(world.log.append, bytearray(marker), leader_epoch=0, from_client=False) == Appended(1, 1, -1)
    assert world.log.last_stable_offset(2) == 2


def test_a_broken_disk_takes_the_log_offline(world: Any) -> None:
    world.fill(3)
    world.disk.faults.fail(WRITE)
    assert world.append().code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "write failed" in world.log.failure
    assert world.append().code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log.read(0, 10, limit=10).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.do(world.log.append_as_follower, world.batch(base_offset=3)).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log.offset_for_timestamp(0, 10).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.flush().code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.close() is None  # not a clean stop
    world.kill()
    assert bases(world) == [0, 1, 2]


def test_a_failed_sync_takes_the_log_offline_and_tells_the_listener(world: Any) -> None:
    told: list[str] = []
    world.fill(3)
    world.log.listener = lambda log: told.append(log.failure)
    world.disk.faults.fail(SYNC)
    assert world.flush().code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(told) == 1 and "flush failed" in told[0]
    assert world.log.recovery_point == 0


def test_a_close_that_fails_is_not_clean(world: Any) -> None:
    world.fill(3)
    world.disk.faults.fail(SYNC)
    assert world.close() is None
    world.kill()
    assert bases(world) == [0, 1, 2]


def test_recovery_on_a_full_disk_serves_what_is_there(world: Any) -> None:
    world.configure(segment_bytes=500)
    world.fill(20)
    world.disk.fill(0)
    world.kill()
    assert world.log.failure is None and bases(world) == list(range(20))
    assert world.log.recovery_point == 0  # what recovery found out could not be saved
    world.disk.capacity_bytes = None
    world.fill(3)
    world.flush()
    assert world.log.recovery_point == 23
    world.reopen()
    assert bases(world) == list(range(23))


# ---- slow disks


def make_slow(world: Any) -> None:
    """One slow write; the jobs of the writer wait until the test lets them run."""
    world.disk.faults.write_s = 2 * SLOW_WRITE_S
    world.append()
    world.executor.hold = True


def drain(world: Any) -> None:
    while world.executor.jobs:
        world.executor.run_next()
        world.turn()


def test_a_slow_write_moves_the_log_to_the_ordered_writer_and_back(world: Any) -> None:
    told: list[int] = []
    world.log.listener = lambda log: told.append(log.end_offset)
    make_slow(world)
    assert world.log.end_offset == 1  # the slow one itself was inline
    assert world.append(2) == Appended(1, 2, -1)
    assert world.append(3) == Appended(3, 5, -1)
    assert world.log.end_offset == 1 and told == []
    assert world.read(1) is None
    world.executor.run_next()
    world.turn()
    assert world.log.end_offset == 3 and told == [3]  # jobs hold what was there when they started
    world.append(1)
    world.disk.faults.write_s = 0.0
    drain(world)
    assert world.log.end_offset == 7 and told == [3, 6, 7]
    world.append(1)
    assert world.log.end_offset == 8 and told == [3, 6, 7]  # inline again
    assert bases(world) == [0, 1, 3, 6, 7]
    world.executor.hold = False
    world.reopen()
    assert bases(world) == [0, 1, 3, 6, 7]


def test_a_retry_of_a_queued_batch_is_a_duplicate_of_it(world: Any) -> None:
    options = {"producer_id": 1, "producer_epoch": 0}
    make_slow(world)
    assert world.append(2, base_sequence=0, **options) == Appended(1, 2, -1)
    assert world.append(2, base_sequence=0, **options) == Appended(1, 2, -1, True)
    assert world.log.end_offset == 1


def test_the_queue_is_bounded_and_says_so_with_a_retriable_error(world: Any) -> None:
    world.configure(max_message_bytes=MAX_QUEUED_BYTES)
    make_slow(world)
    third = MAX_QUEUED_BYTES // 3
    results = [world.append(1, third) for _ in range(4)]
    assert [isinstance(result, Appended) for result in results] == [True, True, False, False]
    assert results[2].code == ErrorCode.REQUEST_TIMED_OUT and results[2].code.retriable
    world.executor.hold = False
    world.executor.run_all()
    world.turn()
    assert world.log.end_offset == 3
    assert isinstance(world.append(1, third), Appended)


def test_a_log_rolls_with_writes_in_the_queue(world: Any) -> None:
    world.configure(segment_bytes=3 * len(world.batch()))
    make_slow(world)
    for i in range(10):
        assert world.append().base_offset == 1 + i
    assert [s.base_offset for s in world.log._segments.items] == [0, 3, 6, 9]
    assert world.log.end_offset == 1 and bases(world) == [0]
    for _ in range(20):
        if world.executor.jobs:
            world.executor.run_next()
            world.turn()
            assert bases(world) == list(range(world.log.end_offset))
    assert bases(world) == list(range(11)) and world.log.recovery_point == 9
    world.executor.hold = False
    world.reopen()
    assert bases(world) == list(range(11))


def test_a_kill_with_writes_in_the_queue_loses_only_those(world: Any) -> None:
    make_slow(world)
    world.append()
    world.append()
    world.executor.hold = False
    world.kill()
    assert bases(world) == [0]


@pytest.mark.parametrize("free", [0, 50, 100, 250])
def test_lost_queued_writes_are_reported_and_the_log_goes_on(world: Any, free: int) -> None:
    seen: list[tuple[str | None, int]] = []
    world.configure(segment_bytes=4 * len(world.batch()))
    available: list[bool] = []
    world.log.listener = lambda log: seen.append((log.failure, log.end_offset))
    world.log.on_availability = lambda log: available.append(log.failure is None)
    world.append(1, base_sequence=0, producer_id=1, producer_epoch=0)
    make_slow(world)
    for i in range(6):
        world.append(1, base_sequence=1 + i, producer_id=1, producer_epoch=0)
    world.disk.fill(free)
    world.executor.run_next()
    world.turn()
    while world.log.failure is None:
        world.executor.run_next()
        world.turn()
    assert "No space" in seen[-1][0]
    end = world.log.end_offset
    assert world.append().code == ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.capacity_bytes = None
    world.disk.faults.write_s = 0.0
    world.executor.hold = False
    world.executor.run_all()
    world.turn()
    assert world.log.failure is None and world.log.end_offset == end
    assert available == [False, True]
    # the producer sends again what it has no answer for
    written = end - 2
    assert world.append(1, base_sequence=1 + written, producer_id=1, producer_epoch=0) == Appended(end, end, -1)
    assert bases(world) == list(range(end + 1))
    world.kill()
    assert bases(world) == list(range(end + 1))


def test_a_queued_write_that_fails_for_good_takes_the_log_offline(world: Any) -> None:
    told: list[str] = []
    world.log.listener = lambda log: told.append(log.failure)
    make_slow(world)
    world.append()
    world.disk.faults.fail(WRITE)
    world.executor.run_all()
    world.turn()
    assert "write failed" in world.log.failure and told == [world.log.failure]
    world.settle()
    assert world.close() is None


def test_settling_waits_for_everything(world: Any) -> None:
    make_slow(world)
    world.fill(5)
    world.executor.hold = False
    world.executor.run_all()
    world.settle()
    assert world.log.end_offset == 6
    assert world.log.close().end_offset == 6


# ---- flushing


def test_flush_messages_makes_durable_before_it_counts(world: Any) -> None:
    world.configure(flush_messages=1, segment_bytes=400)
    world.executor.hold = True
    assert world.append() == Appended(0, 0, -1)
    assert world.log.end_offset == 0
    for _ in range(4):
        world.append()
    told: list[int] = []
    world.log.listener = lambda log: told.append(log.end_offset)
    while world.executor.jobs:
        world.executor.run_next()
        world.turn()
        assert world.log.recovery_point <= world.log.end_offset
    assert told[0] == 1 and world.log.end_offset == world.log.recovery_point == 5
    assert len(told) <= 3  # those that waited share a sync
    world.executor.hold = False
    for _ in range(20):
        world.append()
    end = world.log.end_offset
    world.disk.power_loss()  # with a state file from long ago
    world.boot()
    world.open(None, None)
    assert world.log.end_offset == end and bases(world) == list(range(end))


def test_flush_messages_syncs_every_so_often(world: Any) -> None:
    syncs: list[str] = []
    world.configure(flush_messages=10)
    world.disk._observe = lambda operation, path, data: syncs.append(path) if operation == "sync" else None
    for i in range(40):
        world.append()
        assert world.log.end_offset - world.log.recovery_point < 10, i
    assert 3 <= len([path for path in syncs if path.endswith(".log")]) <= 8


def test_a_flush_moves_the_recovery_point_to_what_was_written_when_it_started(world: Any) -> None:
    world.fill(3)
    assert world.log.dirty_since_ms == world.clock.now_ms
    world.executor.hold = True
    futures = [world.do(world.log.flush)]
    world.fill(2)
    futures.append(world.do(world.log.flush))
    futures.append(world.do(world.log.flush))
    assert len(world.executor.jobs) == 1  # one at a time
    world.executor.run_next()
    world.turn()
    assert [future.done() for future in futures] == [True, False, False] and world.log.recovery_point == 3
    assert world.log.dirty_since_ms >= 0
    world.executor.run_next()
    world.turn()
    assert all(future.done() and future.result() is None for future in futures)
    assert world.log.recovery_point == 5 and world.log.dirty_since_ms == -1


def test_a_flush_of_nothing_is_done_at_once(world: Any) -> None:
    assert world.flush() is None
    world.fill(1)
    assert world.flush() is None
    world.executor.hold = True
    assert world.do(world.log.flush).result() is None


def test_a_new_log_survives_a_power_loss_after_its_first_flush(world: Any) -> None:
    for seed in range(20):
        world.disk.rng.seed(seed)
        world.append()
        world.flush()
        end = world.log.end_offset
        world.power_loss()
        assert world.log.failure is None and world.log.end_offset == end


def test_a_discarded_log_stops_its_flush_before_it_writes_by_name(world: Any) -> None:
    world.configure(segment_bytes=500)
    world.executor.hold = True
    world.fill(20)
    world.log.discard()
    names = world.names()
    world.executor.run_all()
    world.turn()
    assert world.names() == names
    assert isinstance(world.append(), Rejected)
