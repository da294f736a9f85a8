from __future__ import annotations

from typing import Any

import pytest

from klamm.core.errors import ErrorCode
from klamm.log.retention import MAX_SEGMENTS_AT_ONCE

EVERYTHING = 1 << 60


def bases(world: Any) -> list[int]:
    return [header.base_offset for header, _ in world.batches()]


def delete(world: Any, limit: int = EVERYTHING) -> list[str]:
    paths = world.do(world.log.delete_old_segments, world.clock.now_ms, limit)
    return [path.rsplit("/", 1)[1] for path in paths]


def segments_of(world: Any, size: int, batches: int) -> None:
    world.configure(segment_bytes=size * len(world.batch()))
    world.fill(batches)


def test_segments_go_when_their_newest_record_is_old(world: Any) -> None:
    world.configure(retention_ms=1000)
    segments_of(world, 3, 5)
    world.clock.now_ms += 600
    world.fill(3)  # offsets 5 to 7, in the second segment and the third
    world.clock.now_ms += 400
    assert delete(world) == []
    world.clock.now_ms += 1
    assert delete(world) == [f"{0:020d}{suffix}.deleted" for suffix in (".log", ".index", ".timeindex")]
    assert world.log.start_offset == 3 and bases(world) == [3, 4, 5, 6, 7]
    assert world.log.read(2, 10, limit=10).code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(world) == []
    assert world.log.epochs.entries() == [(0, 3)]


def test_segments_go_when_the_log_is_too_large(world: Any) -> None:
    size = len(world.batch())
    segments_of(world, 3, 11)
    world.configure(retention_bytes=8 * size)
    delete(world)
    assert bases(world) == [3, 4, 5, 6, 7, 8, 9, 10]  # one less would be too little
    world.configure(retention_bytes=7 * size)
    assert delete(world) == []
    world.configure(retention_bytes=0)
    delete(world)
    assert bases(world) == [9, 10]  # never the active one


def test_nothing_above_the_limit_goes(world: Any) -> None:
    segments_of(world, 3, 11)
    world.configure(retention_bytes=0)
    delete(world, 5)
    assert world.log.start_offset == 3
    delete(world, 6)
    assert world.log.start_offset == 6


def test_an_expired_active_segment_is_finished_and_goes_in_the_next_round(world: Any) -> None:
    world.configure(retention_ms=1000)
    world.fill(3)
    world.clock.now_ms += 1001
    assert delete(world, 2) == [] and len(world.names(".log")) == 1  # not above the limit either
    delete(world)
    delete(world)
    assert bases(world) == [] and world.log.start_offset == world.log.end_offset == 3
    assert world.names(".log") == [f"{3:020d}.log"]
    assert delete(world) == []
    for restart in (world.kill, world.reopen, world.power_loss):
        restart()
        assert world.log.failure is None and world.log.state()[:2] == (3, 3)
    world.append()
    assert bases(world) == [3]


def test_segments_below_the_start_of_the_log_go(world: Any) -> None:
    world.configure(retention_ms=-1)
    segments_of(world, 3, 11)
    assert world.log.advance_start_offset(7) is None
    assert bases(world) == [7, 8, 9, 10]
    delete(world)
    assert world.names(".log") == [f"{base:020d}.log" for base in (6, 9)]
    assert world.log.start_offset == 7
    assert world.log.advance_start_offset(12).code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.log.advance_start_offset(5) is None and world.log.start_offset == 7
    world.reopen()
    assert bases(world) == [7, 8, 9, 10]
    world.kill()
    assert bases(world) == [7, 8, 9, 10]


def test_records_without_timestamps_age_from_when_their_segment_was_first_seen(world: Any) -> None:
    world.configure(retention_ms=1000, segment_bytes=3 * len(world.batch()))
    for _ in range(5):
        world.append(timestamp=-1)
    world.clock.now_ms += 1001
    assert len(delete(world)) >= 2


def test_a_log_that_was_never_used_is_looked_at_and_let_go_again(world: Any) -> None:
    world.configure(retention_ms=1000)
    segments_of(world, 3, 8)
    world.reopen()
    assert delete(world) == [] and not world.log.touched
    world.clock.now_ms += 1001
    assert delete(world) != [] and world.log.touched


def test_one_round_takes_only_so_many(world: Any) -> None:
    segments_of(world, 1, MAX_SEGMENTS_AT_ONCE + 30)
    world.configure(retention_bytes=0)
    delete(world)
    assert world.log.start_offset == MAX_SEGMENTS_AT_ONCE
    delete(world)
    assert world.log.start_offset == MAX_SEGMENTS_AT_ONCE + 29


def test_deleted_files_give_their_space_back_when_they_are_removed(world: Any) -> None:
    segments_of(world, 3, 20)
    world.flush()
    used = world.disk.used_bytes()
    world.configure(retention_bytes=0)
    for name in delete(world):
        world.files.remove(f"{world.path}/{name}")
    assert world.disk.used_bytes() < used / 4
    assert not [name for name in world.names() if int(name[:20] if name[:20].isdigit() else 99) < 18]


def test_a_reader_can_finish_with_a_segment_that_is_deleted(world: Any) -> None:
    segments_of(world, 3, 8)
    world.configure(retention_bytes=0)
    found = world.do(world.log.read, 0, 1000, limit=8)
    found.file.pin()
    delete(world)
    assert len(found.file.pread(found.size, found.offset)) == found.size
    found.file.unpin()


@pytest.mark.parametrize("seed", range(10))
def test_a_power_loss_after_a_deletion_keeps_what_was_kept(make_world: Any, seed: int) -> None:
    world = make_world(seed)
    segments_of(world, 3, 20)
    world.save()
    world.fill(9)
    world.flush()
    world.configure(retention_bytes=10 * len(world.batch()))
    delete(world)
    kept = bases(world)
    world.power_loss()
    assert world.log.failure is None
    assert bases(world)[-len(kept) :] == kept


@pytest.mark.parametrize("crash_first", [False, True])
def test_what_producers_have_sent_is_known_after_their_segment_is_gone(world: Any, crash_first: bool) -> None:
    """Also if the segment that follows is so new that no snapshot of the producers was written at its start."""
    mine = {"producer_id": 1, "producer_epoch": 0}
    world.append(1, 20, base_sequence=0, **mine)
    world.flush()
    world.save()
    world.executor.hold = True  # the flush that comes with the next segment
    world.do(world.log.roll)
    if crash_first:
        world.kill()
    world.executor.hold = False
    world.configure(retention_bytes=0)
    delete(world)
    world.kill()
    again = world.append(1, 20, base_sequence=0, **mine)
    assert (again.base_offset, again.duplicate) == (0, True)
