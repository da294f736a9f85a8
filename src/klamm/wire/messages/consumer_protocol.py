"""What consumers of a classic group tell each other through the coordinator, which only passes it on.

Each starts with an int16 version. Readers take a newer version as the newest they know and ignore what is left over.
"""

from __future__ import annotations

from klamm.wire.schema import Struct, array, binary, int32, string


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Struct, versions="0-3"):
    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="0+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Struct, versions="0-3"):
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = binary(nullable="0+", default=None)
