"""The life and deaths of a broker under transactional clients, from one seed.

It is killed at any moment, also in the middle of a change of the disk, which is between a decision and its markers if
the seed wants it so; connections are cut, and the disk is slow or full for a while. Power stays on: what a kill keeps
must be enough. At the end everything is read as consumers of committed records do, and held against what the producers
wrote down.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from klamm.core.errors import ErrorCode
from klamm.records.batch import iter_batches
from klamm.records.record import ControlType, decode_control, decode_records
from klamm.testing.sim.broker.client import Client, Lost
from klamm.testing.sim.broker.lab import error_code
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.mortal import MortalBroker
from klamm.testing.sim.telling import tell
from klamm.testing.sim.transactions.producer import PARTITIONS, TOPIC, TransactionalProducer
from klamm.testing.sim.world import World
from klamm.testing.transactions import Fate, History
from klamm.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from klamm.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest

OPTIONS: Final = {
    "log.retention.ms": "-1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
_FETCH_VERSION: Final = 11
_READ_COMMITTED: Final = 1


class Told(NamedTuple):
    """What a story was like, for those who want to know that it was not a dull one."""

    digest: str
    kills: int
    transactions: int
    committed: int
    records: int


class CommittedReader:
    """Reads on and on, as a consumer does that is to see what is committed and nothing else."""

    def __init__(self, story: Story, name: str) -> None:
        self.values: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        self._story = story
        self._name = name
        self._positions = [0] * PARTITIONS
        self._rng = story.world.random(name)

    async def follow(self) -> None:
        while not self._story.over:
            try:
                await self._read(await self._story.connect(self._name), wait_ms=100)
            except Lost:
                await asyncio.sleep(self._rng.random() * 0.3)

    async def to_the_end(self) -> None:
        client = await self._story.connect(self._name)
        while not await self._read(client, wait_ms=0):
            pass

    async def _read(self, client: Client, *, wait_ms: int) -> bool:
        """One fetch of all partitions; whether all of them are at their end."""
        partitions = [
            FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=self._rng.choice((1, 500, 1 << 20))
            )
            for index, offset in enumerate(self._positions)
        ]
        request = FetchRequest(
            isolation_level=_READ_COMMITTED,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
        )
        answer = await client.call(request, _FETCH_VERSION)
        at_end = True
        for data in answer.responses[0].partitions:
            code = error_code(data.error_code)
            if code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                await asyncio.sleep(0.1)
                at_end = False
                continue
            if code:
                raise Violation(f"{self._name}: partition {data.partition_index} cannot be read: {code.name}")
            self._take(data)
            at_end &= self._positions[data.partition_index] >= data.last_stable_offset
        return at_end

    def _take(self, data: PartitionData) -> None:
        index = data.partition_index
        aborted = sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
        aborting: set[int] = set()
        records = bytes(data.records or b"")  # type: ignore[arg-type] # never a FileRange when decoded
        for position, header in iter_batches(records):
            if header.last_offset >= data.last_stable_offset:
                raise Violation(f"{self._name}: {header.last_offset} of partition {index} is not stable")
            while aborted and aborted[0][0] <= header.last_offset:
                aborting.add(aborted.pop(0)[1])
            decoded = decode_records(records, position)
            if header.is_control:
                marker = decode_control(decoded[0])
                if marker is not None and marker.type == ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif header.producer_id not in aborting:
                self.values[index] += [one.value or b"" for one in decoded if one.offset >= self._positions[index]]
            self._positions[index] = max(self._positions[index], header.next_offset)


class Story(MortalBroker):
    def __init__(self, world: World) -> None:
        super().__init__(world, OPTIONS)
        self.history = History()

    async def run(self) -> None:
        await self.start()
        await self._create_topic()
        producers = [
            TransactionalProducer(
                f"tx-{i}", self.world.random(f"tx-{i}"), self.history, self.connect, lambda: self.over
            )
            for i in range(self._rng.randint(1, 4))
        ]
        reader = CommittedReader(self, "follower")
        for producer in producers:
            self.begin(producer.run())
        self.begin(reader.follow())
        for _ in range(self._rng.randint(1, 5)):
            await self.live()
        await asyncio.sleep(1.0)
        self.over = True
        await self.join()
        await self._check(producers, reader)
        await self.stop()

    async def _create_topic(self) -> None:
        client = await self.connect("admin")
        configs = self._rng.choice(({}, {"segment.bytes": "2000"}, {"compression.type": "gzip"}))
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        topic.configs = [_config(name, value) for name, value in configs.items()]
        answer = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert not answer.topics[0].error_code

    # ---- the end

    async def _check(self, producers: list[TransactionalProducer], reader: CommittedReader) -> None:
        last = CommittedReader(self, "last")
        await last.to_the_end()
        problems = self.history.problems(last.values)
        if problems:
            raise Violation("; ".join(problems[:5]))
        for partition, values in reader.values.items():
            if values != last.values[partition][: len(values)]:
                raise Violation(f"partition {partition} was read differently before")
        client = await self.connect("offsets")
        for producer in producers:
            found = await _committed_offset(client, producer.name)
            if found != producer.offset and found not in producer.offset_unsure:
                raise Violation(f"{producer.name}: the offset is {found}, and should be {producer.offset}")

    def told(self) -> Told:
        transactions = self.history.transactions
        committed = sum(1 for one in transactions if one.fate is Fate.COMMITTED)
        records = sum(len(one.records) for one in transactions)
        return Told(self.world.trace.digest(), self.kills, len(transactions), committed, records)


def _config(name: str, value: str) -> Any:
    from klamm.wire.messages.k19_create_topics import CreatableTopicConfig

    return CreatableTopicConfig(name=name, value=value)


async def _committed_offset(client: Client, group: str) -> int:
    """Once its coordinator is there, and has heard how all transactions ended."""
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    while True:
        asked = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        answer = await client.call(OffsetFetchRequest(group_id=group, topics=[asked], require_stable=True), 7)
        partition = answer.topics[0].partitions[0] if answer.topics else None
        code = error_code(answer.error_code or (partition.error_code if partition is not None else 0))
        if not code:
            return -1 if partition is None else int(partition.committed_offset)
        if code not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ):
            raise Violation(f"{group}: no offset: {code.name}")
        await asyncio.sleep(0.1)


def run_seed(seed: int, *, trace_into: list[str] | None = None) -> Told:
    """Run one seed to its end; raises what went wrong."""
    return tell(seed, Story, Story.told, trace_into=trace_into)
