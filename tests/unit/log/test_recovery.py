from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.core.errors import ErrorCode
from klamm.log.results import Appended, LogState, Rejected
from klamm.log.scan import CHECK_BYTES
from klamm.records.batch import iter_batches
from klamm.records.record import Record, encode_batch

LOG = "00000000000000000000.log"


def bases(world: Any) -> list[int]:
    return [header.base_offset for header, _ in world.batches()]


def test_a_clean_stop_leads_to_a_start_without_any_reading(world: Any) -> None:
    world.fill(10)
    world.reopen()
    assert not world.log.touched and world.handles.open_count == 0
    assert world.log.state() == LogState(0, 10, 10, 0)
    assert not world.log.touched
    assert isinstance(world.append(), Appended)
    assert bases(world) == list(range(11))


def test_closing_an_untouched_log_does_nothing(world: Any) -> None:
    world.fill(3)
    world.reopen()
    changes: list[str] = []
    world.disk._observe = lambda operation, path, data: changes.append(operation)
    assert world.close() == LogState(0, 3, 3, 0)
    assert changes == []


def test_a_kill_loses_nothing(world: Any) -> None:
    world.configure(segment_bytes=1000)
    for _ in range(5):
        world.fill(9)
        world.kill()
        assert world.log.failure is None
    assert bases(world) == list(range(45))
    assert world.log.recovery_point == 45


def test_a_tail_that_is_torn_at_any_byte_is_cut_to_the_last_whole_batch(world: Any) -> None:
    world.fill(4)
    world.append(3, 20)
    whole = bytes(world.file_bytes(LOG))
    last = [position for position, _ in iter_batches(whole)][-1]
    for size in range(last, len(whole)):
        world.file_bytes(LOG)[:] = whole[:size]
        world.kill()
        assert world.log.failure is None and bases(world) == [0, 1, 2, 3], size
        assert len(world.file_bytes(LOG)) == last
        assert world.append(3, 20) == Appended(4, 6, -1)
        assert bytes(world.file_bytes(LOG)) == whole


def test_a_tail_of_zeros_or_noise_is_cut(world: Any) -> None:
    for garbage in (bytes(1), bytes(60), bytes(5000), world.disk.rng.randbytes(3000), b"\xff" * 100):
        world.fill(3)
        whole = bytes(world.file_bytes(LOG))
        world.file_bytes(LOG).extend(garbage)
        world.kill()
        assert bytes(world.file_bytes(LOG)) == whole
        assert bases(world) == list(range(world.log.end_offset))


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_above_the_recovery_point_cuts_and_below_it_takes_the_log_offline(make_world: Any, data: Any) -> None:
    world = make_world()
    world.configure(segment_bytes=data.draw(st.sampled_from([600, 1 << 30])))
    flushed = data.draw(st.integers(0, 8))
    world.fill(flushed, 2)
    world.flush()
    world.save()
    point = world.log.recovery_point
    world.fill(data.draw(st.integers(1, 8)), 2)
    before = world.batches()
    segments = [name for name in world.names(".log") if len(world.file_bytes(name))]
    name = data.draw(st.sampled_from(segments))
    content = world.file_bytes(name)
    at = data.draw(st.integers(0, len(content) - 1))
    hit = next(h for p, h in iter_batches(bytes(content)) if p <= at < p + h.size)
    inside = at - next(p for p, h in iter_batches(bytes(content)) if h == hit)
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    world.kill()
    if inside < 8 or 12 <= inside < 16:  # base offset and leader epoch are not under the checksum
        return
    if hit.base_offset >= point:
        assert world.log.failure is None
        assert world.log.end_offset >= point
        assert world.log.end_offset == hit.base_offset
        expected = [batch for header, batch in before if header.base_offset < hit.base_offset]
        assert [batch for _, batch in world.batches()] == expected
    elif world.log.failure is None:
        # not read again: a finished segment below the recovery point's
        assert int(name[:20]) < max(s.base_offset for s in world.log._segments.items if s.base_offset <= point)
    else:
        assert world.log.end_offset == world.saved.end_offset and world.log.recovery_point == point
        assert world.names(".log")[-1] >= name


def test_damage_below_the_recovery_point_is_reported_and_nothing_is_dropped(world: Any) -> None:
    world.fill(6)
    world.flush()
    world.save()
    size = len(world.batch())
    world.file_bytes(LOG)[2 * size + 70] ^= 1
    before = bytes(world.file_bytes(LOG))
    world.kill()
    assert "offset 2" in world.log.failure and "recovery point 6" in world.log.failure
    assert LOG in world.log.failure and f"position {2 * size}" in world.log.failure
    assert bytes(world.file_bytes(LOG)) == before
    assert world.append().code.name == "KAFKA_STORAGE_ERROR"
    assert world.log.read(0, 10, limit=10).code.name == "KAFKA_STORAGE_ERROR"
    assert world.log.state() == world.saved  # for the next start, which must come to the same verdict
    world.kill()
    assert world.log.failure is not None


def test_a_log_that_is_shorter_than_what_was_durable_is_offline(world: Any) -> None:
    world.fill(6)
    world.flush()
    world.save()
    del world.file_bytes(LOG)[3 * len(world.batch()) :]
    world.kill()
    assert "durable" in world.log.failure
    world.files.remove(f"{world.path}/{LOG}")
    world.kill()
    assert "no segments" in world.log.failure


def three_segments(world: Any) -> None:
    world.configure(segment_bytes=3 * len(world.batch()))
    world.fill(8)
    assert world.names(".log") == [f"{base:020d}.log" for base in (0, 3, 6)]


def test_a_missing_end_of_a_segment_takes_the_later_ones_with_it(world: Any) -> None:
    three_segments(world)
    del world.file_bytes(f"{3:020d}.log")[2 * len(world.batch()) :]
    world.kill()
    assert bases(world) == [0, 1, 2, 3, 4]
    assert world.names(".log") == [f"{base:020d}.log" for base in (0, 3)]
    world.fill(5)
    assert bases(world) == list(range(10))


def test_a_missing_segment_takes_the_later_ones_with_it(world: Any) -> None:
    three_segments(world)
    world.files.remove(f"{world.path}/{3:020d}.log")
    world.kill()
    assert bases(world) == [0, 1, 2] and world.names(".log") == [LOG]


def test_segments_that_overlap_are_cut_where_they_do(world: Any) -> None:
    three_segments(world)
    world.file_bytes(LOG).extend(world.batch(base_offset=3))
    world.kill()
    assert bases(world) == [0, 1, 2] and world.names(".log") == [LOG]


def test_an_offset_that_no_segment_can_hold_is_cut(world: Any) -> None:
    three_segments(world)
    size = len(world.batch())
    world.file_bytes(f"{6:020d}.log")[size + 3] = 1  # far above 32 bits
    world.kill()
    assert bases(world) == [0, 1, 2, 3, 4, 5, 6]
    world.fill(2)
    world.file_bytes(f"{3:020d}.log")[2 * size + 7] = 9  # more than the next segment starts with
    world.kill()
    assert bases(world) == [0, 1, 2, 3, 4]


def test_batches_that_go_back_are_cut(world: Any) -> None:
    world.fill(4)
    world.file_bytes(LOG).extend(world.batch(base_offset=2))
    world.kill()
    assert bases(world) == [0, 1, 2, 3]


def test_an_empty_last_segment_is_fine(world: Any) -> None:
    world.fill(4)
    world.do(world.log.roll)
    assert len(world.names(".log")) == 2
    for restart in (world.kill, world.reopen, world.kill):
        restart()
        assert world.log.end_offset == 4 and world.log.failure is None
    world.fill(2)
    assert bases(world) == list(range(6))


def test_an_empty_file_where_the_first_segment_was_made_is_fine(world: Any) -> None:
    world.append()
    world.file_bytes(LOG).clear()
    world.kill()
    assert world.log.failure is None and world.log.end_offset == 0
    world.fill(2)
    assert bases(world) == [0, 1]


def test_leftovers_of_interrupted_work_are_removed(world: Any) -> None:
    three_segments(world)
    names = [f"{3:020d}.log.deleted", f"{77:020d}.index", f"{77:020d}.txnindex", "leader-epoch-checkpoint.tmp"]
    kept = ["partition.metadata", "notes.txt"]
    for restart in (world.kill, world.reopen):
        for name in names + kept:
            world.files.open(f"{world.path}/{name}", create=True)
        restart()
        world.fill(1)  # a clean start looks only now
        assert not set(names) & set(world.names()) and set(kept) <= set(world.names())


def test_lost_snapshots_and_checkpoints_are_made_up_from_the_log(world: Any) -> None:
    world.configure(segment_bytes=800)
    for i in range(30):
        world.append(1, base_sequence=i, producer_id=5, producer_epoch=0, epoch=i // 8)
    world.flush()
    world.save()
    entries = world.log.epochs.entries()
    for name in [*world.names(".snapshot"), "leader-epoch-checkpoint"]:
        world.file_bytes(name)[:] = b"nonsense"
    world.kill()
    assert world.log.epochs.entries() == entries
    assert world.append(1, base_sequence=29, producer_id=5, producer_epoch=0).duplicate


def test_a_clean_state_that_does_not_fit_the_files_leads_to_recovery(world: Any) -> None:
    world.fill(5)
    state = world.close()
    world.file_bytes(LOG).extend(world.batch(base_offset=5))
    world.open(state)
    assert bases(world) == [0, 1, 2, 3, 4, 5]
    del world.file_bytes(LOG)[3 * len(world.batch()) :]
    world.boot()
    world.open(state)
    assert world.do(world.log.read, 0, 100, limit=10).code.name == "KAFKA_STORAGE_ERROR"
    assert "durable" in world.log.failure


def test_the_scan_of_large_batches_goes_in_pieces(world: Any, preads: list[int]) -> None:
    size = 6 * CHECK_BYTES
    world.configure(max_message_bytes=1 << 30)
    world.append(1, size)
    world.append(1, 10)
    preads.clear()
    world.kill()
    assert world.log.end_offset == 2 and max(preads) <= CHECK_BYTES
    world.file_bytes(LOG)[size // 2] ^= 1
    world.kill()
    assert world.log.end_offset == 0


def test_a_header_that_claims_a_huge_batch_is_not_believed(world: Any, preads: list[int]) -> None:
    world.append()
    content = world.file_bytes(LOG)
    whole = len(content)
    bad = world.batch()
    bad[8:12] = (0x7FFFFFF0).to_bytes(4, "big")
    content.extend(bad + bytes(3 * CHECK_BYTES))
    preads.clear()
    world.kill()
    assert world.log.end_offset == 1 and len(world.file_bytes(LOG)) == whole
    assert max(preads) <= CHECK_BYTES


@pytest.mark.parametrize("seed", range(30))
def test_power_loss_loses_nothing_that_was_flushed(make_world: Any, seed: int) -> None:
    world = make_world(seed)
    world.configure(segment_bytes=700)
    written: list[bytes] = []
    for _ in range(6):
        for _batch in range(world.disk.rng.randint(1, 12)):
            written.append(bytes(world.batch(2, world.disk.rng.randint(0, 60))))
            world.do(world.log.append, bytearray(written[-1]), leader_epoch=0)
        flushed = len(world.batches())
        if world.disk.rng.random() < 0.7:
            world.flush()
            world.save()
        else:
            flushed = sum(1 for header, _ in world.batches() if header.last_offset < world.log.recovery_point)
        world.power_loss()
        assert world.log.failure is None
        found = [batch for _, batch in world.batches()]
        assert flushed <= len(found)
        assert [batch[12 + 9 :] for batch in found] == [batch[12 + 9 :] for batch in written[: len(found)]]
        del written[len(found) :]
        world.save()


def test_indexes_of_an_earlier_clean_stop_do_not_hide_what_the_segment_got_since(world: Any) -> None:
    world.configure(flush_messages=1)
    world.fill(3)
    world.reopen()  # writes the indexes of a segment that goes on growing
    late = world.clock.now_ms + 1000
    world.append(timestamp=late)
    world.flush()
    world.disk.fill(0)  # there is no room for new ones when it is finished
    world.do(world.log.roll)
    world.save()
    assert world.saved.recovery_point == 4
    world.kill()
    found = world.do(world.log.offset_for_timestamp, late, 1 << 62)
    assert found is not None and found.offset == 3


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_files_that_shrank_since_the_clean_stop_are_noticed_at_the_first_append(
    world: Any, caplog: pytest.LogCaptureFixture, producer_id: int
) -> None:
    world.fill(10)
    world.reopen()
    del world.file_bytes(LOG)[100:]
    sequence = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    refused = world.log.append(bytearray(encode_batch([Record(0, 0, None, b"x")], **sequence)), leader_epoch=0)
    assert isinstance(refused, Rejected) and refused.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"klamm log repair {world.path}" in caplog.text
    assert isinstance(world.log.read(0, 1000, limit=10), Rejected)
