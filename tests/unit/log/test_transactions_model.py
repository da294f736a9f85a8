"""Transactions in a log against a list: random histories of several producers, with restarts, kills, power losses and
truncations in them.

What must hold at any time: the last stable offset is where the oldest open transaction starts, and whoever reads up to
it and drops what the answers call aborted, as consumers do, sees the records of all that is committed and no others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from klamm.core.env import FileRange
from klamm.log.results import Appended
from klamm.records.batch import iter_batches
from klamm.records.record import ControlType, EndMarker, decode_control, decode_records, encode_end_marker
from klamm.testing.sim.disk import DeadIncarnation

PRODUCERS = (1, 2, 3)


class Entry(NamedTuple):
    base: int
    last: int
    producer: int  # 0: none
    end: ControlType | None = None  # it is a marker


def committed_reads(world: Any, max_bytes: int) -> list[int]:
    """The offsets that a consumer of committed records delivers: Kafka's rules, with nothing but what it is sent."""
    log = world.log
    stable = log.last_stable_offset(log.end_offset)
    offset, seen = log.start_offset, []
    while offset < stable:
        found = world.do(log.read, offset, max_bytes, limit=stable)
        assert isinstance(found, FileRange), found
        aborted = sorted((a.first_offset, a.producer_id) for a in log.aborted_transactions(offset, stable, found))
        data = found.file.pread(found.size, found.offset)
        aborting: set[int] = set()
        for position, header in iter_batches(data):
            while aborted and aborted[0][0] <= header.last_offset:
                aborting.add(aborted.pop(0)[1])
            if header.is_control:
                marker = decode_control(decode_records(data, position)[0])
                if marker is not None and marker.type == ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                seen += [o for o in range(header.base_offset, header.next_offset) if o >= offset]
            offset_after = header.next_offset
        offset = offset_after
    return seen


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self, make_world: Callable[..., Any]) -> None:
        super().__init__()
        self.make_world = make_world
        self.entries: list[Entry] = []

    @initialize(seed=st.integers(0, 1 << 30), segment=st.sampled_from([400, 1000, 1 << 30]))
    def begin(self, seed: int, segment: int) -> None:
        self.world = self.make_world(seed)
        self.world.configure(segment_bytes=segment, index_interval_bytes=150, retention_ms=-1)

    @property
    def end(self) -> int:
        return self.entries[-1].last + 1 if self.entries else 0

    def open_transactions(self) -> dict[int, int]:
        """First offsets, by producer."""
        opened: dict[int, int] = {}
        for entry in self.entries:
            if entry.end is not None:
                opened.pop(entry.producer, None)
            elif entry.producer:
                opened.setdefault(entry.producer, entry.base)
        return opened

    def fates(self) -> dict[int, ControlType | None]:
        """By offset: how the transaction of the record ended. Records outside of any are as good as committed."""
        fates: dict[int, ControlType | None] = {}
        undecided: dict[int, list[int]] = {}
        for entry in self.entries:
            offsets = range(entry.base, entry.last + 1)
            if entry.end is not None:
                fates.update(dict.fromkeys(undecided.pop(entry.producer, ()), entry.end))
            elif entry.producer:
                undecided.setdefault(entry.producer, []).extend(offsets)
            else:
                fates.update(dict.fromkeys(offsets, ControlType.COMMIT))
        fates.update({offset: None for offsets in undecided.values() for offset in offsets})
        return fates

    # ---- growing

    def sequence(self, producer: int) -> int:
        return sum(e.last - e.base + 1 for e in self.entries if e.producer == producer and e.end is None)

    @rule(producer=st.sampled_from((0, *PRODUCERS)), count=st.integers(1, 3), size=st.integers(0, 60))
    def append(self, producer: int, count: int, size: int) -> None:
        options: dict[str, Any] = {}
        if producer:
            sequence = self.sequence(producer)
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        base = self.end
        assert self.world.append(count, size, **options) == Appended(base, base + count - 1, -1)
        self.entries.append(Entry(base, base + count - 1, producer))

    @rule(producer=st.sampled_from(PRODUCERS), kind=st.sampled_from((ControlType.COMMIT, ControlType.ABORT)))
    def end_transaction(self, producer: int, kind: ControlType) -> None:
        marker = encode_end_marker(
            EndMarker(kind, 0), producer_id=producer, producer_epoch=0, timestamp=self.world.clock.now_ms
        )
        result = self.world.do(self.world.log.append, bytearray(marker), leader_epoch=0, from_client=False)
        assert result == Appended(self.end, self.end, -1)
        self.entries.append(Entry(self.end, self.end, producer, kind))

    @rule(producer=st.sampled_from(PRODUCERS), kind=st.sampled_from((ControlType.COMMIT, ControlType.ABORT)))
    def whole_transaction(self, producer: int, kind: ControlType) -> None:
        self.append(producer, 2, 20)
        self.append(0, 1, 20)
        self.end_transaction(producer, kind)

    # ---- restarts and cuts

    @rule()
    def flush(self) -> None:
        self.world.flush()
        self.world.save()

    @rule()
    def reopen(self) -> None:
        self.world.reopen()

    @rule()
    def kill(self) -> None:
        self.world.kill()

    @rule()
    def power_loss(self) -> None:
        self.world.power_loss()
        self.cut()

    @rule(
        ops=st.integers(1, 6),
        power=st.booleans(),
        producer=st.sampled_from(PRODUCERS),
        kind=st.sampled_from((None, ControlType.COMMIT, ControlType.ABORT)),
    )
    def crash_in_the_middle(self, ops: int, power: bool, producer: int, kind: ControlType | None) -> None:
        """Between a batch and its index, as often as not."""
        world = self.world
        before = len(self.entries)
        world.disk.faults.crash(ops, world.disk.power_loss if power else world.disk.kill)
        try:
            self.append(producer, 2, 20)
            if kind is not None:
                self.end_transaction(producer, kind)
        except DeadIncarnation:
            pass
        if len(self.entries) == before:  # nobody knows whether the first one is there
            self.entries.append(Entry(self.end, self.end + 1, producer))
        if kind is not None and self.entries[-1].end is None:
            self.entries.append(Entry(self.end, self.end, producer, kind))
        world.disk.faults.crash(1 << 30, lambda: None)
        if power:
            world.power_loss()
        else:
            world.kill()
        self.cut()

    @precondition(lambda self: self.entries)
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        world, offset = self.world, int(self.end * part)
        world.settle()
        point = min(world.saved.recovery_point, world.log.batch_start(offset))
        world.saved = world.saved._replace(recovery_point=point)
        world.log.truncate_to(offset)
        self.cut()

    @precondition(lambda self: self.entries)
    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.world.log.advance_start_offset(int(self.end * part))

    def cut(self) -> None:
        end = self.world.log.end_offset
        while self.entries and self.entries[-1].last >= end:
            self.entries.pop()
        assert self.end == end

    # ---- what holds

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        if not hasattr(self, "world"):
            return
        log = self.world.log
        assert log.failure is None
        opened = self.open_transactions()
        stable = max(min(opened.values(), default=self.end), log.start_offset)
        assert log.last_stable_offset(log.end_offset) == stable
        fates = self.fates()
        readable = range(log.start_offset, stable)
        visible = [offset for offset in sorted(fates) if offset in readable and fates[offset] == ControlType.COMMIT]
        for max_bytes in (1, 300, 1 << 20):
            assert committed_reads(self.world, max_bytes) == visible


def test_committed_reads_are_right_through_any_history(make_world: Callable[..., Any]) -> None:
    run_state_machine_as_test(
        lambda: TransactionMachine(make_world),
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
