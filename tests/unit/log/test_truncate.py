from __future__ import annotations

from typing import Any

import pytest

from klamm.log.results import Appended
from klamm.log.writer import SLOW_WRITE_S
from klamm.records.batch import iter_batches


def bases(world: Any) -> list[int]:
    return [header.base_offset for header, _ in world.batches()]


def truncate(world: Any, offset: int) -> None:
    world.settle()
    point = min(world.saved.recovery_point, world.log.batch_start(offset))
    world.saved = world.saved._replace(recovery_point=point)
    world.log.truncate_to(offset)


@pytest.mark.parametrize("target", range(22))
@pytest.mark.parametrize("restart", ["none", "reopen", "kill", "power_loss"])
def test_everything_from_the_batch_with_the_offset_on_goes(world: Any, target: int, restart: str) -> None:
    world.configure(segment_bytes=3 * len(world.batch(2)), index_interval_bytes=60)
    for i in range(10):
        world.append(2, base_sequence=2 * i, producer_id=1, producer_epoch=0, epoch=i // 3)
    data = {header.base_offset: batch for header, batch in world.batches()}
    world.flush()
    world.save()
    truncate(world, target)
    if restart != "none":
        getattr(world, restart)()
    end = min(target // 2 * 2, 20)
    assert world.log.failure is None and world.log.end_offset == end
    assert {h.base_offset: b for h, b in world.batches()} == {o: b for o, b in data.items() if o < end}
    assert world.log.epochs.entries() == [
        (epoch, start) for epoch, start in ((0, 0), (1, 6), (2, 12), (3, 18)) if start < end
    ]
    assert world.log.recovery_point <= end
    # the producer goes on from there
    assert world.append(2, base_sequence=end, producer_id=1, producer_epoch=0, epoch=4) == Appended(end, end + 1, -1)
    assert bases(world) == list(range(0, end + 2, 2))
    world.kill()
    assert bases(world) == list(range(0, end + 2, 2))


def test_timestamps_are_forgotten_with_their_batches(world: Any) -> None:
    now = world.clock.now_ms
    for i in range(10):
        world.append(timestamp=now + (100 if i == 7 else i))
    assert world.log.max_timestamp_offset().offset == 7
    truncate(world, 7)
    assert world.log.max_timestamp_offset().timestamp == now + 6
    assert world.log.offset_for_timestamp(now + 50, 1 << 60) is None


def test_truncation_below_the_start_starts_anew(world: Any) -> None:
    world.do(world.log.truncate_and_restart_at, 100)
    world.fill(3)
    truncate(world, 50)
    assert world.log.state()[:3] == (50, 50, 50)
    world.append()
    assert bases(world) == [50]


def test_restarting_drops_everything_and_is_durable(world: Any) -> None:
    world.configure(segment_bytes=3 * len(world.batch()))
    for i in range(10):
        world.append(base_sequence=i, producer_id=1, producer_epoch=0)
    world.flush()
    world.settle()
    world.log.truncate_and_restart_at(500)
    assert world.log.state()[:4] == (500, 500, 500, 500) and bases(world) == []
    assert len(world.log.producers) == 0 and world.log.epochs.entries() == []
    world.save()
    for restart in (world.power_loss, world.reopen, world.kill):
        restart()
        assert world.log.failure is None and world.log.state()[:2] == (500, 500)
    world.append(epoch=3)
    assert bases(world) == [500] and world.log.epochs.entries() == [(3, 500)]


def test_aborted_transactions_are_cut_as_well(world: Any) -> None:
    from klamm.records.record import ControlType, EndMarker, encode_end_marker

    for _ in range(2):
        start = world.log.end_offset
        world.append(2, base_sequence=start // 3 * 2, producer_id=1, producer_epoch=0, transactional=True)
        end = EndMarker(ControlType.ABORT, 0)
        marker = encode_end_marker(end, producer_id=1, producer_epoch=0, timestamp=world.clock.now_ms)
        world.do(world.log.append, bytearray(marker), leader_epoch=0, from_client=False)
    assert [t.first_offset for t in world.log.aborted_transactions(0, 10)] == [0, 3]
    truncate(world, 5)
    assert [t.first_offset for t in world.log.aborted_transactions(0, 10)] == [0]
    assert world.log.last_stable_offset(5) == 3  # open again
    world.reopen()
    assert [t.first_offset for t in world.log.aborted_transactions(0, 10)] == [0]
    assert world.log.last_stable_offset(5) == 3


def test_snapshots_of_what_was_cut_are_not_taken_for_what_came_after(world: Any) -> None:
    for i in range(9):
        world.append(base_sequence=i, producer_id=1, producer_epoch=0)
    world.reopen()  # leaves a snapshot at 9
    truncate(world, 2)
    for i in range(10):
        world.append(base_sequence=i, producer_id=2, producer_epoch=0)
    truncate(world, 11)
    assert world.append(base_sequence=9, producer_id=2, producer_epoch=0) == Appended(11, 11, -1)
    assert world.append(base_sequence=2, producer_id=1, producer_epoch=0) == Appended(12, 12, -1)


def test_readers_do_not_go_on_at_places_that_were_cut(world: Any) -> None:
    world.fill(8)
    for limit in (5, 8):
        world.read(0, limit=limit)  # remembered: where offsets 5 and 8 are
    truncate(world, 2)
    world.fill(8, size=99)
    assert [header.base_offset for _, header in iter_batches(world.read(5))] == [5, 6, 7, 8, 9]
    assert [header.base_offset for _, header in iter_batches(world.read(8))] == [8, 9]


def test_truncation_waits_for_queued_writes(world: Any) -> None:
    world.disk.faults.write_s = 2 * SLOW_WRITE_S
    world.append()
    world.executor.hold = True
    world.fill(4)
    with pytest.raises(AssertionError, match="settle"):
        world.log.truncate_to(2)
    world.executor.hold = False
    world.executor.run_all()
    truncate(world, 2)
    assert bases(world) == [0, 1]


def test_handles_of_before_do_not_write_behind_the_new_end(world: Any) -> None:
    world.fill(10)
    truncate(world, 3)
    world.fill(2)
    content = bytes(world.file_bytes(f"{0:020d}.log"))
    assert [header.base_offset for _, header in iter_batches(content)] == [0, 1, 2, 3, 4]
    assert len(content) == 5 * len(world.batch())
