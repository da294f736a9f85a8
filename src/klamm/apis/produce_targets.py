"""Where a Produce request of the usual shape goes: one batch for one partition, from a producer that waits.

What such a request says before its records (transactional id: none; acks, timeout, topic, partition) is the same
bytes whenever a producer writes to the same partition again. These bytes are the key to a `Target`, which knows the
partition and the answer but for three numbers; so the small requests of a busy producer pass through no codec. Both
formats still come from the tables alone: a target is learned from a decoded request and made of an encoded answer.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from klamm import wire
from klamm.replica.manager import ReplicaManager
from klamm.replica.partition import Partition
from klamm.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from klamm.wire.runtime import read_varint

FIRST_VERSION = 7
"""Before it there are codecs that a request must not use."""
_FLEXIBLE = 9
_TOPIC_IDS = 13
_MAX_TARGETS = 10_000
"""For each version; beyond that, all are forgotten."""

_int32 = Struct(">i").unpack_from
_pack_offsets = Struct(">qqq").pack  # base offset, append time, log start offset: neighbours in every version from 5 on


class Target:
    __slots__ = ("_head", "_tail", "acks", "index", "name", "partition", "timeout_ms", "topic_id")

    def __init__(self, partition: Partition, request: ProduceRequest, version: int) -> None:
        topic = request.topic_data[0]
        self.partition = partition
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        low, high = self._answer(version, 0), self._answer(version, -1)
        start = next(i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a != b)
        self._head, self._tail = low[:start], low[start + 24 :]

    def _answer(self, version: int, offset: int) -> bytes:
        partition = PartitionProduceResponse(
            index=self.index, base_offset=offset, log_append_time_ms=offset, log_start_offset=offset
        )
        topic = TopicProduceResponse(name=self.name, topic_id=self.topic_id, partition_responses=[partition])
        return wire.encode(ProduceResponse(responses=[topic]), version)

    def success(self, base_offset: int, append_time_ms: int, log_start_offset: int) -> bytes:
        """The body of the answer."""
        return self._head + _pack_offsets(base_offset, append_time_ms, log_start_offset) + self._tail


class ProduceTargets:
    __slots__ = ("_by_version", "_replicas")

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._by_version: tuple[dict[bytes, Target], ...] = tuple({} for _ in range(_TOPIC_IDS + 1))

    def find(self, version: int, frame: memoryview, body: int) -> tuple[Target, memoryview] | None:
        """The target and the records; None for a request of any other shape, and for one that makes no sense."""
        try:
            # Up to where the records' length stands, if this is a request of that shape. If it is another, these
            # bytes cannot be the key to anything.
            if version >= _TOPIC_IDS:
                end = body + 29
            elif version >= _FLEXIBLE:
                end = body + 13 + frame[body + 8]
            else:
                end = body + 22 + frame[body + 13]
            key = frame[body:end].tobytes()
            stop = len(frame)
            if version >= _FLEXIBLE:
                size, start = frame[end], end + 1
                if size > 127:
                    if frame[start] < 128:  # two bytes: the usual size of a small batch
                        size = size & 127 | frame[start] << 7
                        start += 1
                    else:
                        size, start = read_varint(frame, end)
                size -= 1
                stop -= 3  # no tagged fields: of the partition, the topic, the request
                if frame[stop] or frame[stop + 1] or frame[stop + 2]:
                    return None
            else:
                (size,), start = _int32(frame, end), end + 4
        except (IndexError, struct_error, wire.ProtocolError):
            return None
        if size <= 0 or start + size != stop:
            return None
        targets = self._by_version[version]
        target = targets.get(key)
        if target is None or target.partition.log is None:
            target = self._learn(version, frame, body, key)
            if target is None:
                return None
        return target, frame[start:stop]

    def _learn(self, version: int, frame: memoryview, body: int, key: bytes) -> Target | None:
        targets = self._by_version[version]
        targets.pop(key, None)
        try:
            request = wire.decode(ProduceRequest, frame, version, body)
        except wire.ProtocolError:
            return None
        if request.transactional_id is not None or request.acks not in (-1, 1) or len(request.topic_data) != 1:
            return None
        topic = request.topic_data[0]
        if len(topic.partition_data) != 1 or len(topic.name) > 100:
            return None
        find = self._replicas.find_by_id if version >= _TOPIC_IDS else self._replicas.find
        partition = find(topic.topic_id if version >= _TOPIC_IDS else topic.name, topic.partition_data[0].index)  # type: ignore[arg-type]
        if partition is None or partition.log is None:
            return None
        if len(targets) >= _MAX_TARGETS:
            targets.clear()
        target = targets[key] = Target(partition, request, version)
        return target
