"""Fetch requests of the simulated clients, and what must be true of every answer: whole batches, sound and dense."""

from __future__ import annotations

from klamm.core.env import Buffer
from klamm.core.errors import ErrorCode
from klamm.records import batch as batches
from klamm.records.batch import BatchError
from klamm.records.record import decode_records
from klamm.testing.sim.broker.client import Client
from klamm.testing.sim.broker.lab import append_time, error_code
from klamm.testing.sim.broker.model import Entry, PartitionModel, Violation
from klamm.wire.messages.k01_fetch import FetchPartition, FetchTopic
from klamm.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

EARLIEST, LATEST = -2, -1
FETCH_VERSIONS = (4, 7, 11, 12, 13, 17)
FIRST_WITH_SESSIONS = 7
FIRST_WITH_IDS = 13
_LIST_OFFSETS_VERSION = 7


def fetch_topics(version: int, wanted: list[tuple[PartitionModel, int]], max_bytes: int) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for partition, offset in wanted:
        topic = partition.topic
        named = FetchTopic(topic=topic.name) if version < FIRST_WITH_IDS else FetchTopic(topic_id=topic.id)
        topics.setdefault(topic.id, named).partitions.append(
            FetchPartition(partition=partition.index, fetch_offset=offset, partition_max_bytes=max_bytes)
        )
    return list(topics.values())


def read_entries(partition: PartitionModel, records: Buffer | None, offset: int, limit: int) -> list[Entry]:
    """The records from `offset` on. `limit` is the high watermark of the answer."""
    entries: list[Entry] = []
    expected = None
    for pos, header in batches.iter_batches(records or b""):
        if expected is None and not header.base_offset <= offset <= header.last_offset:
            raise Violation(f"{partition}: asked for {offset}, got {header.base_offset} to {header.last_offset}")
        if expected is not None and header.base_offset != expected:
            raise Violation(f"{partition}: {header.base_offset} follows, {expected} should")
        expected = header.next_offset
        if expected > limit:
            raise Violation(f"{partition}: {header.last_offset} was served above the high watermark {limit}")
        try:
            decoded = decode_records(records or b"", pos)
        except BatchError as error:
            raise Violation(f"{partition}: a bad batch was served at {header.base_offset}: {error}") from None
        for record in decoded:
            if record.offset >= offset:
                timestamp = -1 if append_time(partition.topic) else record.timestamp
                entries.append(Entry(record.key or b"", record.value or b"", timestamp))
    return entries


async def offset_for(client: Client, partition: PartitionModel, timestamp: int) -> tuple[ErrorCode, int]:
    """ListOffsets for one partition."""
    asked = ListOffsetsPartition(partition_index=partition.index, timestamp=timestamp)
    topic = ListOffsetsTopic(name=partition.topic.name, partitions=[asked])
    answer = await client.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), _LIST_OFFSETS_VERSION)
    found = answer.topics[0].partitions[0]
    return error_code(found.error_code), found.offset
