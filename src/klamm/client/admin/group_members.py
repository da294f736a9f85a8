"""Groups as a coordinator describes them, of both protocols in one form. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from klamm.wire.messages.k15_describe_groups import DescribedGroup as ClassicGroup
    from klamm.wire.messages.k15_describe_groups import DescribedGroupMember as ClassicMember
    from klamm.wire.messages.k69_consumer_group_describe import Assignment
    from klamm.wire.messages.k69_consumer_group_describe import DescribedGroup as ConsumerGroup
    from klamm.wire.messages.k69_consumer_group_describe import Member as ConsumerMember

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """`assignment` is what the member has. What only the consumer protocol (KIP-848) knows is None with the classic
    one: the epoch, the rack, and the `target` that the member is on the way to."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    rack: str | None = None
    metadata: bytes = b""
    """What the member said when it joined, as it is (classic protocol)."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`epoch` and `target_epoch` are the consumer protocol's; None with the classic one."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    epoch: int | None = None
    target_epoch: int | None = None


def classic_group(told: ClassicGroup, coordinator: int) -> GroupDescription:
    return GroupDescription(
        told.group_id,
        CLASSIC,
        told.group_state,
        told.protocol_type,
        told.protocol_data,
        coordinator,
        tuple(_classic_member(member, told.protocol_type == CONSUMER) for member in told.members),
    )


def _classic_member(told: ClassicMember, is_consumer: bool) -> MemberDescription:
    return MemberDescription(
        told.member_id,
        told.group_instance_id,
        told.client_id,
        told.client_host,
        assigned(told.member_assignment) if is_consumer else (),
        subscribed(told.member_metadata) if is_consumer else (),
        metadata=told.member_metadata,
    )


def consumer_group(told: ConsumerGroup, coordinator: int) -> GroupDescription:
    return GroupDescription(
        told.group_id,
        CONSUMER,
        told.group_state,
        CONSUMER,
        told.assignor_name,
        coordinator,
        tuple(_consumer_member(member) for member in told.members),
        told.group_epoch,
        told.assignment_epoch,
    )


def _consumer_member(told: ConsumerMember) -> MemberDescription:
    return MemberDescription(
        told.member_id,
        told.instance_id,
        told.client_id,
        told.client_host,
        _places(told.assignment),
        tuple(told.subscribed_topic_names),
        told.subscribed_topic_regex or None,
        _places(told.target_assignment),
        told.member_epoch,
        told.rack_id,
    )


def _places(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(t.topic_name, index) for t in assignment.topic_partitions for index in t.partitions)


def assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """What a consumer of the classic protocol was assigned; nothing if it cannot be read: members tell each other, and
    the cluster does not look."""
    from klamm.wire import ProtocolError, decode
    from klamm.wire.messages.consumer_protocol import ConsumerProtocolAssignment

    if len(assignment) < 2:
        return ()
    try:  # newer versions only add to the end, which is left over
        body = decode(ConsumerProtocolAssignment, assignment, 0, 2, allow_trailing=True)
    except ProtocolError:
        return ()
    return tuple(TopicPartition(topic.topic, index) for topic in body.assigned_partitions for index in topic.partitions)


def subscribed(metadata: bytes) -> tuple[str, ...]:
    """The topics that such a consumer asked for, in the same way."""
    from klamm.wire import ProtocolError, decode
    from klamm.wire.messages.consumer_protocol import ConsumerProtocolSubscription

    if len(metadata) < 2:
        return ()
    try:
        body = decode(ConsumerProtocolSubscription, metadata, 0, 2, allow_trailing=True)
    except ProtocolError:
        return ()
    return tuple(body.topics)
