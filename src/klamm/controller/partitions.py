"""More partitions for topics that exist. A topic never gets fewer: that would lose records and break keys.

Replicas are placed as for a new topic, with the replication factor of the topic's first partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random  # noqa: TID251 - the type; the instance comes in
from typing import NamedTuple

from klamm.controller.assignment import check_assignment, new_partitions
from klamm.controller.commands import Decision
from klamm.controller.placement import place
from klamm.controller.topics import MAX_PARTITIONS_PER_REQUEST
from klamm.core.errors import BrokerError, ErrorCode
from klamm.metadata.image import Image, TopicState, partition_record
from klamm.metadata.records import MetadataRecord


class MorePartitions(NamedTuple):
    """Let a topic have `total` partitions in all. `assignments` are the replicas of those that are added."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class GrownTopic(NamedTuple):
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def create_partitions(
    image: Image, topics: Sequence[MorePartitions], *, rng: Random, validate_only: bool = False
) -> Decision[list[GrownTopic]]:
    """A result for each name in the order of the request; a name that is there twice has one result, an error."""
    counts = Counter(topic.name for topic in topics)
    left = MAX_PARTITIONS_PER_REQUEST
    records: list[MetadataRecord] = []
    results: list[GrownTopic] = []
    for topic in {topic.name: topic for topic in topics}.values():
        try:
            if counts[topic.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} is in the request more than once")
            state = _find(image, topic)
            added = topic.total - len(state.partitions)
            if added > left:
                message = f"a request may add {MAX_PARTITIONS_PER_REQUEST} partitions at most"
                raise BrokerError(ErrorCode.POLICY_VIOLATION, message)
            records.extend(_grow(image, state, topic, rng))
            left -= added
        except BrokerError as error:
            results.append(GrownTopic(topic.name, error.code, str(error)))
        else:
            results.append(GrownTopic(topic.name))
    return Decision([] if validate_only else records, results)


def _find(image: Image, topic: MorePartitions) -> TopicState:
    state = image.topics.get(topic.name)
    if state is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}")
    current = len(state.partitions)
    if topic.total <= current:
        message = f"topic {topic.name} has {current} partitions; {topic.total} would not be more"
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, message)
    return state


def _grow(image: Image, state: TopicState, topic: MorePartitions, rng: Random) -> list[MetadataRecord]:
    first = len(state.partitions)
    added = topic.total - first
    factor = len(state.partitions[0].replicas)
    if topic.assignments is None:
        brokers = image.live_brokers()
        if factor > len(brokers):
            message = f"the topic has {factor} replicas, but only {len(brokers)} broker(s) are there"
            raise BrokerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        assignment = place(brokers, added, factor, rng)
    elif len(topic.assignments) != added:
        message = f"{added} partitions are to be added, but replicas are given for {len(topic.assignments)}"
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    else:
        assignment = check_assignment(image, topic.assignments, first=first, factor=factor)
    return [
        partition_record(state.id, index, partition)
        for index, partition in enumerate(new_partitions(image, assignment), first)
    ]
