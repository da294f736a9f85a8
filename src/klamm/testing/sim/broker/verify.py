"""After a restart, before the clients come back: read everything and hold it against the model."""

from __future__ import annotations

from random import Random  # noqa: TID251 - made from the seed alone

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker import reading
from klamm.testing.sim.broker.client import Client
from klamm.testing.sim.broker.lab import Lab, append_time, error_code
from klamm.testing.sim.broker.model import Entry, Model, PartitionModel, TopicState, Violation
from klamm.testing.sim.broker.reading import EARLIEST, LATEST
from klamm.wire.messages.k01_fetch import FetchRequest
from klamm.wire.messages.k03_metadata import MetadataRequest

_METADATA_VERSION = 12


async def verify(lab: Lab, *, power_lost: bool) -> None:
    rng = lab.random("verify")
    client = await lab.connect("verify")
    listed = await _topics(client, lab.model)
    lab.model.check_topics(listed)
    for topic in lab.model.topics:
        if topic.state in (TopicState.CREATING, TopicState.DELETED) or topic.id not in [i for i, _ in listed.values()]:
            continue
        for partition in topic.partitions:
            start, entries = await _read_all(client, rng, partition)
            lab.note("verify", str(partition), f"{start} to {start + len(entries)}")
            partition.check_log(start, entries, power_lost=power_lost)
            await _check_offsets(client, rng, partition, entries)
    client.close()


async def _topics(client: Client, model: Model) -> dict[str, tuple[bytes, int]]:
    answer = await client.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), _METADATA_VERSION)
    model.saw_cluster_id(answer.cluster_id)
    return {one.name: (one.topic_id, len(one.partitions)) for one in answer.topics if not one.is_internal}


async def _read_all(client: Client, rng: Random, partition: PartitionModel) -> tuple[int, list[Entry]]:
    """The log's start and all that is in it."""
    version = rng.choice(reading.FETCH_VERSIONS)
    start = await _offset_for(client, partition, EARLIEST)
    entries: list[Entry] = []
    while True:
        position = start + len(entries)
        topics = reading.fetch_topics(version, [(partition, position)], rng.choice((1, 2000, 1_000_000)))
        answer = await client.call(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), version)
        data = answer.responses[0].partitions[0]
        code = error_code(data.error_code or answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and partition.topic.shrinks:
            start, entries = await _offset_for(client, partition, EARLIEST), []  # deleted under our eyes
            continue
        if code is not ErrorCode.NONE:
            raise Violation(f"{partition}: reading at {position} after a restart: {code.name}")
        more = reading.read_entries(partition, data.records, position, data.high_watermark)
        entries += more
        if start + len(entries) >= data.high_watermark:
            return start, entries
        if not more:
            raise Violation(f"{partition}: nothing at {position}, below the high watermark {data.high_watermark}")


async def _check_offsets(client: Client, rng: Random, partition: PartitionModel, entries: list[Entry]) -> None:
    """ListOffsets must agree with what was read: the ends, and a few lookups by time."""
    if partition.topic.shrinks:
        return  # it may shrink between two questions
    wanted = {EARLIEST: 0, LATEST: len(entries)}
    if entries and not append_time(partition.topic):
        for entry in rng.choices(entries, k=3):
            timestamp = entry.timestamp + rng.choice((0, 0, 1))
            later = (i for i, other in enumerate(entries) if other.timestamp >= timestamp)
            wanted[timestamp] = next(later, -1)
    for timestamp, expected in wanted.items():
        found = await _offset_for(client, partition, timestamp)
        if found != expected:
            raise Violation(f"{partition}: the offset for {timestamp} is {found}, and should be {expected}")


async def _offset_for(client: Client, partition: PartitionModel, timestamp: int) -> int:
    code, offset = await reading.offset_for(client, partition, timestamp)
    if code is not ErrorCode.NONE:
        raise Violation(f"{partition}: no offset for {timestamp} after a restart: {code.name}")
    return offset
