"""Whatever happens to a shard (requests, transactions, full disks, kills), its machine is what its log says."""

from __future__ import annotations

import asyncio
import errno
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from klamm.coordinator.machine import Answer, Now, Outcome, Producer
from klamm.core.errors import ErrorCode
from klamm.log.results import Appended
from klamm.records.record import ControlType, EndMarker
from klamm.replica.pending import Pending
from support.coordinators import Ledger, Site, number_record

KEY = "k"
names = st.sampled_from("abc")
numbers = st.integers(1, 99)
producers = st.integers(0, 1)
steps = st.one_of(
    st.tuples(st.just("put"), names, numbers, st.booleans()),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("many"), st.lists(st.tuples(names, numbers), min_size=2, max_size=5)),
    st.tuples(st.just("in transaction"), producers, names, numbers),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("wait")),
    st.tuples(st.just("full disk"), st.booleans()),
    st.tuples(st.just("compact away"), st.integers(0, 3)),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("start anew")),
)


class Run:
    def __init__(self, path: Path, queued: bool) -> None:
        options = {"log_flush_interval_messages": "1"} if queued else {}
        self.site: Site[Ledger] = Site(path, Ledger, offsets_topic_num_partitions="2", **options)
        self.numbers: dict[str, int] = {}
        self.held: dict[int, dict[str, int]] = {}
        self.waiting: list[Any] = []

    async def go(self, plan: list[Any]) -> None:
        site = self.site
        await site.start()
        await site.coordinator.ensure_topic()
        self.index = site.coordinator.partition_of(KEY)
        try:
            for name, *arguments in plan:
                await getattr(self, name.replace(" ", "_"))(*arguments)
                await self.check()
        finally:
            site.disk.failing = 0
            await site.stop()
            site.env.executor.close()
        for call in self.waiting:
            assert call.done, "somebody was never answered"

    async def check(self) -> None:
        await self.site.ready()
        machine = dict(self.site.coordinator.shards()).get(self.index)
        if machine is not None:
            assert machine.durable == (
                self.numbers,
                {Producer(producer, 0): held for producer, held in self.held.items() if held},
            )

    async def ask(self, records: list[Any], producer: Producer | None = None, only_records: bool = True) -> bool:
        """Whether it was written."""

        def decide(machine: Ledger, reply: Any, now: Now) -> Outcome:
            return Outcome(records, [Answer(reply, "done")], producer=producer, only_records=only_records)

        await self.site.ready()
        answer = await self.site.answer(KEY, decide)
        failing = bool(self.site.disk.failing)
        assert (answer == "done") != failing, answer
        if failing:
            assert answer in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if self.site.partition(self.index).available():
                self.site.disk.failing = 0  # else the log would never come back, and the shard never load
        return not failing

    async def put(self, name: str, number: int, only_records: bool) -> None:
        if await self.ask([number_record(name, number)], only_records=only_records):
            self.numbers[name] = number

    async def delete(self, name: str) -> None:
        if await self.ask([number_record(name, None)]):
            self.numbers.pop(name, None)

    async def many(self, pairs: list[tuple[str, int]]) -> None:
        if await self.ask([number_record(name, number) for name, number in pairs]):
            self.numbers |= dict(pairs)

    async def in_transaction(self, producer: int, name: str, number: int) -> None:
        if await self.ask([number_record(name, number)], Producer(producer, 0)):
            self.held.setdefault(producer, {})[name] = number

    async def end(self, producer: int, committed: bool) -> None:
        await self.site.ready()
        self.site.disk.failing = 0
        marker = EndMarker(ControlType.COMMIT if committed else ControlType.ABORT, 0)
        assert isinstance(self.site.coordinator.write_marker(self.index, Producer(producer, 0), marker), Appended)
        held = self.held.pop(producer, {})
        if committed:
            self.numbers |= held
        await self.site.answer(KEY, lambda machine, reply, now: machine.get(reply, "a"))  # so it is committed

    async def wait(self) -> None:
        await self.site.ready()
        call = self.site.ask(KEY, lambda machine, reply, now: machine.wait(reply))
        if isinstance(call, Pending):
            self.waiting.append(call)

    async def full_disk(self, full: bool) -> None:
        self.site.disk.failing = errno.ENOSPC if full else 0

    async def compact_away(self, kept: int) -> None:
        """Stands for compaction: the log begins with what is known."""
        self.site.disk.failing = 0
        if any(self.held.values()):
            return
        log = self.site.partition(self.index).log
        assert log is not None
        end = log.end_offset
        if self.numbers and await self.ask([number_record(*pair) for pair in self.numbers.items()]):
            log.advance_start_offset(end)

    async def restart(self, killed: bool) -> None:
        self.site.disk.failing = 0
        await (self.site.kill() if killed else self.site.stop())
        await self.site.start()

    async def start_anew(self) -> None:
        shard = self.site.coordinator._shards.get(self.index)
        if shard is not None:
            shard._start_anew(ErrorCode.NOT_COORDINATOR)


@given(st.lists(steps, max_size=12), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_machine_is_always_what_its_log_says(plan: list[Any], queued: bool) -> None:
    with tempfile.TemporaryDirectory() as path:
        asyncio.run(Run(Path(path), queued).go(plan))
