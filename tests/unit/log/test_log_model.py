"""The log against a list: random histories with restarts, kills, power losses, slow and full disks.

What must hold at any time: everything written is there, once, in order; after a kill still everything that was visible;
after a power loss at least what was durable, and of the rest a prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from klamm.core.errors import ErrorCode
from klamm.log.results import Appended
from klamm.log.writer import SLOW_WRITE_S
from klamm.records.batch import iter_batches, read_header
from klamm.records.record import decode_records
from klamm.testing.sim.disk import DeadIncarnation

ANY = 1 << 60


class Batch(NamedTuple):
    base: int
    last: int
    data: bytes


class LogMachine(RuleBasedStateMachine):
    def __init__(self, make_world: Callable[..., Any]) -> None:
        super().__init__()
        self.make_world = make_world
        self.batches: list[Batch] = []  # everything up to the end; what is below the start is only remembered
        self.start = 0
        self.end = 0  # the next offset; what lies between the log's end and this is queued
        self.sequences = {1: 0, 2: 0}

    @initialize(seed=st.integers(0, 1 << 30), segment=st.sampled_from([300, 900, 1 << 30]))
    def begin(self, seed: int, segment: int) -> None:
        self.world = self.make_world(seed)
        self.world.configure(segment_bytes=segment, index_interval_bytes=150, max_message_bytes=290, retention_ms=-1)

    @property
    def log(self) -> Any:
        return self.world.log

    # ---- growing

    @rule(count=st.integers(1, 3), size=st.integers(0, 40), age=st.integers(0, 50), producer=st.sampled_from([0, 1, 2]))
    def append(self, count: int, size: int, age: int, producer: int) -> None:
        options = {}
        if producer:
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.sequences[producer]}
            self.sequences[producer] += count
        batch = self.world.batch(count, size, self.world.clock.now_ms - age, **options)
        result = self.world.do(self.log.append, batch, leader_epoch=1)
        assert result == Appended(self.end, self.end + count - 1, -1)
        self.batches.append(Batch(self.end, self.end + count - 1, bytes(batch)))
        self.end += count

    @rule(size=st.integers(0, 40), batches=st.integers(2, 12), producer=st.sampled_from([0, 1, 2]))
    def append_many(self, size: int, batches: int, producer: int) -> None:
        for i in range(batches):
            self.append(1 + i % 2, size, i, producer)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), gap=st.integers(0, 3), torn=st.booleans())
    def follow(self, counts: list[int], gap: int, torn: bool) -> None:
        data = b""
        self.end += gap
        for count in counts:
            batch = bytes(self.world.batch(count, 5, base_offset=self.end, leader_epoch=1))
            self.batches.append(Batch(self.end, self.end + count - 1, batch))
            data += batch
            self.end += count
        if torn:
            data += bytes(self.world.batch(1, 5, base_offset=self.end))[:-1]
        assert isinstance(self.world.do(self.log.append_as_follower, data), Appended)

    @rule(producer=st.sampled_from([1, 2]))
    def send_again(self, producer: int) -> None:
        mine = [batch for batch in self.batches if read_header(batch.data).producer_id == producer]
        if mine:
            result = self.world.do(self.log.append, bytearray(mine[-1].data), leader_epoch=1)
            assert result == Appended(mine[-1].base, mine[-1].last, -1, True)

    @rule()
    def roll(self) -> None:
        self.world.do(self.log.roll)

    @rule()
    def flush(self) -> None:
        self._settle()
        assert self.world.flush() is None
        assert self.log.recovery_point == self.log.end_offset == self.end

    @rule()
    def save_state(self) -> None:
        self.world.save()

    # ---- trouble

    @rule(slow=st.booleans(), hold=st.booleans())
    def change_the_disks_speed(self, slow: bool, hold: bool) -> None:
        self._settle()
        self.world.disk.faults.write_s = 2 * SLOW_WRITE_S if slow else 0.0
        self.world.executor.hold = hold

    @rule()
    def one_job_ends(self) -> None:
        if self.world.executor.jobs:
            self.world.executor.run_next()
        self.world.turn()

    @rule(free=st.integers(0, 100))
    def fill_the_disk(self, free: int) -> None:
        self._settle()
        self.world.disk.faults.write_s = 0.0
        self.append(1, 0, 0, 0)  # inline from here on
        self._settle()
        self.world.disk.fill(free)
        result = self.world.append(1, 150)
        assert result.code == ErrorCode.KAFKA_STORAGE_ERROR and self.log.failure is None
        self.world.disk.capacity_bytes = None

    def _settle(self) -> None:
        """Let all jobs run."""
        self.world.executor.hold = False
        while self.world.executor.jobs:
            self.world.executor.run_all()
            self.world.turn()
        self.world.settle()

    # ---- ends

    def _cut_at(self, end: int) -> None:
        self.end = end
        self.start = min(self.start, end)
        self.batches = [batch for batch in self.batches if batch.last < end]
        for producer in self.sequences:
            mine = [h for batch in self.batches if (h := read_header(batch.data)).producer_id == producer]
            self.sequences[producer] = mine[-1].last_sequence + 1 if mine else 0

    @rule()
    def restart(self) -> None:
        self._settle()
        self.world.reopen()

    @rule()
    def kill(self) -> None:
        end = self.log.end_offset
        self.world.executor.hold = False
        self.world.kill()
        assert self.log.failure is None and self.log.end_offset == end
        self._cut_at(end)
        self._starts_at(self.start)
        self.look_around()

    @rule()
    def lose_power(self) -> None:
        durable = self.log.recovery_point
        self.world.executor.hold = False
        self.world.power_loss()
        assert self.log.failure is None, self.log.failure
        assert durable <= self.log.end_offset <= self.end
        self._cut_at(self.log.end_offset)
        self._starts_at(self.start)
        self.world.save()
        self.look_around()

    @rule(
        steps=st.lists(
            st.sampled_from(["append", "roll", "flush", "retain", "truncate", "close"]), min_size=1, max_size=8
        ),
        ops=st.integers(1, 40),
        ops_of_recovery=st.integers(1, 15),
        power=st.booleans(),
    )
    def crash_in_the_middle(self, steps: list[str], ops: int, ops_of_recovery: int, power: bool) -> None:
        """A crash at some change of the disk, in the middle of whatever it belongs to, and another in the recovery."""
        self._settle()
        world, disk = self.world, self.world.disk
        crash = disk.power_loss if power else disk.kill
        disk.faults.crash(ops, crash)
        self.floor = self.log.recovery_point if power else self.log.end_offset
        try:
            for step in steps:
                self._step(step)
                self.floor = self.log.recovery_point if power else self.log.end_offset
        except DeadIncarnation:
            pass
        else:
            crash()
        disk.faults.crash(ops_of_recovery, crash)
        world.boot()
        try:
            world.open(None, world.saved)
        except DeadIncarnation:
            world.boot()
            world.open(None, world.saved)
        disk.faults.crash(1 << 60, crash)  # never
        assert self.log.failure is None, self.log.failure
        assert self.floor <= self.log.end_offset <= self.end
        self._cut_at(self.log.end_offset)
        if self.log.start_offset <= self.start:
            self._starts_at(self.start)
        self.start = self.log.start_offset  # retention may have come further than we have seen
        world.save()
        self.look_around()

    def _step(self, step: str) -> None:
        world = self.world
        if step == "append":
            batch = world.batch(2, 30, base_offset=self.end, leader_epoch=1)
            self.batches.append(Batch(self.end, self.end + 1, bytes(batch)))
            self.end += 2
            world.do(self.log.append, batch, leader_epoch=1)
        elif step == "truncate":
            end = self.log.batch_start(max(self.start, self.end - 7))
            if end < self.start:
                return
            self.floor = min(self.floor, end)
            world.saved = world.saved._replace(recovery_point=min(world.saved.recovery_point, end))
            world.settle()
            self.log.truncate_to(end)
            self._cut_at(end)
        elif step == "retain":
            self.retain(300)
        elif step == "close":
            world.settle()
            self.log.close()
            world.boot()
            world.open(None, world.saved)
            self._starts_at(self.start)
        else:
            world.do(getattr(self.log, step))

    def _starts_at(self, start: int) -> None:
        """A crash may bring back what retention had taken, or a start that was saved nowhere."""
        assert self.log.start_offset <= start
        self.log.advance_start_offset(start)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        self._settle()
        offset = data.draw(st.integers(self.start, self.end))
        end = self.log.batch_start(offset)
        if end < self.start:
            return  # a log starts at or below its high watermark, and nobody truncates below that
        self.world.saved = self.world.saved._replace(recovery_point=min(self.world.saved.recovery_point, end))
        self.log.truncate_to(offset)
        assert self.log.end_offset == end <= offset
        self._cut_at(end)
        self.look_around()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.log.end_offset))
        self.log.advance_start_offset(self.start)

    @rule(keep=st.integers(0, 2000))
    def retain(self, keep: int) -> None:
        self.world.configure(retention_bytes=keep)
        for path in self.world.do(self.log.delete_old_segments, self.world.clock.now_ms, ANY):
            self.world.files.remove(path)
        self.world.configure(retention_bytes=-1)
        assert self.log.start_offset >= self.start
        self.start = self.log.start_offset

    # ---- what must hold

    def _visible(self) -> list[Batch]:
        return [batch for batch in self.batches if self.start <= batch.last < self.log.end_offset]

    @invariant()
    def offsets_are_in_order(self) -> None:
        if hasattr(self, "world"):
            log = self.log
            assert log.failure is None
            assert log.start_offset == self.start <= log.end_offset
            assert log.recovery_point <= log.end_offset

    def look_around(self) -> None:
        self.read_everything()
        self.find_by_time(20)
        for producer in self.sequences:
            self.send_again(producer)

    @rule()
    def read_everything(self) -> None:
        assert [batch for _, batch in self.world.batches()] == [batch.data for batch in self._visible()]

    @rule(data=st.data(), max_bytes=st.integers(1, 800))
    def read_somewhere(self, data: st.DataObject, max_bytes: int) -> None:
        visible = self._visible()
        offset = data.draw(st.integers(self.start, self.log.end_offset))
        limit = data.draw(st.sampled_from([batch.base for batch in visible] + [self.log.end_offset]))
        expected = b"".join(b.data for b in visible if b.last >= offset and b.last < limit)
        found = self.world.read(offset, max_bytes, limit=limit)
        if found is None:
            assert expected == b"" or offset >= limit
            return
        assert expected.startswith(found)
        first = next(iter_batches(expected))[1].size
        assert first <= len(found) <= max(first, max_bytes)

    @rule(age=st.integers(-5, 60))
    def find_by_time(self, age: int) -> None:
        timestamp = self.world.clock.now_ms - age
        records = [record for batch in self._visible() for record in decode_records(batch.data)]
        expected = next((r.offset for r in records if r.timestamp >= timestamp and r.offset >= self.start), None)
        found = self.world.do(self.log.offset_for_timestamp, timestamp, ANY)
        assert (found and found.offset) == expected


def test_a_log_behaves_like_a_list_whatever_happens_to_it(make_world: Callable[..., Any]) -> None:
    run_state_machine_as_test(
        lambda: LogMachine(make_world),
        settings=settings(
            deadline=None,
            max_examples=60,
            stateful_step_count=40,
            report_multiple_bugs=False,
            phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
