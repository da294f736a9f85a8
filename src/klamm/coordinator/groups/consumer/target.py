"""The target of a group: what each member shall have, made anew when the group's epoch has moved on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from klamm.coordinator.groups.consumer.assignors import Assignor, Partitions, Subscriber

if TYPE_CHECKING:
    from klamm.coordinator.groups.consumer.member import Member
    from klamm.coordinator.groups.consumer.records import Resolved
    from klamm.metadata.image import Image


def subscribed_names(member: Member, resolved: Mapping[str, Resolved]) -> frozenset[str]:
    """By name and by regular expression. One that is not resolved yet stands for nothing."""
    found = resolved.get(member.regex) if member.regex else None
    return member.topics if found is None else member.topics | found.topics


def topic_ids(names: frozenset[str], image: Image) -> frozenset[bytes]:
    return frozenset(topic.id for name in names if (topic := image.topic(name)) is not None)


def make_target(
    members: Mapping[str, Member],
    so_far: Mapping[str, Partitions],
    resolved: Mapping[str, Resolved],
    image: Image,
    assign: Assignor,
) -> dict[str, Partitions]:
    """What each of these members shall have, given what they had."""
    subscriptions: dict[frozenset[str], frozenset[bytes]] = {}
    subscribers = {}
    for member_id, member in members.items():
        names = subscribed_names(member, resolved)
        topics = subscriptions.get(names)
        if topics is None:  # most members of a group subscribe alike
            topics = subscriptions[names] = topic_ids(names, image)
        subscribers[member_id] = Subscriber(topics, so_far.get(member_id, {}), member.instance_id)
    return assign(subscribers, dict(_counts(subscriptions.values(), image)))


def _counts(subscriptions: Iterable[frozenset[bytes]], image: Image) -> Iterator[tuple[bytes, int]]:
    for topics in subscriptions:
        for topic_id in topics:
            topic = image.topic_by_id(topic_id)
            assert topic is not None
            yield topic_id, len(topic.partitions)
