"""A consumer group as ConsumerGroupDescribe tells of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.wire.messages.k69_consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

if TYPE_CHECKING:
    from klamm.coordinator.groups.consumer import member
    from klamm.coordinator.groups.consumer.assignors import Partitions
    from klamm.metadata.image import Image

_CONSUMER_PROTOCOL = 1
"""The type of a member: 0 would be one of the classic protocol in a group of this one, which we do not have."""


def describe(group: ConsumerGroup, image: Image, default_assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_member(member, group.target.get(member.member_id, {}), image) for member in group.members.values()],
    )


def _member(member: member.Member, target: Partitions, image: Image) -> Member:
    owned: dict[bytes, list[int]] = {}
    for assigned in (member.assigned, member.revoking):  # what it gives up is its own until it has
        for topic_id, partitions in assigned.items():
            owned.setdefault(topic_id, []).extend(partitions)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(owned, image),
        target_assignment=_assignment(target, image),
        member_type=_CONSUMER_PROTOCOL,
    )


def _assignment(partitions: Mapping[bytes, Collection[int]], image: Image) -> Assignment:
    """Topics that are gone have no name, and are left out."""
    known = [(topic, partitions[topic_id]) for topic_id in sorted(partitions) if (topic := image.topic_by_id(topic_id))]
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.id, topic_name=topic.name, partitions=sorted(numbers))
            for topic, numbers in known
        ]
    )
