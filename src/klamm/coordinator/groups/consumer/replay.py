"""Records of consumer groups, applied to the groups of a shard: the only way in which their durable state changes.

A tombstone of what is not there is fine: compaction may have taken what it was for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from klamm.coordinator.groups.consumer import records
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.member import LEAVING, NOTHING, Member
from klamm.coordinator.groups.consumer.records import Resolved
from klamm.wire.messages.coordinator import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from klamm.wire.schema import Struct


def _metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def _partition_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_partition_metadata = value is not None


def _member(group: ConsumerGroup, key: Any, value: Any) -> None:
    member = group.members.get(key.member_id)
    if value is not None:
        group.put_member(records.read_metadata(member or Member(key.member_id), value))
    elif member is not None:
        group.remove_member(key.member_id)


def _target(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.target_epoch, group.target_time_ms = value.assignment_epoch, value.assignment_timestamp
    else:
        group.target_epoch, group.target_time_ms = -1, 0


def _member_target(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.target[key.member_id] = records.read_target(value)
    else:
        group.target.pop(key.member_id, None)


def _assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
    member = group.members.get(key.member_id)
    if value is not None:
        group.put_member(records.read_assignment(member or Member(key.member_id), value))
    elif member is not None:
        gone = member._replace(epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING, revoking=NOTHING)
        group.put_member(gone)


def _regex(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is not None:
        group.resolved[key.regular_expression] = Resolved(frozenset(value.topics), value.version, value.timestamp)
    else:
        group.resolved.pop(key.regular_expression, None)


REPLAY: Mapping[type[Struct], Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupMetadataKey: _metadata,
    ConsumerGroupPartitionMetadataKey: _partition_metadata,
    ConsumerGroupMemberMetadataKey: _member,
    ConsumerGroupTargetAssignmentMetadataKey: _target,
    ConsumerGroupTargetAssignmentMemberKey: _member_target,
    ConsumerGroupCurrentMemberAssignmentKey: _assignment,
    ConsumerGroupRegularExpressionKey: _regex,
}
