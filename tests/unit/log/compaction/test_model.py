"""A compacted log against a list of all that was written: random histories with transactions, tombstones, restarts and
crashes in the middle of a compaction. What a consumer of committed records can see is checked after every step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from klamm.log.compaction.plan import Settings
from klamm.records.compression import Codec
from klamm.records.kernel import KeyMap
from klamm.testing.sim.disk import DeadIncarnation

KEYS = st.sampled_from("abcdef")
VALUES = st.one_of(st.none(), st.sampled_from(["1", "2", "x" * 30]))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
NEVER = 1 << 60


class CompactionMachine(RuleBasedStateMachine):
    def __init__(self, make_topic: Callable[..., Any]) -> None:
        super().__init__()
        self.make_topic = make_topic

    @initialize(seed=st.integers(0, 1 << 30), segment=st.sampled_from([400, 1500, 1 << 30]))
    def begin(self, seed: int, segment: int) -> None:
        self.topic = self.make_topic(seed, segment_bytes=segment)
        self.topic.append(("a", "first"))

    @property
    def world(self) -> Any:
        return self.topic.world

    # ---- growing

    @rule(
        pairs=PAIRS, codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]), producer=st.sampled_from([-1, 1, 2])
    )
    def append(self, pairs: list[tuple[str, str | None]], codec: Codec, producer: int) -> None:
        self.topic.append(*pairs, codec=codec, producer=producer)

    @rule(pairs=PAIRS, producer=st.sampled_from([3, 4]))
    def append_in_transaction(self, pairs: list[tuple[str, str | None]], producer: int) -> None:
        self.topic.append(*pairs, producer=producer, transactional=True)

    @rule(producer=st.sampled_from([3, 4]), commit=st.booleans(), new_epoch=st.booleans())
    def end_transaction(self, producer: int, commit: bool, new_epoch: bool) -> None:
        if producer in self.topic.open:
            if new_epoch:
                self.topic.epochs[producer] = self.topic.epochs.get(producer, 0) + 1
                self.topic.sequences[producer] = 0
            self.topic.end(producer, commit)

    @rule()
    def roll(self) -> None:
        self.topic.roll()

    @rule(ms=st.sampled_from([1, 500, 2000]))
    def time_goes_by(self, ms: int) -> None:
        self.world.clock.now_ms += ms

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        log = self.topic.log
        stable = log.last_stable_offset(log.end_offset)
        self.world.do(log.advance_start_offset, data.draw(st.integers(log.start_offset, stable)))
        self.world.do(log.delete_old_segments, self.world.clock.now_ms, NEVER)

    # ---- compacting

    @rule(keys=st.sampled_from([1, 2, 4, 1000]))
    def compact(self, keys: int) -> None:
        before = self.topic.producers()
        self.topic.settings = Settings(map_bytes=keys * KeyMap.bytes_per_key, load_factor=1.0)
        self.topic.roll()
        self.topic.compact()
        assert self.topic.producers() == before
        self.topic.check_is_clean()

    @rule(operation=st.integers(1, 60), power=st.booleans())
    def crash_while_compacting(self, operation: int, power: bool) -> None:
        world = self.world
        self.topic.roll()
        world.save()
        before, end = self.topic.producers(), self.topic.log.end_offset
        world.disk.faults.crash(operation, world.disk.power_loss if power else world.disk.kill)
        try:
            self.topic.compact()
            world.disk.kill()
        except DeadIncarnation:
            pass
        world.disk.faults.crash(NEVER, world.disk.kill)
        world.boot()
        world.open(None, world.saved)
        assert self.topic.log.end_offset == end
        assert self.topic.producers() == before

    # ---- reading

    @rule(data=st.data(), max_bytes=st.sampled_from([1, 200, 1000, 1 << 30]))
    def read_what_is_committed(self, data: st.DataObject, max_bytes: int) -> None:
        log = self.topic.log
        start = data.draw(st.integers(log.start_offset, log.end_offset))
        there = [record for record in self.topic.visible() if record.offset >= start]
        assert self.topic.consumed(start, max_bytes) == there

    # ---- ends and beginnings

    @rule()
    def reopen(self) -> None:
        self.world.reopen()

    @rule()
    def kill(self) -> None:
        self.world.save()
        self.world.kill()

    @rule()
    def lose_what_can_be_made_anew(self) -> None:
        """Indexes; a recovery makes them from what is there."""
        self.topic.roll()
        self.world.save()
        for name in [*self.world.names(".index"), *self.world.names(".timeindex")]:
            self.world.files.remove(f"{self.world.path}/{name}")
        self.world.kill()

    @invariant()
    def all_is_there_that_has_to_be(self) -> None:
        if hasattr(self, "topic"):
            self.topic.check()
            self.topic.check_ends()

    def teardown(self) -> None:
        if hasattr(self, "topic"):
            self.world.loop.close()


def test_nothing_is_lost_and_nothing_comes_back(make_topic: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("klamm.log.compaction.plan.MIN_MAP_BYTES", KeyMap.bytes_per_key)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: CompactionMachine(make_topic),
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        ),
    )
