"""What members of a classic group tell each other through the coordinator, to and from bytes. Pure.

A subscription goes to the leader with JoinGroup, an assignment comes from it with SyncGroup; the coordinator looks into
neither. Both begin with a version. A newer one is read as the newest that is known here: it only adds at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm import wire
from klamm.client.assignors import Member
from klamm.core.ids import TopicPartition
from klamm.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from klamm.wire.messages.consumer_protocol import TopicPartition as _Topic

PROTOCOL_TYPE: Final = "consumer"
VERSION: Final = 3
_PREFIX: Final = 2


def encode_subscription(
    topics: Iterable[str],
    user_data: bytes | None,
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=_by_topic(owned),
        generation_id=generation,
        rack_id=rack,
    )
    return _versioned(message)


def decode_subscription(member_id: str, instance_id: str | None, data: bytes) -> Member:
    """`ProtocolError` if it is none."""
    found = wire.decode(ConsumerProtocolSubscription, data, _version(data), _PREFIX, allow_trailing=True)
    return Member(
        member_id,
        frozenset(found.topics),
        instance_id,
        _places(found.owned_partitions),
        found.generation_id,
        None if found.user_data is None else bytes(found.user_data),
        found.rack_id,
    )


def encode_assignment(places: Iterable[TopicPartition]) -> bytes:
    return _versioned(ConsumerProtocolAssignment(assigned_partitions=_by_topic(places)))


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """`ProtocolError` if it is none. Nothing at all is no partitions: the leader left this member out."""
    if not data:
        return ()
    found = wire.decode(ConsumerProtocolAssignment, data, _version(data), _PREFIX, allow_trailing=True)
    return _places(found.assigned_partitions)


def _versioned(message: wire.Struct) -> bytes:
    return VERSION.to_bytes(_PREFIX, "big") + wire.encode(message, VERSION)


def _version(data: bytes) -> int:
    found = int.from_bytes(data[:_PREFIX], "big", signed=True)
    if len(data) < _PREFIX or found < 0:
        raise wire.ProtocolError("it has no version")
    return min(found, VERSION)


def _by_topic(places: Iterable[TopicPartition]) -> list[_Topic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        topics.setdefault(topic, []).append(partition)
    return [_Topic(topic=topic, partitions=partitions) for topic, partitions in topics.items()]


def _places(topics: Iterable[_Topic]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions)
