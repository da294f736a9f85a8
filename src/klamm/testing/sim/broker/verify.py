"""After a restart, before the clients come back: read everything and hold it against the model."""

from __future__ import annotations

from random import Random  # noqa: TID251 - made from the seed alone

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker import reading
from klamm.testing.sim.broker.client import Client
from klamm.testing.sim.broker.lab import Lab, append_time, error_code
from klamm.testing.sim.broker.model import Entry, PartitionModel, TopicModel, TopicState, Violation
from klamm.wire.messages.k01_fetch import FetchRequest
from klamm.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.wire.messages.k03_metadata import MetadataRequest

_METADATA_VERSION = 12
_LIST_OFFSETS_VERSION = 7
_EARLIEST, _LATEST = -2, -1


async def verify(lab: Lab, *, power_lost: bool) -> None:
    rng = lab.random("verify")
    client = await lab.connect("verify")
    listed = await _topics(client)
    lab.model.check_topics(listed)
    for topic in lab.model.topics:
        if topic.state in (TopicState.CREATING, TopicState.DELETED) or topic.id not in [i for i, _ in listed.values()]:
            continue
        for partition in topic.partitions:
            entries = await _read_all(client, rng, partition)
            partition.check_log(entries, power_lost=power_lost)
            await _check_offsets(client, rng, topic, partition, entries)
            lab.note("verify", str(partition), f"{len(entries)} records")
    client.close()


async def _topics(client: Client) -> dict[str, tuple[bytes, int]]:
    answer = await client.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), _METADATA_VERSION)
    return {topic.name: (topic.topic_id, len(topic.partitions)) for topic in answer.topics}


async def _read_all(client: Client, rng: Random, partition: PartitionModel) -> list[Entry]:
    version = rng.choice(reading.FETCH_VERSIONS)
    entries: list[Entry] = []
    while True:
        topics = reading.fetch_topics(version, [(partition, len(entries))], rng.choice((1, 2000, 1_000_000)))
        answer = await client.call(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), version)
        data = answer.responses[0].partitions[0]
        code = error_code(data.error_code or answer.error_code)
        if code is not ErrorCode.NONE:
            raise Violation(f"{partition}: reading at {len(entries)} after a restart: {code.name}")
        more = reading.read_entries(partition, data.records, len(entries), data.high_watermark)
        entries += more
        if len(entries) >= data.high_watermark:
            return entries
        if not more:
            raise Violation(f"{partition}: nothing at {len(entries)}, below the high watermark {data.high_watermark}")


async def _check_offsets(
    client: Client, rng: Random, topic: TopicModel, partition: PartitionModel, entries: list[Entry]
) -> None:
    """ListOffsets must agree with what was read: the ends, and a few lookups by time."""
    wanted = {_EARLIEST: 0, _LATEST: len(entries)}
    if entries and not append_time(topic):
        for entry in rng.choices(entries, k=3):
            timestamp = entry.timestamp + rng.choice((0, 0, 1))
            later = (i for i, other in enumerate(entries) if other.timestamp >= timestamp)
            wanted[timestamp] = next(later, -1)
    for timestamp, expected in wanted.items():
        asked = ListOffsetsPartition(partition_index=partition.index, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[asked])])
        answer = await client.call(request, _LIST_OFFSETS_VERSION)
        found = answer.topics[0].partitions[0]
        if found.error_code or found.offset != expected:
            name = error_code(found.error_code).name
            raise Violation(f"{partition}: offset for {timestamp} is {found.offset} ({name}), should be {expected}")
