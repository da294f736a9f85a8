from __future__ import annotations

import itertools
from typing import Any

import pytest

from klamm.core.errors import ErrorCode
from klamm.log.results import Appended, Rejected
from klamm.records.batch import header_bytes, read_header
from klamm.records.record import ControlType, EndMarker, decode_records, encode_end_marker


def test_a_fresh_log_touches_no_file_before_its_first_append(world: Any) -> None:
    assert not world.log.touched and not world.files.exists(world.path)
    assert world.read(0) is None
    assert world.names() == [] if world.files.exists(world.path) else True
    world.append()
    assert world.names(".log") == ["00000000000000000000.log"]


def test_batches_get_consecutive_offsets_and_the_leader_epoch(world: Any) -> None:
    assert world.append(3) == Appended(0, 2, -1)
    assert world.append(2, epoch=7) == Appended(3, 4, -1)
    headers = [header for header, _ in world.batches()]
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h in headers] == [(0, 2, 0), (3, 4, 7)]
    assert world.log.end_offset == 5
    assert world.log.epochs.entries() == [(0, 0), (7, 3)]


def test_the_offsets_are_set_in_place_without_touching_the_checksum(world: Any) -> None:
    world.append(5)
    batch = world.batch(2)
    crc = read_header(batch).crc
    world.do(world.log.append, batch, leader_epoch=3)
    assert read_header(batch).base_offset == 5 and read_header(batch).crc == crc
    assert world.batches()[-1][1] == bytes(batch)


def test_append_time_is_stamped_where_the_topic_says_so(world: Any) -> None:
    world.configure(log_append_time=True)
    now = world.clock.now_ms
    assert world.append(2, timestamp=5) == Appended(0, 1, now)
    header, data = world.batches()[0]
    assert header.max_timestamp == now and header.is_log_append_time
    assert [record.timestamp for record in decode_records(data)] == [now, now]


@pytest.mark.parametrize("at", [0, 8, 12, 16, 17, 21, 23, 57, 61, 70])
def test_a_damaged_batch_is_refused_and_nothing_is_written(world: Any, at: int) -> None:
    batch = world.batch(3)
    batch[at] ^= 0xFF
    result = world.do(world.log.append, batch, leader_epoch=0)
    if at in (0, 12):  # base offset and leader epoch are the broker's to set
        assert isinstance(result, Appended)
    else:
        assert isinstance(result, Rejected)
        assert result.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
        assert world.log.end_offset == 0


@pytest.mark.parametrize("size", [0, 1, 60, header_bytes, 70])
def test_a_batch_that_is_cut_short_is_refused(world: Any, size: int) -> None:
    result = world.do(world.log.append, world.batch()[:size], leader_epoch=0)
    assert result.code == ErrorCode.CORRUPT_MESSAGE


def test_a_client_may_not_send_two_batches_but_the_broker_may(world: Any) -> None:
    two = world.batch(2) + world.batch(3)
    assert world.do(world.log.append, two, leader_epoch=0).code == ErrorCode.INVALID_RECORD
    assert world.do(world.log.append, two, leader_epoch=0, from_client=False) == Appended(0, 4, -1)
    assert [h.base_offset for h, _ in world.batches()] == [0, 2]


def test_sizes_are_limited_by_the_topic_and_by_the_segment(world: Any) -> None:
    world.configure(max_message_bytes=500)
    assert world.append(1, 600).code == ErrorCode.MESSAGE_TOO_LARGE
    world.configure(max_message_bytes=1000, segment_bytes=500)
    assert world.append(1, 600).code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert isinstance(world.append(1, 100), Appended)


def test_timestamps_too_far_from_the_clock_are_refused(world: Any) -> None:
    world.configure(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    now = world.clock.now_ms
    assert isinstance(world.append(timestamp=now - 1000), Appended)
    assert isinstance(world.append(timestamp=now + 500), Appended)
    assert world.append(timestamp=now - 1001).code == ErrorCode.INVALID_TIMESTAMP
    assert world.append(timestamp=now + 501).code == ErrorCode.INVALID_TIMESTAMP
    assert isinstance(world.append(timestamp=-1), Appended)  # no timestamp at all is fine
    world.configure(log_append_time=True)
    assert isinstance(world.append(timestamp=5), Appended)


def test_a_duplicate_is_answered_with_its_first_offsets_and_not_written(world: Any) -> None:
    options = {"producer_id": 9, "producer_epoch": 0}
    assert world.append(2, base_sequence=0, **options) == Appended(0, 1, -1)
    assert world.append(3, base_sequence=2, **options) == Appended(2, 4, -1)
    assert world.append(2, base_sequence=0, **options) == Appended(0, 1, -1, True)
    assert world.append(1, base_sequence=9, **options).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.append(1, base_sequence=0, producer_id=9, producer_epoch=1) == Appended(5, 5, -1)
    assert world.append(1, base_sequence=5, **options).code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.log.end_offset == 6


def test_producers_are_known_again_after_every_kind_of_restart(world: Any) -> None:
    options = {"producer_id": 9, "producer_epoch": 0}
    sequence = 0
    for restart in (world.reopen, world.kill, world.reopen, world.kill):
        for _ in range(7):
            assert isinstance(world.append(2, base_sequence=sequence, **options), Appended)
            sequence += 2
        restart()
        last = world.log.end_offset - 2
        assert world.append(2, base_sequence=sequence - 2, **options) == Appended(last, last + 1, -1, True)
        assert world.append(2, base_sequence=sequence + 2, **options).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_segment_rolls_when_it_is_full(world: Any) -> None:
    size = len(world.batch())
    world.configure(segment_bytes=size * 3)
    world.fill(10)
    assert [s.base_offset for s in world.log._segments.items] == [0, 3, 6, 9]
    assert [h.base_offset for h, _ in world.batches()] == list(range(10))


def test_a_segment_rolls_by_the_time_of_its_batches(world: Any) -> None:
    world.configure(segment_ms=1000)
    now = world.clock.now_ms
    for timestamp in (now - 5000, now - 4000, now - 4500, now - 3999, now - 2999, now - 2998):
        world.append(timestamp=timestamp)
    assert [s.base_offset for s in world.log._segments.items] == [0, 3, 5]


def test_a_segment_without_timestamps_rolls_by_the_clock(world: Any) -> None:
    world.configure(segment_ms=1000)
    world.append(timestamp=-1)
    world.clock.now_ms += 1000
    world.append(timestamp=-1)
    world.clock.now_ms += 1
    world.append(timestamp=-1)
    assert [s.base_offset for s in world.log._segments.items] == [0, 2]


def test_with_jitter_each_segment_ends_earlier_by_an_amount_of_its_own(world: Any) -> None:
    world.configure(segment_ms=100, segment_jitter_ms=80)
    now = world.clock.now_ms
    for timestamp in range(now, now + 2000):
        world.append(timestamp=timestamp)
    bases = [s.base_offset for s in world.log._segments.items]
    lengths = {following - base for base, following in itertools.pairwise(bases)}
    assert all(21 < length <= 101 for length in lengths), lengths
    assert len(lengths) > 5
    world.configure(segment_jitter_ms=0)
    for timestamp in range(now + 2000, now + 2500):
        world.append(timestamp=timestamp)
    bases = [s.base_offset for s in world.log._segments.items]
    assert {following - base for base, following in itertools.pairwise(bases[-4:])} == {101}


def test_a_segment_rolls_when_its_index_is_full(world: Any) -> None:
    world.configure(index_interval_bytes=1, max_index_bytes=24)
    world.fill(12)
    bases = [s.base_offset for s in world.log._segments.items]
    assert bases[0] == 0 and len(bases) > 2
    world.reopen()
    for name in world.names(".index") + world.names(".timeindex"):
        assert len(world.file_bytes(name)) <= 24


def test_an_empty_segment_does_not_roll(world: Any) -> None:
    world.do(world.log.roll)
    assert not world.files.exists(world.path)
    world.append()
    world.do(world.log.roll)
    world.do(world.log.roll)
    assert [s.base_offset for s in world.log._segments.items] == [0, 1]


def test_a_roll_makes_the_finished_segment_durable(world: Any) -> None:
    world.configure(segment_bytes=len(world.batch()) * 3)
    world.fill(4)
    assert world.log.recovery_point == 3 and world.log.dirty_since_ms >= 0
    world.save()
    world.power_loss()
    assert world.log.failure is None and world.log.end_offset >= 3


def test_relative_offsets_stay_within_32_bits(world: Any) -> None:
    world.append()
    far = world.batch(base_offset=(1 << 31) - 1, leader_epoch=2)
    assert isinstance(world.do(world.log.append_as_follower, far), Appended)
    assert len(world.log._segments.items) == 1
    assert isinstance(world.do(world.log.append_as_follower, world.batch(base_offset=1 << 31)), Appended)
    assert [s.base_offset for s in world.log._segments.items] == [0, 1 << 31]
    too_far = world.batch(base_offset=1 << 33)
    assert world.do(world.log.append_as_follower, too_far).code == ErrorCode.OFFSET_OUT_OF_RANGE


# ---- following


def test_a_follower_keeps_offsets_epochs_and_timestamps(world: Any) -> None:
    data = b"".join(
        bytes(world.batch(count, base_offset=base, leader_epoch=epoch))
        for base, count, epoch in ((0, 2, 1), (2, 3, 1), (9, 1, 4))
    )
    result = world.do(world.log.append_as_follower, data + bytes(world.batch(base_offset=10))[:-3])
    assert result == Appended(0, 9, -1)
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h, _ in world.batches()] == [
        (0, 1, 1),
        (2, 4, 1),
        (9, 9, 4),
    ]
    assert b"".join(batch for _, batch in world.batches()) == data
    assert world.log.epochs.entries() == [(1, 0), (4, 9)]
    assert world.read(6) == world.read(9)  # the first batch that ends at or after the offset


def test_a_follower_refuses_what_does_not_continue_its_log(world: Any) -> None:
    world.fill(3)
    assert world.do(world.log.append_as_follower, world.batch(base_offset=2)).code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.do(world.log.append_as_follower, b"").code == ErrorCode.CORRUPT_MESSAGE
    bad = world.batch(base_offset=3)
    bad[-1] ^= 1
    assert world.do(world.log.append_as_follower, bad).code == ErrorCode.CORRUPT_MESSAGE
    assert world.log.end_offset == 3


def test_a_follower_rolls_in_the_middle_of_an_answer(world: Any) -> None:
    size = len(world.batch())
    world.configure(segment_bytes=size * 2)
    data = b"".join(bytes(world.batch(base_offset=i)) for i in range(7))
    assert world.do(world.log.append_as_follower, data) == Appended(0, 6, -1)
    assert [s.base_offset for s in world.log._segments.items] == [0, 2, 4, 6]
    assert b"".join(batch for _, batch in world.batches()) == data


# ---- transactions


def marker(kind: ControlType, producer_id: int, now_ms: int, coordinator_epoch: int = 0) -> bytearray:
    end = EndMarker(kind, coordinator_epoch)
    return bytearray(encode_end_marker(end, producer_id=producer_id, producer_epoch=0, timestamp=now_ms))


def test_transactions_move_the_last_stable_offset_and_leave_the_aborted_ones(world: Any) -> None:
    options = {"producer_epoch": 0, "transactional": True}
    log, now = world.log, world.clock.now_ms
    world.append(2)
    world.append(2, producer_id=1, base_sequence=0, **options)
    world.append(1, producer_id=2, base_sequence=0, **options)
    assert log.last_stable_offset(5) == 2
    client = world.do(log.append, marker(ControlType.ABORT, 1, now), leader_epoch=0)
    assert client.code == ErrorCode.INVALID_RECORD  # not for clients
    world.do(log.append, marker(ControlType.ABORT, 1, now), leader_epoch=0, from_client=False)
    world.do(log.append, marker(ControlType.COMMIT, 2, now), leader_epoch=0, from_client=False)
    assert log.last_stable_offset(5) == 2  # the markers are not replicated yet
    assert log.last_stable_offset(7) == 7
    found = log.aborted_transactions(0, 7)
    assert [(t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset) for t in found] == [(1, 2, 5, 4)]
    assert log.aborted_transactions(6, 7) == []
    for restart in (world.reopen, world.kill):
        restart()
        assert world.log.aborted_transactions(0, 7) == found
        assert world.log.last_stable_offset(7) == 7


def test_an_open_transaction_stays_open_over_restarts(world: Any) -> None:
    world.append(2)
    world.append(2, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    for restart in (world.reopen, world.kill):
        restart()
        assert world.log.last_stable_offset(4) == 2


def test_markers_of_an_old_coordinator_are_refused(world: Any) -> None:
    log, now = world.log, world.clock.now_ms
    world.append(1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    world.do(log.append, marker(ControlType.COMMIT, 1, now, 5), leader_epoch=0, from_client=False)
    late = world.do(log.append, marker(ControlType.ABORT, 1, now, 4), leader_epoch=0, from_client=False)
    assert late.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
