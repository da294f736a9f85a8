"""What compaction leaves of a log."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from klamm.core.env import ChildFailed
from klamm.log.compaction.plan import MIN_MAP_BYTES, Settings
from klamm.records.batch import DELETE_HORIZON
from klamm.records.compression import Codec
from klamm.records.kernel import KeyMap
from klamm.records.record import Record, encode_batch


def pairs(topic: Any) -> list[tuple[str, str | None]]:
    return [(r.key.decode(), None if r.value is None else r.value.decode()) for r in topic.visible()]


def offsets(topic: Any) -> list[int]:
    return [record.offset for record in topic.visible()]


@pytest.mark.parametrize("codec", list(Codec))
def test_only_the_last_record_of_a_key_stays_under_its_offset_and_with_all_it_had(topic: Any, codec: Codec) -> None:
    topic.append(("a", "1"), ("b", "1"), ("a", "2"), codec=codec)
    topic.append(("c", "1"), ("b", "2"), codec=codec)
    topic.roll()
    topic.compact()
    assert pairs(topic) == [("a", "2"), ("c", "1"), ("b", "2")]
    assert offsets(topic) == [2, 3, 4]
    topic.check()
    topic.check_is_clean()
    headers = [header for header, _ in topic.stored()]
    assert [header.codec for header in headers] == [codec, codec]
    assert headers[0].max_timestamp == topic.written[2].record.timestamp


def test_the_active_segment_is_left_alone(topic: Any) -> None:
    topic.append(("a", "1"))
    topic.roll()
    topic.append(("a", "2"), ("a", "3"))
    topic.compact()
    assert offsets(topic) == [0, 1, 2]
    assert topic.log.clean_offset == 1


def test_what_was_written_later_is_compacted_against_what_was_clean(topic: Any) -> None:
    for number in range(5):
        topic.append(("a", str(number)), (f"k{number}", "x"))
        topic.roll()
        topic.compact()
        topic.check()
        topic.check_is_clean()
    assert pairs(topic) == [*((f"k{n}", "x") for n in range(4)), ("a", "4"), ("k4", "x")]


def test_an_unused_batch_goes_and_fetches_skip_the_gap(topic: Any) -> None:
    for number in range(20):
        topic.append(("a", str(number)))
    topic.append(("b", "1"))
    topic.roll()
    topic.compact()
    assert offsets(topic) == [19, 20]
    for offset in range(20):
        assert topic.world.batches(offset)[0][0].base_offset == 19


def test_a_tombstone_stays_for_its_time_and_then_goes(topic: Any) -> None:
    topic.append(("a", "1"), ("b", "1"))
    topic.append(("a", None))
    topic.roll()
    topic.compact()
    assert pairs(topic) == [("b", "1"), ("a", None)]
    marked = [header for header, _ in topic.stored() if header.attributes & DELETE_HORIZON]
    assert [header.base_timestamp for header in marked] == [topic.world.clock.now_ms + 1000]
    topic.check()  # its timestamp has not changed
    topic.world.clock.now_ms += 999
    topic.append(("c", "1"))
    topic.roll()
    topic.compact()
    assert ("a", None) in pairs(topic)
    topic.world.clock.now_ms += 1001
    topic.append(("d", "1"))
    topic.roll()
    topic.compact()
    assert pairs(topic) == [("b", "1"), ("c", "1"), ("d", "1")]
    topic.check()


def test_a_tombstone_with_timestamps_out_of_this_world_stays(topic: Any) -> None:
    topic.world.clock.now_ms, now = -(1 << 62), topic.world.clock.now_ms
    topic.append(("a", None))
    topic.world.clock.now_ms = now + (1 << 62) + (1 << 61)
    topic.world.configure(delete_retention_ms=(1 << 63) - 1)
    topic.roll()
    cleaner = topic.compact()
    assert not cleaner.uncleanable and pairs(topic) == [("a", None)]


def test_many_small_segments_become_one(topic: Any) -> None:
    for number in range(10):
        topic.append((f"k{number % 3}", str(number)))
        topic.roll()
    topic.compact()
    assert topic.world.names(".log") == ["00000000000000000000.log", "00000000000000000010.log"]
    assert topic.world.names(".snapshot")[-1] == "00000000000000000010.snapshot"
    assert len(topic.world.names(".snapshot")) == 1
    topic.check()
    topic.world.reopen()
    topic.check()
    assert topic.log.clean_offset == 10


def test_segments_are_joined_up_to_the_size_of_one(topic: Any) -> None:
    for number in range(30):
        topic.append((f"k{number:02}", "x" * 50))
        topic.roll()
    size = topic.log.size_bytes // 30
    topic.world.configure(segment_bytes=5 * size)
    topic.compact()
    assert len(topic.world.names(".log")) == 7
    topic.check()
    topic.check_ends()


def test_a_segment_in_which_nothing_changes_is_not_touched(topic: Any) -> None:
    topic.append(("a", "1"))
    topic.roll()
    topic.world.configure(segment_bytes=1)
    operations: list[str] = []
    topic.world.disk._observe = lambda operation, path, data: operations.append(f"{operation} {path}")
    topic.compact()
    assert topic.log.clean_offset == 1
    assert not [line for line in operations if line.startswith(("rename", "write"))]


def test_an_emptied_segment_still_ends_where_the_next_one_starts(topic: Any) -> None:
    topic.append(("a", "1"), ("a", "2"))
    topic.roll()
    topic.append(("a", "3"))
    topic.roll()
    topic.world.configure(segment_bytes=1)  # nothing is joined
    topic.compact()
    assert [(header.base_offset, header.last_offset, len(records)) for header, records in topic.stored()] == [
        (0, 1, 0),
        (2, 2, 1),
    ]
    topic.check_ends()
    topic.world.saved = topic.world.saved._replace(recovery_point=0)  # recovery reads all of it
    topic.world.kill()
    assert topic.log.failure is None and topic.log.end_offset == 3
    topic.check()


def test_the_last_sequence_of_a_producer_outlives_its_records(topic: Any) -> None:
    topic.append(("a", "1"), ("b", "1"), producer=7)
    topic.append(("a", "2"), ("b", "2"))
    topic.roll()
    before = topic.producers()
    topic.compact()
    topic.check()
    for name in topic.world.names(".snapshot"):
        topic.world.files.remove(f"{topic.world.path}/{name}")
    topic.world.saved = topic.world.saved._replace(recovery_point=0)
    topic.world.kill()
    assert topic.producers() == before
    topic.append(("c", "1"), producer=7)


def test_once_a_producer_is_forgotten_its_empty_batch_goes(topic: Any) -> None:
    topic.append(("a", "1"), producer=7)
    topic.append(("a", "2"))
    topic.roll()
    topic.compact()
    assert [header.producer_id for header, _ in topic.stored()] == [7, -1]
    topic.world.clock.now_ms += topic.world.config.producer_id_expiration_ms
    assert not topic.log.expire_producers(topic.world.clock.now_ms)
    topic.append(("b", "2"))
    topic.roll()
    topic.compact()
    assert [header.producer_id for header, _ in topic.stored()] == [-1, -1]


def test_aborted_records_neither_stay_nor_count(topic: Any) -> None:
    topic.append(("a", "good"))
    topic.append(("a", "bad"), ("b", "bad"), producer=1, transactional=True)
    topic.end(1, commit=False)
    topic.append(("x", "1"), producer=1)
    topic.roll()
    topic.compact()
    assert pairs(topic) == [("a", "good"), ("x", "1")]
    assert len([1 for header, _ in topic.stored() if header.is_control]) == 1
    topic.check()


@pytest.mark.parametrize("value", ["2", None])
def test_what_a_producer_commits_counts_although_an_earlier_transaction_of_it_was_aborted(
    topic: Any, value: str | None
) -> None:
    topic.append(("a", "1"))
    topic.append(("b", "1"), producer=7, transactional=True)
    topic.end(7, commit=False)
    topic.roll()
    topic.compact()
    topic.append(("a", value), producer=7, transactional=True)
    topic.end(7, commit=True)
    for _ in range(2):
        topic.append(("c", "1"))
        topic.roll()
        topic.compact()
        topic.check()
        topic.check_is_clean()
        topic.world.clock.now_ms += 2_000
    assert pairs(topic) == ([("a", "2")] if value else []) + [("c", "1")]


def test_a_marker_goes_in_its_time_once_nothing_of_its_transaction_is_left(topic: Any) -> None:
    for commit in (True, False):
        topic.append(("a", "1"), producer=1, transactional=True)
        topic.end(1, commit)
    topic.append(("a", "2"), producer=1)

    def markers() -> int:
        topic.append(("b", "1"))
        topic.roll()
        topic.compact()
        topic.check()
        return sum(header.is_control for header, _ in topic.stored())

    assert markers() == 2  # the records go
    assert markers() == 2  # and with nothing left, the time of the markers begins
    topic.world.clock.now_ms += 999
    assert markers() == 2
    topic.world.clock.now_ms += 2
    assert markers() == 0
    assert topic.world.names(".txnindex") == []


def test_the_marker_with_the_last_epoch_of_a_producer_stays(topic: Any) -> None:
    topic.append(("a", "1"), producer=1, transactional=True)
    topic.epochs[1] = 1  # as transaction version 2 has it: the marker brings the new epoch
    topic.end(1, commit=True)
    topic.append(("a", "2"))
    for _ in range(4):
        topic.append(("b", "1"))
        topic.roll()
        topic.compact()
        topic.world.clock.now_ms += 2000
    assert [header.producer_epoch for header, _ in topic.stored() if header.is_control] == [1]


def test_of_a_producer_without_sequences_the_last_marker_is_enough(topic: Any) -> None:
    """What a coordinator of groups writes for a transactional producer."""
    batch = encode_batch([Record(0, 1, b"offset", b"1")], producer_id=1, producer_epoch=0, transactional=True)
    for _ in range(6):
        for _ in range(3):
            topic.world.do(topic.log.append, bytearray(batch), leader_epoch=0, from_client=False)
            topic.end(1, commit=True)
        topic.roll()
        topic.compact()
        topic.world.clock.now_ms += 2000
    kept = [header.base_offset for header, _ in topic.stored() if header.is_control]
    assert len(kept) < 10 and kept[-1] == topic.log.end_offset - 1
    assert len(topic.visible()) == 1


def test_an_open_transaction_and_all_behind_it_wait(topic: Any) -> None:
    topic.append(("a", "1"))
    topic.append(("a", "2"))
    topic.roll()
    topic.append(("a", "3"), producer=1, transactional=True)
    topic.roll()
    topic.append(("a", "4"))
    topic.roll()
    topic.compact()
    assert topic.log.clean_offset == 2
    topic.end(1, commit=True)
    topic.roll()
    topic.compact()
    assert topic.log.clean_offset == 5
    assert pairs(topic) == [("a", "4")]
    topic.check()


def test_the_marker_of_an_aborted_transaction_may_lie_behind_what_is_compacted(topic: Any) -> None:
    topic.append(("a", "good"))
    topic.append(("a", "bad"), producer=1, transactional=True)
    topic.roll()
    topic.append(("z", "1"), producer=2, transactional=True)
    topic.end(1, commit=False)
    topic.roll()
    topic.compact()
    assert topic.log.clean_offset == 2
    assert pairs(topic) == [("a", "good")]
    topic.end(2, commit=True)
    topic.roll()
    topic.compact()
    topic.check()


def test_more_keys_than_there_is_memory_for_take_several_rounds(topic: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("klamm.log.compaction.plan.MIN_MAP_BYTES", 5 * KeyMap.bytes_per_key)
    topic.settings = Settings(map_bytes=1)
    for number in range(3):
        topic.append(*((f"k{i}", str(number)) for i in range(7)))
        topic.append(*((f"k{i}", str(number)) for i in range(7, 13)))
        topic.roll()
    cleaner = topic.compact()
    assert cleaner.counters.rounds > 3
    assert MIN_MAP_BYTES == 1 << 20
    assert pairs(topic) == [(f"k{i}", "2") for i in range(13)]
    topic.check()
    topic.check_is_clean()


def test_records_without_a_key_from_before_the_topic_was_compacted_go(topic: Any, caplog: Any) -> None:
    batch = encode_batch([Record(0, 1, None, b"v"), Record(0, 1, b"k", b"v")])
    topic.world.do(topic.log.append, bytearray(batch), leader_epoch=0)
    topic.roll()
    topic.compact()
    assert [record.key for record in topic.visible()] == [b"k"]
    assert "1 records that had no key" in caplog.text


def test_younger_records_than_min_compaction_lag_wait(topic: Any) -> None:
    topic.world.configure(min_compaction_lag_ms=100)
    topic.append(("a", "1"), ("a", "2"))
    topic.roll()
    topic.world.clock.now_ms += 100
    topic.append(("a", "3"))
    topic.roll()
    topic.compact()
    assert topic.log.clean_offset == 0
    topic.world.clock.now_ms += 2
    topic.compact()
    assert topic.log.clean_offset == 2
    topic.world.clock.now_ms += 100
    topic.compact()
    assert topic.log.clean_offset == 3


def test_a_log_is_compacted_when_it_is_dirty_enough_or_overdue(topic: Any) -> None:
    topic.world.configure(min_cleanable_ratio=0.4, max_compaction_lag_ms=1000)
    for number in range(3):
        topic.append((f"a{number}", "x" * 100))
    topic.roll()
    topic.compact()
    assert topic.log.clean_offset == 3
    topic.append(("b", "x" * 100))
    topic.roll()
    assert topic.compact().max_dirty_ratio == pytest.approx(0.25, abs=0.05)
    assert topic.log.clean_offset == 3
    topic.world.clock.now_ms += 1001
    topic.compact()
    assert topic.log.clean_offset == 4


def test_records_are_still_found_by_their_time(topic: Any) -> None:
    first = topic.world.clock.now_ms
    for number in range(50):
        topic.world.clock.now_ms = first + 100 * number
        topic.append((f"k{number % 7}", str(number)), ("z", str(number)))
    topic.roll()
    topic.compact()
    for at in range(first - 5, first + 5005, 33):
        expected = [record.offset for record in topic.visible() if record.timestamp >= at]
        found = topic.log.offset_for_timestamp(at, 1 << 60)
        assert (found.offset if found else None) == (expected[0] if expected else None)
    assert topic.log.max_timestamp_offset().offset == 99


def test_readers_keep_the_file_that_they_have(topic: Any) -> None:
    topic.append(("a", "1"), ("a", "2"))
    topic.roll()
    found = topic.log.read(0, 1 << 20, limit=100)
    found.file.pin()
    data = found.file.pread(found.size, found.offset)
    topic.compact()
    topic.world.turn()
    assert found.file.pread(found.size, found.offset) == data
    found.file.unpin()
    assert topic.world.read(0) != data


def test_a_damaged_log_is_set_aside_and_stays_in_service(topic: Any, caplog: Any) -> None:
    topic.append(("a", "1"))
    topic.append(("a", "2"))
    topic.roll()
    topic.world.file_bytes("00000000000000000000.log")[70] ^= 1
    cleaner = topic.compact()
    assert cleaner.uncleanable == {topic.log}
    assert "cannot be compacted" in caplog.text
    assert topic.log.failure is None and topic.log.clean_offset == 0
    assert topic.world.names(".cleaned") == []
    topic.append(("a", "3"))


@pytest.mark.parametrize("change", ["retention", "failure", "deletion"])
def test_a_log_that_changes_meanwhile_is_not_swapped(make_topic: Callable[..., Any], change: str) -> None:
    topic = make_topic()
    for number in range(4):
        topic.append(("a", str(number)), ("b", str(number)))
        topic.roll()
    topic.world.configure(segment_bytes=1)
    cleaner, manager = topic.cleaner()
    topic.world.executor.hold = True
    before = topic.world.names(".log")

    async def run() -> None:
        running = asyncio.ensure_future(cleaner.run())
        while not running.done():
            await asyncio.sleep(0)
            if topic.world.executor.jobs:
                topic.world.executor.run_next()
            if manager.usable and topic.world.names(".swap"):  # decided, and the loop has not heard of it yet
                if change == "retention":
                    topic.world.configure(retention_bytes=0)
                    assert topic.log.delete_old_segments(topic.world.clock.now_ms, 1 << 60)
                elif change == "failure":
                    topic.log.fail("for a test")
                else:
                    manager.usable = False
        await running

    topic.world.loop.run_until_complete(run())
    assert not topic.world.names(".swap") and not topic.world.names(".cleaned")
    assert topic.log.swapping is None
    if change == "deletion":
        assert topic.world.names(".log") == before
        assert offsets(topic) == list(range(8))
    elif change == "retention":
        assert topic.world.names(".log") == before[-1:]


def test_the_brake_holds(topic: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("klamm.log.compaction.work.STEP_BYTES", 100)
    waits: list[float] = []

    async def wait_for(waiting: Any, seconds: float) -> None:
        waiting.close()
        waits.append(seconds)
        topic.world.clock.seconds += seconds

    monkeypatch.setattr("klamm.log.compaction.cleaner.asyncio.wait_for", wait_for)
    topic.settings = Settings(bytes_per_second=1000.0)
    for number in range(10):
        topic.append(("a", str(number)))
    topic.roll()
    size = topic.log.size_bytes
    topic.compact()
    assert sum(waits) == pytest.approx(2 * size / 1000, rel=0.3)


def test_switched_off_it_does_nothing(topic: Any) -> None:
    topic.append(("a", "1"), ("a", "2"))
    topic.roll()
    for settings in (Settings(enabled=False), Settings(children=0)):
        topic.settings = settings
        topic.compact()
        assert topic.log.clean_offset == 0


class DyingChildren:
    def __init__(self, code: int | None) -> None:
        self.code = code
        self.stopped = 0

    async def start(self, *_: object) -> DyingChildren:
        return self

    async def next(self) -> object:
        raise ChildFailed("a child process ended with status -9", self.code)

    async def stop(self) -> None:
        self.stopped += 1


@pytest.mark.parametrize(("code", "given_up"), [(None, True), (errno.EIO, True), (errno.ENOSPC, False)])
def test_a_child_that_dies_is_followed_by_others_for_a_while(topic: Any, code: int | None, given_up: bool) -> None:
    topic.append(("a", "1"), ("a", "2"))
    topic.roll()
    real, topic.world.env.processes = topic.world.env.processes, DyingChildren(code)
    cleaner, _ = topic.cleaner()
    for attempt in range(1, 5):
        topic.world.loop.run_until_complete(cleaner.run())
        assert cleaner.counters.failures == (min(attempt, 3) if given_up else attempt)
    assert cleaner.uncleanable == ({topic.log} if given_up else set())
    topic.check()
    topic.world.env.processes = real
    topic.compact()
    assert offsets(topic) == [1]
