"""Requests of members of groups, put briefly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from klamm.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from klamm.wire.messages.k12_heartbeat import HeartbeatRequest
from klamm.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from klamm.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from klamm.wire.messages.k15_describe_groups import DescribeGroupsRequest
from klamm.wire.messages.k42_delete_groups import DeleteGroupsRequest
from klamm.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from klamm.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from klamm.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

NO_ID = bytes(16)


def subscription(topic: str) -> bytes:
    """Of a consumer, to one topic."""
    name = topic.encode()
    return b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff\0\0\0\0"


def join(
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    protocols: Mapping[str, bytes] | None = None,
    kind: str = "consumer",
    session_ms: int = 10_000,
) -> JoinGroupRequest:
    offered = {"range": subscription("compared-a")} if protocols is None else protocols
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        group_instance_id=instance,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=60_000,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in offered.items()],
        reason="to compare",
    )


def sync(
    group: str,
    member: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    instance: str | None = None,
    kind: str | None = "consumer",
    protocol: str | None = "range",
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        member_id=member,
        generation_id=generation,
        group_instance_id=instance,
        protocol_type=kind,
        protocol_name=protocol,
        assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
    )


def beat(group: str, member: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, member_id=member, generation_id=generation, group_instance_id=instance)


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    """Each with its instance id."""
    leaving = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
    return LeaveGroupRequest(group_id=group, members=leaving)


def leave_alone(group: str, member: str) -> LeaveGroupRequest:
    """As before v3."""
    return LeaveGroupRequest(group_id=group, member_id=member)


def describe(*groups: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups))


def delete(*groups: str) -> DeleteGroupsRequest:
    return DeleteGroupsRequest(groups_names=list(groups))


def commit(
    group: str,
    offsets: Sequence[tuple[str, int, int]],
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    *,
    ids: Mapping[str, bytes],
    note: str | None = "",
) -> OffsetCommitRequest:
    """`offsets`: topic, partition, offset."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for topic, partition, offset in offsets:
        asked = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=3, committed_metadata=note
        )
        topics.setdefault(topic, []).append(asked)
    return OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance,
        topics=[
            OffsetCommitRequestTopic(name=topic, topic_id=ids.get(topic, NO_ID), partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )


def fetch_one(group: str, wanted: Mapping[str, list[int]] | None) -> OffsetFetchRequest:
    """As before v8."""
    topics = None
    if wanted is not None:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
    return OffsetFetchRequest(group_id=group, topics=topics)


def fetch(*groups: OffsetFetchRequestGroup, stable: bool = False) -> OffsetFetchRequest:
    return OffsetFetchRequest(require_stable=stable, groups=list(groups))


def of_group(
    group: str,
    wanted: Mapping[str, list[int]] | None = None,
    member: str | None = None,
    epoch: int = -1,
    *,
    ids: Mapping[str, bytes] | None = None,
) -> OffsetFetchRequestGroup:
    topics = None
    if wanted is not None:
        topics = [
            OffsetFetchRequestTopics(name=name, topic_id=(ids or {}).get(name, NO_ID), partition_indexes=indexes)
            for name, indexes in wanted.items()
        ]
    return OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=topics)


def delete_offsets(group: str, places: Mapping[str, list[int]]) -> OffsetDeleteRequest:
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes]
        )
        for name, indexes in places.items()
    ]
    return OffsetDeleteRequest(group_id=group, topics=topics)


def pulse(
    group: str,
    member: str,
    epoch: int,
    *,
    instance: str | None = None,
    rack: str | None = None,
    rebalance_ms: int = -1,
    topics: list[str] | None = None,
    regex: str | None = None,
    assignor: str | None = None,
    owned: Mapping[bytes, list[int]] | None = None,
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat of the newer protocol."""
    partitions = None
    if owned is not None:
        partitions = [TopicPartitions(topic_id=topic, partitions=indexes) for topic, indexes in owned.items()]
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=partitions,
    )


def describe_consumers(*groups: str) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=list(groups))
