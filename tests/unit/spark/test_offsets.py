"""Offsets of a query: how they are kept, how many are read at once, and how they are shared among tasks."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from klamm.core.ids import TopicPartition
from klamm.spark.offsets import Position, Range, divide, spread

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

places = st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d-e"]), st.integers(0, 12))
offsets = st.integers(0, 2**62)
bounds = st.dictionaries(places, st.tuples(st.integers(0, 1000), st.integers(0, 100_000)), min_size=1, max_size=10)


def test_a_checkpoint_has_what_sparks_own_source_writes_and_two_additions() -> None:
    position = Position({A1: 4, A0: 17, B0: 0}, {"a": "id-of-a"}, first={A0: 3})
    assert json.dumps(position.to_json()) == (
        '{"a": {"0": 17, "1": 4}, "b": {"0": 0}, "@ids": {"a": "id-of-a"}, "@from": {"a": {"0": 3}}}'
    )


def test_a_checkpoint_of_sparks_own_source_can_be_read() -> None:
    assert Position.from_json({"a": {"1": 4, "0": 17}}) == Position({A0: 17, A1: 4})


@given(
    st.dictionaries(places, offsets),
    st.dictionaries(st.sampled_from(["a", "b"]), st.text()),
    st.none() | st.dictionaries(places, offsets),
)
def test_what_is_written_into_a_checkpoint_comes_out_of_it(at: dict, ids: dict, first: dict | None) -> None:
    position = Position(at, ids, first)
    assert Position.from_json(json.loads(json.dumps(position.to_json()))) == position


# How far a batch goes.


@given(bounds, st.integers(1, 200_000))
def test_a_limit_is_shared_in_proportion_and_nobody_starves(
    found: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    start = {place: begin for place, (begin, _) in found.items()}
    end = {place: begin + size for place, (begin, size) in found.items()}
    sizes = {place: size for place, (_, size) in found.items() if size}
    total = sum(sizes.values())
    taken = {place: offset - start[place] for place, offset in spread(limit, start, end).items()}
    assert taken.keys() == end.keys()
    if total <= limit:
        assert taken == {place: size for place, (_, size) in found.items()}
        return
    for place, count in taken.items():
        if place not in sizes:
            assert count == 0
            continue
        fair = limit * sizes[place] / total  # Spark's rule: rounded down, and up where that would be nothing
        assert count >= 1
        assert abs(count - (math.floor(fair) if fair >= 1 else 1)) <= 1e-9 * fair
    assert sum(taken.values()) <= limit + len(sizes)


@given(bounds, st.integers(1, 50))
def test_batch_by_batch_the_end_is_reached(found: dict[TopicPartition, tuple[int, int]], share: int) -> None:
    at = {place: begin for place, (begin, _) in found.items()}
    end = {place: begin + size for place, (begin, size) in found.items()}
    limit = sum(size for _, size in found.values()) // share + 1
    batches = 0
    while at != end:
        ahead = spread(limit, at, end)
        assert all(at[place] < ahead[place] <= end[place] for place in end if at[place] < end[place])
        at = ahead
        batches += 1
    assert batches <= 2 * share + 1  # rounding takes less than half of the limit, as every partition gets one


def test_a_partition_that_ends_before_it_began_is_left_to_the_plan() -> None:
    assert spread(10, {A0: 100, A1: 0}, {A0: 50, A1: 100}) == {A0: 50, A1: 10}


# How it is shared among tasks.


def spark_divides(ranges: list[Range], min_tasks: int | None, max_records: int | None) -> list[Range]:
    """The rules of Spark's calculator, written down another time."""

    def cut(one: Range, parts: int) -> list[Range]:
        found, at, left = [], one.start, one.size
        for part in range(parts):
            size = left // (parts - part)
            found.append(Range(one.place, at, at + size))
            at, left = at + size, left - size
        return [each for each in found if each.size > 0]

    def count(size: int, total: int, tasks: int) -> int:
        return max(math.floor(size / total * tasks + 0.5), 1)

    ranges = [one for one in ranges if one.size > 0]
    if max_records is not None:
        ranges = [each for one in ranges for each in cut(one, math.ceil(one.size / max_records))]
    if min_tasks is None or min_tasks <= len(ranges):
        return ranges
    total = sum(one.size for one in ranges)
    unsplit = [one for one in ranges if count(one.size, total, min_tasks) == 1]
    rest = total - sum(one.size for one in unsplit)
    tasks = max(min_tasks - len(unsplit), 1)
    whole = {one.place for one in unsplit}
    return [each for one in ranges for each in cut(one, 1 if one.place in whole else count(one.size, rest, tasks))]


@given(bounds, st.none() | st.integers(1, 60), st.none() | st.integers(1, 50_000))
def test_tasks_are_those_that_spark_would_make_and_have_every_offset_once(
    found: dict[TopicPartition, tuple[int, int]], min_tasks: int | None, max_records: int | None
) -> None:
    if max_records is not None:
        max_records = max(max_records, max(size for _, size in found.values()) // 200)  # or there are very many
    ranges = [Range(place, begin, begin + size) for place, (begin, size) in sorted(found.items())]
    tasks = divide(ranges, min_tasks, max_records)
    assert tasks == spark_divides(ranges, min_tasks, max_records)
    for one in ranges:
        parts = [task for task in tasks if task.place == one.place]
        assert [task.start for task in parts] == ([one.start, *(task.end for task in parts)][:-1] if parts else [])
        assert sum(task.size for task in parts) == one.size
    assert all(task.size > 0 for task in tasks)
    if max_records is not None:
        assert all(task.size <= max_records for task in tasks)


def test_halves_of_tasks_count_as_a_whole() -> None:
    """Python's round would give two tasks, and five records of one."""
    ranges = [Range(A0, 0, 5), Range(A1, 0, 3)]
    assert divide(ranges, 4, None) == spark_divides(ranges, 4, None)
    assert len(divide([Range(A0, 0, 5), Range(A1, 0, 5)], 5, None)) == 6


def test_no_task_has_nothing_to_do() -> None:
    assert divide([Range(A0, 0, 2)], 5, None) == [Range(A0, 0, 1), Range(A0, 1, 2)]


def test_without_wishes_there_is_a_task_for_each_partition_that_has_something() -> None:
    ranges = [Range(A0, 5, 5), Range(A1, 0, 9), Range(B0, 7, 3)]
    assert divide(ranges, None, None) == [Range(A1, 0, 9)]
