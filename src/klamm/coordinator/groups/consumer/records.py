"""The records of consumer groups in `__consumer_offsets`, and members read back from them.

Fields and order are those that Kafka 4.3 writes. A current assignment tells the epoch in which each partition was
given out (older records do not: the member's epoch stands in for it).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from klamm.coordinator.groups.consumer.assignors import Partitions
from klamm.coordinator.groups.consumer.member import Assigned, Member
from klamm.coordinator.machine import Record
from klamm.wire.messages.coordinator import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)


class Resolved(NamedTuple):
    """The topics that a regular expression stands for."""

    topics: frozenset[str]
    version: int
    """The metadata that they were found in: the offset of its last record."""
    time_ms: int


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Record:
    return Record(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_metadata(group_id: str, member: Member) -> Record:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
    )
    return Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def target_epoch(group_id: str, epoch: int, time_ms: int) -> Record:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=time_ms)
    return Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_assignment(group_id: str, member_id: str, target: Partitions) -> Record:
    topics = [TopicPartition(topic_id=topic, partitions=sorted(target[topic])) for topic in sorted(target)]
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics),
    )


def current_assignment(group_id: str, member: Member) -> Record:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )
    return Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value)


def regex(group_id: str, expression: str, resolved: Resolved) -> Record:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.time_ms
    )
    return Record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression), value)


def regex_gone(group_id: str, expression: str) -> Record:
    return Record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression), None)


def member_gone(group_id: str, member_id: str) -> list[Record]:
    """What a member is known by goes last: whoever replays the others still has to find it."""
    return [
        Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def partition_metadata_gone(group_id: str) -> Record:
    """Kafka before 4.1 kept the partitions of topics here; their hash in the group's record took its place."""
    return Record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def group_gone(group_id: str, members: Iterable[str], regexes: Iterable[str]) -> list[Record]:
    members = list(members)
    return [
        *(Record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=m), None) for m in members),
        *(Record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=m), None) for m in members),
        Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(Record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=m), None) for m in members),
        *(regex_gone(group_id, expression) for expression in regexes),
        partition_metadata_gone(group_id),
        Record(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def read_metadata(member: Member, value: ConsumerGroupMemberMetadataValue) -> Member:
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
    )


def read_assignment(member: Member, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
    default = max(value.member_epoch, 0)
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=value.state,
        assigned=_read_epochs(value.assigned_partitions, default),
        revoking=_read_epochs(value.partitions_pending_revocation, default),
    )


def read_target(value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def _with_epochs(assigned: Assigned) -> list[TopicPartitions]:
    found = []
    for topic_id in sorted(assigned):
        partitions = sorted(assigned[topic_id])
        epochs = [assigned[topic_id][partition] for partition in partitions]
        found.append(TopicPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs))
    return found


def _read_epochs(topics: list[TopicPartitions], default: int) -> Assigned:
    found = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [default] * len(topic.partitions)
        found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return found
