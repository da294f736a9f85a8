"""What a cluster looks like: brokers, topics, partitions and their leaders. Immutable; no I/O.

`read_answer` makes it from a Metadata answer, `merge` puts the answer about some topics over what was known of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from klamm.client.errors import error_code
from klamm.core.errors import ErrorCode
from klamm.core.ids import NO_TOPIC_ID, TopicPartition
from klamm.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

NO_LEADER: Final = -1
OLDEST_VERSION: Final = 4
"""Before it every question about a topic could create it (Kafka 0.10 and older)."""


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Partition:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode = ErrorCode.NONE


class Leader(NamedTuple):
    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """`id` is 16 zero bytes where the broker is older than topic ids."""

    name: str
    id: bytes
    internal: bool
    error: ErrorCode
    partitions: Mapping[int, Partition]


@dataclass(frozen=True, slots=True)
class Metadata:
    brokers: Mapping[int, Broker]
    controller_id: int
    cluster_id: str | None
    topics: Mapping[str, Topic]


EMPTY: Final = Metadata(MappingProxyType({}), NO_LEADER, None, MappingProxyType({}))


def question(topics: Iterable[str] | None, *, create: bool) -> MetadataRequest:
    """Ask about these topics; None means all, an empty list none (the brokers come with every answer)."""
    names = None if topics is None else [MetadataRequestTopic(name=name) for name in dict.fromkeys(topics)]
    return MetadataRequest(topics=names, allow_auto_topic_creation=create)


def read_answer(answer: MetadataResponse) -> Metadata:
    brokers = {b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
    topics = {}
    for topic in answer.topics:
        if topic.name is None:
            continue  # only a question by id can get an answer without a name
        partitions = {
            p.partition_index: Partition(
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
                error_code(p.error_code),
            )
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        }
        topics[topic.name] = Topic(
            topic.name, bytes(topic.topic_id), topic.is_internal, error_code(topic.error_code), partitions
        )
    return Metadata(brokers, answer.controller_id, answer.cluster_id, topics)


def merge(known: Metadata, newer: Metadata) -> Metadata:
    """The newer answer, with the topics that it says nothing of. A leader epoch never goes back (KIP-320): the broker
    that answered may have been behind."""
    topics = dict(known.topics)
    for name, topic in newer.topics.items():
        old = topics.get(name)
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            topics.pop(name, None)
        elif not topic.error:
            topics[name] = _keep_newer_epochs(old, topic) if old is not None and old.id == topic.id else topic
    return Metadata(newer.brokers, newer.controller_id, newer.cluster_id or known.cluster_id, topics)


def with_leader(known: Metadata, place: TopicPartition, leader: Leader, brokers: Mapping[int, Broker]) -> Metadata:
    """What a broker says of a partition that it does not lead (any more), with the addresses that it knows (KIP-951).
    The same metadata if that is nothing new, or of no use."""
    topic = known.topics.get(place.topic)
    partition = topic.partitions.get(place.partition) if topic is not None else None
    if topic is None or partition is None or leader.epoch <= partition.leader_epoch:
        return known
    everybody = {**known.brokers, **brokers}
    if leader.id not in everybody:
        return known
    moved = replace(partition, leader=leader.id, leader_epoch=leader.epoch)
    topics = {**known.topics, topic.name: replace(topic, partitions={**topic.partitions, place.partition: moved})}
    return replace(known, brokers=everybody, topics=topics)


def _keep_newer_epochs(old: Topic, new: Topic) -> Topic:
    if new.id == NO_TOPIC_ID:
        return new  # without ids it may be another topic of the same name, which begins anew
    partitions = dict(new.partitions)
    for index, partition in new.partitions.items():
        before = old.partitions.get(index)
        if before is not None and before.leader_epoch > partition.leader_epoch:
            partitions[index] = before
    return replace(new, partitions=partitions)
