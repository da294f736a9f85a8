"""Which partition a record goes to: by its key, as the Java client does, or the one being filled."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random  # noqa: TID251 - the type; instances come from the environment
from typing import Final

from klamm.client.errors import BrokerSaid
from klamm.client.metadata import Topic
from klamm.core.errors import ErrorCode

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, unsigned."""
    size = len(data)
    h = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if size > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def checked(topic: Topic, partition: int) -> int:
    """The partition that the caller chose, if there is one."""
    if partition in topic.partitions:
        return partition
    there = f"it has {partitions_of(topic)}"
    raise BrokerSaid(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name, there)


def partitions_of(topic: Topic) -> str:
    """Which there are, in words."""
    last = len(topic.partitions) - 1
    return f"the partitions 0 to {last}" if last else "only partition 0"


class Sticky:
    """Records without a key stay with one partition until its batch is full, so that batches get large (KIP-480)."""

    __slots__ = ("_chosen", "_rng")

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._chosen: dict[str, int] = {}

    def current(self, topic: str) -> int | None:
        return self._chosen.get(topic)

    def move_on(self, topic: str, partitions: Sequence[int]) -> int:
        """Choose another one; `partitions` are those that can be written to, or all if none can."""
        before = self._chosen.get(topic)
        others = [partition for partition in partitions if partition != before] or partitions
        chosen = self._chosen[topic] = self._rng.choice(others)
        return chosen
