"""The Produce request of the simulated clients and what its answer says."""

from __future__ import annotations

from random import Random  # noqa: TID251 - made from the seed alone
from typing import NamedTuple

from klamm.core.errors import ErrorCode
from klamm.records.compression import Codec
from klamm.records.record import Record, encode_batch
from klamm.testing.sim.broker.lab import Batch, error_code
from klamm.testing.sim.broker.model import Entry, PartitionModel
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

PRODUCE_VERSIONS = (7, 8, 9, 12, 13)  # zstd needs 7
TIMEOUT_MS = 5_000
_NOT_SET = 0


class ProducerIdentity(NamedTuple):
    producer_id: int = -1
    epoch: int = -1


def encode(batch: Batch, codec: Codec, identity: ProducerIdentity) -> bytes:
    records = [Record(0, max(entry.timestamp, _NOT_SET), entry.key, entry.value) for entry in batch.entries]
    return encode_batch(
        records,
        codec=codec,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=batch.base_sequence if identity.producer_id >= 0 else -1,
    )


def request(version: int, acks: int, data: list[tuple[PartitionModel, bytes]]) -> ProduceRequest:
    topics: dict[bytes, TopicProduceData] = {}
    for partition, records in data:
        topic = partition.topic
        named = TopicProduceData(name=topic.name) if version < 13 else TopicProduceData(topic_id=topic.id)
        topics.setdefault(topic.id, named).partition_data.append(
            PartitionProduceData(index=partition.index, records=records)
        )
    return ProduceRequest(acks=acks, timeout_ms=TIMEOUT_MS, topic_data=list(topics.values()))


def result(response: ProduceResponse, partition: PartitionModel) -> tuple[ErrorCode, int]:
    """Error code and base offset for one partition."""
    for topic in response.responses:
        if partition.topic.id in (topic.topic_id, b"") or topic.name == partition.topic.name:
            for answer in topic.partition_responses:
                if answer.index == partition.index:
                    return error_code(answer.error_code), answer.base_offset
    raise AssertionError(f"the answer says nothing about {partition}")


def some_codec(rng: Random) -> Codec:
    return rng.choice((Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD))


def mark_sent(partition: PartitionModel, entries: list[Entry], *, idempotent: bool) -> None:
    for entry in entries:
        partition.sending(entry, idempotent=idempotent)
