"""A compacted log on a simulated disk, everything that was ever appended to it, and what must be left of that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from klamm.log.compaction.cleaner import Cleaner
from klamm.log.compaction.plan import Settings
from klamm.log.config import LogConfig
from klamm.log.log import Log
from klamm.log.repair import survey
from klamm.log.results import Appended
from klamm.records.batch import BatchHeader, iter_batches
from klamm.records.compression import Codec
from klamm.records.record import (
    ControlType,
    EndMarker,
    Record,
    decode_control,
    decode_records,
    encode_batch,
    encode_end_marker,
)

RETENTION_MS = 1_000


class Written(NamedTuple):
    record: Record
    producer_id: int  # of a transaction; -1: none
    at_ms: int


class OneLog:
    """What a cleaner needs of the manager, for a single log."""

    def __init__(self, world: Any) -> None:
        self.env = world.env
        self.log: Log = world.log
        self.cleaning = Settings()
        self.watermark: Callable[[Log], int] = lambda log: log.end_offset
        self.usable = True
        self._world = world

    def logs(self) -> list[Log]:
        return [self.log]

    def in_use(self, log: Log) -> bool:
        return self.usable and log is self.log and log.failure is None

    async def save_state(self) -> None:
        self._world.save()

    async def visit_unopened(self, wanted: object, look: object) -> None:
        pass


class Topic:
    def __init__(self, world: Any) -> None:
        self.world = world
        self.written: list[Written] = []
        self.decided: dict[int, bool] = {}  # offset of a transactional record -> committed?
        self.open: dict[int, list[int]] = {}  # producer -> offsets
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.settings = Settings()

    @property
    def log(self) -> Any:
        return self.world.log

    def append(
        self, *pairs: tuple[str, str | None], codec: Codec = Codec.NONE, producer: int = -1, transactional: bool = False
    ) -> int:
        """The base offset of a batch of these keys and values."""
        now = self.world.clock.now_ms
        records = [
            Record(i, now + i, key.encode(), None if value is None else value.encode(), (("h", b"1"),))
            for i, (key, value) in enumerate(pairs)
        ]
        options: dict[str, Any] = {"codec": codec}
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            epoch = self.epochs.get(producer, 0)
            options |= {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
            options["transactional"] = transactional
        result = self.world.do(self.log.append, bytearray(encode_batch(records, **options)), leader_epoch=0)
        assert isinstance(result, Appended), result
        if producer >= 0:
            self.sequences[producer] = self.sequences.get(producer, 0) + len(pairs)
        owner = producer if transactional else -1
        for record in records:
            moved = record._replace(offset=result.base_offset + record.offset)
            self.written.append(Written(moved, owner, now))
            if transactional:
                self.open.setdefault(producer, []).append(moved.offset)
        return result.base_offset

    def end(self, producer: int, commit: bool) -> None:
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = encode_end_marker(
            EndMarker(kind, 0),
            producer_id=producer,
            producer_epoch=self.epochs.get(producer, 0),
            timestamp=self.world.clock.now_ms,
        )
        result = self.world.do(self.log.append, bytearray(marker), leader_epoch=0, from_client=False)
        assert isinstance(result, Appended), result
        for offset in self.open.pop(producer, ()):
            self.decided[offset] = commit

    def roll(self) -> None:
        """All that is written now may be compacted."""
        self.world.do(self.log.roll)
        self.world.flush()

    def cleaner(self) -> tuple[Cleaner, OneLog]:
        manager = OneLog(self.world)
        manager.cleaning = self.settings
        return Cleaner(manager), manager  # type: ignore[arg-type]

    def compact(self) -> Cleaner:
        cleaner, _ = self.cleaner()

        async def run() -> None:
            await cleaner.run()

        self.world.loop.run_until_complete(run())
        return cleaner

    # ---- what is left

    def stored(self) -> list[tuple[BatchHeader, list[Record]]]:
        return [(header, decode_records(data)) for header, data in self.world.batches()]

    def visible(self) -> list[Record]:
        """What a consumer of committed records gets."""
        found: list[Record] = []
        stable = self.log.last_stable_offset(self.log.end_offset)
        aborted = self.log.aborted_transactions(self.log.start_offset, stable)
        for header, records in self.stored():
            if header.is_control or header.base_offset >= stable:
                continue
            dropped = header.is_transactional and any(
                entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset < entry.last_offset
                for entry in aborted
            )
            if not dropped:
                found += [record for record in records if record.offset >= self.log.start_offset]
        return found

    def consumed(self, start: int, max_bytes: int) -> list[Record]:
        """The same from an offset on, by the algorithm of Kafka's consumer: answer by answer, each with its own list of
        aborted transactions, which are forgotten at their markers."""
        found: list[Record] = []
        stable = self.log.last_stable_offset(self.log.end_offset)
        while start < stable:
            read = self.world.do(self.log.read, start, max_bytes, limit=stable)
            coming = sorted(self.log.aborted_transactions(start, stable, read), key=lambda entry: entry.first_offset)
            data = read.file.pread(read.size, read.offset)
            aborted: set[int] = set()
            for position, header in iter_batches(data):
                while coming and coming[0].first_offset <= header.last_offset:
                    aborted.add(coming.pop(0).producer_id)
                records = decode_records(data[position : position + header.size])
                if header.is_control:
                    if records and decode_control(records[0]) == EndMarker(ControlType.ABORT, 0):
                        aborted.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborted):
                    found += [record for record in records if record.offset >= start]
                start = max(start, header.next_offset)
        return found

    def producers(self) -> dict[int, tuple[int, int, int]]:
        return {
            producer_id: (producer.epoch, producer.next_sequence, producer.last_data_offset())
            for producer_id, producer in self.log.producers.items()
        }

    def check(self) -> None:
        """Nothing is there that was not written, and nothing is missing that has to be there."""
        assert self.log.failure is None
        by_offset = {entry.record.offset: entry for entry in self.written}
        stable = self.log.last_stable_offset(self.log.end_offset)
        there = self.visible()
        for record in there:
            assert record == by_offset[record.offset].record
            assert self.decided.get(record.offset, True), "an aborted record is visible"
        assert [record.offset for record in there] == sorted({record.offset for record in there})
        last: dict[bytes | None, Written] = {}
        for entry in self.written:
            if entry.record.offset < stable and self.decided.get(entry.record.offset, entry.producer_id < 0):
                last[entry.record.key] = entry
        offsets: dict[bytes | None, list[int]] = {}
        for record in there:
            offsets.setdefault(record.key, []).append(record.offset)
        for key, entry in last.items():
            if entry.record.offset < self.log.start_offset or entry.record.offset in offsets.get(key, ()):
                continue
            assert entry.record.value is None, f"the last value of {key!r} is lost"
            assert not offsets.get(key), f"{key!r} is back"
            assert self.world.clock.now_ms - entry.at_ms >= RETENTION_MS, "a tombstone has gone too early"

    def check_is_clean(self) -> None:
        """Below the clean offset every key is there once."""
        seen = [record.key for record in self.visible() if record.offset < self.log.clean_offset]
        assert len(seen) == len(set(seen))

    def check_ends(self) -> None:
        """Each segment ends where the next one starts."""
        found = survey(self.world.files, self.world.path)
        assert not found.damages and found.end_offset == self.log.end_offset


@pytest.fixture
def make_topic(make_world: Callable[..., Any]) -> Iterator[Callable[..., Topic]]:
    def make(seed: int = 0, **changes: Any) -> Topic:
        config = LogConfig(
            compact=True,
            retention_ms=-1,
            delete_retention_ms=RETENTION_MS,
            min_cleanable_ratio=0.0,
            index_interval_bytes=150,
        )
        return Topic(make_world(seed, config._replace(**changes)))

    yield make


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:
    asyncio.set_event_loop(None)
    return make_topic()
