"""A crash, or a failing disk, at every single file operation of a compaction."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from klamm.log.compaction.swap import finish_swaps
from klamm.log.repair import survey
from klamm.records.compression import Codec
from klamm.testing.sim.disk import DeadIncarnation
from klamm.testing.sim.faults import NAME, READ, SYNC, WRITE

SEGMENTS = 6


def filled(make_topic: Callable[..., Any], seed: int = 0) -> Any:
    """Segments that become two groups, with tombstones, transactions and an idempotent producer in them."""
    topic = make_topic(seed)
    for number in range(SEGMENTS):
        topic.append(("a", str(number)), (f"k{number % 2}", "x" * 40), producer=5)
        topic.append(("gone", "1") if number < 3 else ("gone", None), codec=Codec.LZ4)
        topic.append(("t", str(number)), producer=6, transactional=True)
        topic.end(6, commit=number % 2 == 0)
        topic.roll()
    topic.world.configure(segment_bytes=450)
    return topic


def contents(topic: Any) -> list[bytes]:
    return [data for _, data in topic.world.batches()]


def operations(make_topic: Callable[..., Any]) -> int:
    topic = filled(make_topic)
    seen: list[str] = []
    topic.world.disk._observe = lambda operation, path, data: seen.append(operation)
    topic.compact()
    assert 2 < len(topic.world.names(".log")) < SEGMENTS
    return len(seen)


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_at_any_operation_leaves_the_old_or_the_new_of_each_segment(
    make_topic: Callable[..., Any], power: bool
) -> None:
    count = operations(make_topic)
    assert count > 40
    reference = filled(make_topic)
    old = contents(reference)
    reference.compact()
    new = contents(reference)
    assert not set(new) <= set(old)
    mixed = 0
    for operation in range(1, count + 1):
        topic = filled(make_topic, seed=operation)
        before = topic.producers()
        world = topic.world
        world.disk.faults.crash(operation, world.disk.power_loss if power else world.disk.kill)
        try:
            topic.compact()
        except DeadIncarnation:
            pass
        world.boot()
        world.open(None, world.saved)
        left = contents(topic)
        mixed += _is_one_or_the_other(left, old, new)
        topic.check()
        topic.check_ends()
        assert topic.producers() == before
        assert not world.names(".cleaned") and not world.names(".swap") and not world.names(".deleted")
        topic.append(("a", "later"), producer=5)
        topic.roll()
        topic.compact()
        topic.check()
        topic.check_is_clean()
    assert mixed  # the crash came between two swaps, at least once


def test_a_second_crash_while_a_swap_is_being_finished_is_no_worse(make_topic: Callable[..., Any]) -> None:
    seen = 0
    for operation in range(1, operations(make_topic) + 1, 2):
        for second in range(1, 100):
            topic = filled(make_topic, seed=operation + 1000 * second)
            world = topic.world
            world.disk.faults.crash(operation, world.disk.power_loss)
            try:
                topic.compact()
            except DeadIncarnation:
                pass
            world.boot()
            if not world.names(".swap"):
                break
            world.disk.faults.crash(second, world.disk.power_loss)
            try:
                finish_swaps(world.files, world.path)
                break
            except DeadIncarnation:
                seen += 1
            world.boot()
            world.open(None, world.saved)
            topic.check()
            topic.check_ends()
    assert seen > 30


def _is_one_or_the_other(left: list[bytes], old: list[bytes], new: list[bytes]) -> bool:
    """Some first segments are new and the others old; whether there are both."""
    if left in (old, new):
        return False
    common = 0
    while common < min(len(left), len(new)) and left[common] == new[common]:
        common += 1
    rest = left[common:]
    assert rest == old[len(old) - len(rest) :], "neither the old nor the new"
    return True


@pytest.mark.parametrize("kind", [READ, WRITE, SYNC, NAME])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_error_at_any_operation_leaves_a_log_that_has_everything(
    make_topic: Callable[..., Any], kind: str, code: int
) -> None:
    for after in range(60):
        topic = filled(make_topic)
        world = topic.world
        world.disk.faults.fail(kind, after=after, code=code)
        cleaner = topic.compact()
        if not world.disk.faults._failures and topic.log.failure is None:
            world.disk.faults._failures.clear()
            topic.check()
            if code == errno.ENOSPC:
                assert not cleaner.uncleanable
            topic.append(("a", "later"))
        world.disk.faults._failures.clear()
        world.kill()
        topic.check()
        topic.compact()
        topic.check()
        topic.check_is_clean()


def test_too_little_room_is_no_harm(make_topic: Callable[..., Any]) -> None:
    for free in range(0, 3000, 50):
        topic = filled(make_topic)
        topic.world.disk.fill(free)
        topic.compact()
        topic.check()
        assert not topic.world.names(".cleaned")
        topic.world.disk.capacity_bytes = None
        topic.compact()
        topic.check_is_clean()


def test_repair_sees_the_log_as_the_next_start_will(make_topic: Callable[..., Any]) -> None:
    for operation in range(1, operations(make_topic) + 1):
        topic = filled(make_topic, seed=operation)
        world = topic.world
        world.disk.faults.crash(operation, world.disk.power_loss)
        try:
            topic.compact()
        except DeadIncarnation:
            pass
        world.boot()
        found = survey(world.files, world.path)
        assert not found.damages and found.end_offset == 4 * 2 + 4 * 4 + 6


def test_a_note_of_another_log_is_thrown_away(make_topic: Callable[..., Any]) -> None:
    topic = filled(make_topic)
    world = topic.world
    before = contents(topic)
    note = b'{"token": "ab", "bases": [0, 5, 10], "size": 17, "has_aborted": false}'
    for content in (note, b"{", b'{"token": 1}', b"[]"):
        world.files.write_atomically(f"{world.path}/00000000000000000000.swap", content)
        assert finish_swaps(world.files, world.path)
        assert not world.names(".swap")
    assert not finish_swaps(world.files, world.path)
    assert not finish_swaps(world.files, "data/topics/nowhere")
    world.kill()
    assert contents(topic) == before
