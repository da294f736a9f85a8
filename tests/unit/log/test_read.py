from __future__ import annotations

from typing import Any

import pytest

from klamm.core.env import FileRange
from klamm.core.errors import ErrorCode
from klamm.log.results import Rejected, TimestampOffset
from klamm.records.batch import iter_batches, read_header
from klamm.records.compression import Codec
from klamm.testing.sim.faults import READ


def test_every_offset_is_found_in_the_batch_that_holds_it(world: Any) -> None:
    world.configure(index_interval_bytes=300, segment_bytes=3000)
    expected = []
    for i in range(60):
        result = world.append(1 + i % 4, i)
        expected += [result.base_offset] * (1 + i % 4)
    for restart in (lambda: None, world.reopen, world.kill):
        restart()
        for offset, base in enumerate(expected):
            assert read_header(world.read(offset, 1)).base_offset == base


def test_a_read_beyond_the_log_is_refused_and_one_at_its_end_gives_nothing(world: Any) -> None:
    world.fill(5)
    assert world.read(5) is None
    assert world.log.read(6, 100, limit=100).code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.log.read(-1, 100, limit=100).code == ErrorCode.OFFSET_OUT_OF_RANGE
    world.log.advance_start_offset(3)
    assert world.log.read(2, 100, limit=100).code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert read_header(world.read(3)).base_offset == 3


def test_nothing_at_or_past_the_limit_is_given(world: Any) -> None:
    world.configure(index_interval_bytes=300, segment_bytes=1500)
    world.fill(40, 2)
    for limit in range(0, 82, 2):
        for offset in range(0, 82, 7):
            data = world.read(offset, limit=limit) if offset <= 80 else None
            if offset >= limit:
                assert data is None
            else:
                headers = [header for _, header in iter_batches(data)]
                assert headers[0].base_offset <= offset <= headers[0].last_offset
                assert headers[-1].next_offset <= limit
                assert sum(header.size for header in headers) == len(data)


def test_the_first_batch_is_whole_even_if_it_is_too_large(world: Any) -> None:
    world.fill(3, size=1000)
    size = len(world.batch(size=1000))
    assert len(world.read(1, 1)) == size
    assert len(world.read(1, size + 10)) == size + 10  # a partial batch at the end, as Kafka does
    assert world.read(1, size - 1, min_one=False) is None
    assert len(world.read(1, size, min_one=False)) == size
    assert world.read(1, 0, min_one=False) is None


def test_reads_go_on_in_the_next_segment(world: Any) -> None:
    world.configure(segment_bytes=1000)
    world.fill(50)
    assert len(world.log._segments.items) > 3
    assert [h.base_offset for h, _ in world.batches()] == list(range(50))


def test_a_reader_that_goes_on_costs_no_lookup(world: Any, preads: list[int]) -> None:
    world.fill(20)
    for reader in range(3):
        world.do(world.log.read, reader, 1 << 20, limit=1 << 60)
    preads.clear()
    offset = world.log.end_offset
    for _ in range(10):
        world.append()
        found = world.do(world.log.read, offset, 1 << 20, limit=1 << 60)
        assert isinstance(found, FileRange) and found.size == len(world.batch())
        offset = world.log.end_offset
    assert preads == []


@pytest.mark.parametrize("batches", [100, 1000, 4000])
@pytest.mark.parametrize("segment_bytes", [50_000, 1 << 30])
def test_the_cost_of_a_read_does_not_grow_with_the_log(
    world: Any, preads: list[int], batches: int, segment_bytes: int
) -> None:
    world.configure(segment_bytes=segment_bytes)
    world.fill(batches, size=100)
    for offset in (batches // 3, batches // 2, batches - 10):
        world.do(world.log.read, offset, 500, limit=1 << 60)  # maps the index
        world.log._reader.forget()
        preads.clear()
        world.do(world.log.read, offset, 500, limit=1 << 60)
        assert len(preads) <= 2 and sum(preads) <= 8192 + 61


@pytest.mark.parametrize("finished", [False, True])
def test_an_answer_that_is_full_ends_between_two_batches(world: Any, preads: list[int], finished: bool) -> None:
    """And who goes on from there needs one header, for the end of the next answer."""
    world.fill(400, size=100)
    if finished:
        world.do(world.log.roll)
        world.append()
    offset = 0
    for _ in range(3):
        preads.clear()
        found = world.do(world.log.read, offset, 20_000, limit=1 << 60)
        assert offset == 0 or preads == [61]
        data = found.file.pread(found.size, found.offset)
        assert 20_000 - 2 * 4096 < len(data) <= 20_000
        whole = list(iter_batches(data))
        assert whole[0][1].base_offset == offset
        assert whole[-1][0] + whole[-1][1].size == len(data)
        offset = whole[-1][1].next_offset


def test_handles_are_given_back_and_reopened(world: Any) -> None:
    world.configure(segment_bytes=500)
    world.fill(60)
    assert len(world.log._segments.items) == 10
    for offset in (0, 30, 59, 1, 45):
        assert read_header(world.read(offset, 1)).base_offset == offset
        assert world.handles.open_count <= 3 and world.handles.mapped_count <= 2
    world.fill(3)
    assert [h.base_offset for h, _ in world.batches()] == list(range(63))


def test_a_range_survives_the_loss_of_its_handle_within_one_turn(world: Any) -> None:
    world.configure(segment_bytes=500)
    world.fill(60)

    def gather() -> list[bytes]:
        found = [world.log.read(offset, 1, limit=1 << 60) for offset in range(60)]
        return [part.file.pread(part.size, part.offset) for part in found]

    assert [read_header(data).base_offset for data in world.do(gather)] == list(range(60))


def test_an_unreadable_place_is_an_error_there_and_nowhere_else(world: Any) -> None:
    world.configure(segment_bytes=1000)
    world.fill(30)
    world.reopen()
    world.disk.faults.fail(READ, path="00000000000000000000")
    answer = world.do(world.log.read, 3, 100, limit=100)
    assert isinstance(answer, Rejected) and answer.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log.failure is None
    assert read_header(world.read(3, 1)).base_offset == 3


# ---- by time


def naive(records: list[tuple[int, int]], timestamp: int, start: int, limit: int) -> int | None:
    return next((o for o, t in records if t >= timestamp and start <= o < limit), None)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_lookup_by_time_gives_the_first_record_that_is_as_late(world: Any, codec: Codec) -> None:
    world.configure(index_interval_bytes=200, segment_bytes=2500)
    now, records = world.clock.now_ms, []
    for i in range(50):
        timestamp = now + (i * 37) % 101 - 200
        base = world.append(3, 5, timestamp, codec=codec).base_offset
        records += [(base + k, timestamp + k) for k in range(3)]
    world.log.advance_start_offset(10)
    for restart in (lambda: None, world.reopen, world.kill):
        world.save()
        restart()
        for timestamp in range(now - 205, now - 95, 3):
            for limit in (150, 80, 11):
                found = world.do(world.log.offset_for_timestamp, timestamp, limit)
                assert (found and found.offset) == naive(records, timestamp, 10, limit)
        newest = max(t for o, t in records if o >= 10)
        found = world.do(world.log.max_timestamp_offset)
        assert found == TimestampOffset(naive(records, newest, 10, 1 << 60), newest, 0)


def test_lookup_by_time_in_an_empty_log_finds_nothing(world: Any) -> None:
    assert world.log.offset_for_timestamp(0, 100) is None
    assert world.log.max_timestamp_offset() is None
    world.append(timestamp=-1)
    assert world.log.max_timestamp_offset() is None
