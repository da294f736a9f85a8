from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.log.index import IndexDamaged, OffsetIndex, TimeIndex
from klamm.records.batch import iter_batches


def offset_index(entries: list[tuple[int, int]], base: int = 0) -> OffsetIndex:
    index = OffsetIndex(base)
    for offset, position in entries:
        index.append(offset, position)
    return index


gaps = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 5000)), max_size=60)


@settings(deadline=None, max_examples=100)
@given(gaps, st.integers(0, 1 << 40), st.integers(-5, 70_000))
def test_offset_lookups_find_the_last_entry_at_or_below(steps: list[tuple[int, int]], base: int, target: int) -> None:
    entries: list[tuple[int, int]] = []
    offset, position = base, 0
    for more_offset, more_position in steps:
        offset, position = offset + more_offset, position + more_position
        entries.append((offset, position))
    index = offset_index(entries, base)
    assert [index.entry(i) for i in range(len(index))] == entries
    assert index.floor(base + target) == sum(1 for o, _ in entries if o <= base + target) - 1
    assert index.floor_position(target) == sum(1 for _, p in entries if p <= target) - 1
    index.truncate_to(base + target)
    assert [index.entry(i) for i in range(len(index))] == [e for e in entries if e[0] < base + target]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(-1, 50), max_size=40), st.integers(-2, 55), st.integers(0, 60))
def test_time_entries_only_grow_and_lookups_find_the_last_at_or_below(stamps: list[int], target: int, cut: int) -> None:
    index = TimeIndex(100)
    expected: list[tuple[int, int]] = []
    for i, stamp in enumerate(stamps):
        index.append(stamp, 100 + i)
        if stamp >= 0 and (not expected or stamp > expected[-1][0]):
            expected.append((stamp, 100 + i))
    assert [index.entry(i) for i in range(len(index))] == expected
    assert index.last() == (expected[-1] if expected else (-1, 100))
    assert index.floor(target) == sum(1 for t, _ in expected if t <= target) - 1
    index.truncate_to(100 + cut)
    assert [index.entry(i) for i in range(len(index))] == [e for e in expected if e[1] < 100 + cut]


def test_the_bytes_are_kafkas() -> None:
    index = offset_index([(107, 5000), (120, 9999)], 100)
    assert bytes(index.data) == struct.pack(">iiii", 7, 5000, 20, 9999)
    times = TimeIndex(100)
    times.append(1_700_000_000_000, 107)
    assert bytes(times.data) == struct.pack(">qi", 1_700_000_000_000, 7)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        struct.pack(">iiii", 5, 10, 5, 20),
        struct.pack(">iiii", 5, 10, 6, 10),
        struct.pack(">ii", 5, 5000),
        struct.pack(">ii", 50, 10),
        struct.pack(">ii", -1, 10),
        b"\0" * 16,
    ],
)
def test_an_offset_index_that_cannot_be_right_is_noticed(data: bytes) -> None:
    with pytest.raises(IndexDamaged):
        OffsetIndex(0, data).check(5000, 50)


@pytest.mark.parametrize("data", [b"\0" * 13, struct.pack(">qiqi", 5, 1, 5, 2), struct.pack(">qi", 5, 50), b"\0" * 24])
def test_a_time_index_that_cannot_be_right_is_noticed(data: bytes) -> None:
    with pytest.raises(IndexDamaged):
        TimeIndex(0, data).check(50)


def expected_entries(log_bytes: bytes, base: int, interval: int) -> tuple[bytes, bytes]:
    """Kafka's rule, written down once more: an entry for the first batch after more than `interval` bytes."""
    offsets, times = b"", b""
    last_position, newest, newest_offset, last_time = 0, -1, base, -1
    for position, header in iter_batches(log_bytes):
        if header.max_timestamp > newest:
            newest, newest_offset = header.max_timestamp, header.last_offset
        if position - last_position > interval:
            offsets += struct.pack(">ii", header.last_offset - base, position)
            if newest > last_time:
                times += struct.pack(">qi", newest, newest_offset - base)
                last_time = newest
            last_position = position
    if newest > last_time:
        times += struct.pack(">qi", newest, newest_offset - base)
    return offsets, times


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300), st.integers(0, 500)), min_size=1, max_size=60))
def test_index_files_hold_exactly_kafkas_entries(make_world: Any, steps: list[tuple[int, int, int]]) -> None:
    world = make_world()
    world.configure(index_interval_bytes=500, segment_bytes=4000)
    for count, size, age in steps:
        world.append(count, size, world.clock.now_ms - age)
    world.do(world.log.roll)
    world.reopen()
    for name in world.names(".log"):
        stem = name[:-4]
        offsets, times = expected_entries(bytes(world.file_bytes(name)), int(stem), 500)
        assert bytes(world.file_bytes(stem + ".index")) == offsets
        assert bytes(world.file_bytes(stem + ".timeindex")) == times


def test_indexes_made_by_recovery_are_the_same(world: Any) -> None:
    world.configure(index_interval_bytes=500, segment_bytes=4000)
    world.fill(100)
    world.do(world.log.roll)
    world.flush()
    suffixes = (".index", ".timeindex")
    before = {name: bytes(world.file_bytes(name)) for suffix in suffixes for name in world.names(suffix)}
    for name in before:
        world.files.remove(f"{world.path}/{name}")
    world.kill()  # nothing saved: everything is read again
    after = {name: bytes(world.file_bytes(name)) for suffix in suffixes for name in world.names(suffix)}
    assert len(before) > 4 and {name: after[name] for name in before} == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "empty", "short", "zeros", "random", "foreign"])
def test_a_damaged_index_is_made_anew_and_reads_are_right(world: Any, suffix: str, damage: str) -> None:
    world.configure(index_interval_bytes=200, segment_bytes=4000)
    for i in range(100):
        world.append(1, 30, world.clock.now_ms + i)
    start, state = world.clock.now_ms, world.close()
    for name in world.names(suffix):
        content = world.file_bytes(name)
        if damage == "gone":
            world.files.remove(f"{world.path}/{name}")
        elif damage == "empty":
            content.clear()
        elif damage == "short":
            del content[-5:]
        elif damage == "zeros":
            content[:] = bytes(len(content))
        elif damage == "random":
            content[:] = world.disk.rng.randbytes(len(content))
        else:  # sound in itself, but of another log: only following an entry shows it
            width = 8 if suffix == ".index" else 12
            for at in range(0, len(content), width):
                content[at + width - 1] ^= 1
    world.disk.kill()
    world.boot()
    world.open(state)
    for offset in range(100):
        data = world.read(offset, 1)
        assert next(iter_batches(data))[1].base_offset == offset
        assert world.do(world.log.offset_for_timestamp, start + offset, 1 << 60).offset == offset
    assert world.log.failure is None
