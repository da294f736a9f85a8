"""What a Fetch request of the usual shape reads: one partition, without a session, from an offset on.

A consumer that reads on sends the same bytes again and again but for that offset. They are the key to a `Target`, which
knows the partition, the limits and the answer but for its offsets and its size; so a consumer that has much to catch up
on passes through no codec. Both formats still come from the tables alone: a target is learned from a decoded
request and made of an encoded answer.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from klamm import wire
from klamm.core.env import Part
from klamm.core.ids import ZERO_UUID
from klamm.replica.fetch import CONSUMER, Limits, Wanted
from klamm.replica.manager import ReplicaManager
from klamm.replica.partition import Partition
from klamm.replica.sessions import FINAL_EPOCH, NO_SESSION
from klamm.wire.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from klamm.wire.runtime import varint

FIRST_VERSION = 11
"""Older requests are laid out in other ways, and come from nobody who is in a hurry."""
_FLEXIBLE = 12
_TOPIC_IDS = 13
_REPLICA_STATE = 15
_LAST = 18
_READ_COMMITTED = 1
_MAX_TARGETS = 10_000
"""For each version; beyond that, all are forgotten."""

_int64 = Struct(">q").unpack_from
_sessionless = Struct(">ii").pack(NO_SESSION, FINAL_EPOCH)
_pack_offsets = Struct(">qqq").pack  # high watermark, last stable offset, log start offset: neighbours in every version
_pack_size = Struct(">i").pack


class Target:
    __slots__ = ("_flexible", "_head", "_middle", "_tail", "limits", "max_bytes", "partition", "wanted")

    def __init__(self, partition: Partition, request: FetchRequest, version: int, max_bytes: int) -> None:
        topic = request.topics[0]
        asked = topic.partitions[0]
        by_id = version >= _TOPIC_IDS
        self.partition = partition
        self.max_bytes = min(request.max_bytes, max_bytes)
        self.wanted = Wanted(
            "" if by_id else topic.topic,
            topic.topic_id if by_id else ZERO_UUID,
            asked.partition,
            asked.fetch_offset,
            min(asked.partition_max_bytes, self.max_bytes),
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )
        committed = request.isolation_level == _READ_COMMITTED
        self.limits = Limits(
            committed=committed, min_bytes=min(request.min_bytes, self.max_bytes), max_bytes=self.max_bytes
        )
        self._flexible = version >= _FLEXIBLE
        low, high = self._answer(version, 0, committed), self._answer(version, -1, committed)
        start = next(i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a != b)
        # Of an answer without records the last field but for tags is their size.
        end = len(low) - 4
        self._head, self._middle, self._tail = low[:start], low[start + 24 : end], low[end + 1 :]

    def _answer(self, version: int, offset: int, committed: bool) -> bytes:
        wanted = self.wanted
        data = PartitionData(
            partition_index=wanted.index,
            high_watermark=offset,
            last_stable_offset=offset,
            log_start_offset=offset,
            records=b"",
            aborted_transactions=[] if committed else None,
        )
        topic = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[data])
        return wire.encode(FetchResponse(responses=[topic]), version)

    def read(self, offset: int) -> list[Part] | None:
        """The body of the answer; None unless there is enough to be read, at once, and nothing else to be said."""
        partition, wanted = self.partition, self.wanted
        wanted.offset = offset
        found = partition.fetch(wanted, wanted.max_bytes, True, self.limits)
        records = found.records
        if records is None or found.error or found.aborted or found.diverging is not None:
            return None
        size = records.size
        if size < self.limits.min_bytes or not records.file.is_cached(records.offset, size):
            return None
        partition.sent_bytes += size
        head = self._head + _pack_offsets(found.high_watermark, found.last_stable_offset, found.log_start_offset)
        if not self._flexible:
            return [head + self._middle + _pack_size(size), records]
        return [head + self._middle + varint(size + 1), records, self._tail]


class FetchTargets:
    __slots__ = ("_by_version", "_replicas")

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._by_version: tuple[dict[bytes, Target], ...] = tuple({} for _ in range(_LAST + 1))

    def read(self, version: int, frame: memoryview, body: int) -> list[Part] | None:
        """The body of the answer; None for a request that the handler has to look at."""
        try:
            # Where the offset stands, if this is a request of that shape, and how many partitions it names. If it is
            # another, its other bytes cannot be the key to anything.
            if version >= _REPLICA_STATE:
                at, count = body + 47, frame[body + 38]
                session = body + 13
            elif version >= _TOPIC_IDS:
                at, count = body + 51, frame[body + 42]
                session = body + 17
            elif version >= _FLEXIBLE:
                at = body + 35 + frame[body + 26]
                count = frame[at - 9]
                session = body + 17
            else:
                at = body + 43 + frame[body + 30]
                count = frame[at - 9] + 1
                session = body + 17
            if count != 2 or frame[session : session + 8] != _sessionless:  # one, as a compact array says it
                return None
            (offset,) = _int64(frame, at)
        except (IndexError, struct_error):
            return None
        key = frame[body:at].tobytes() + frame[at + 8 :]
        target = self._by_version[version].get(key)
        if target is None or target.partition.log is None:
            target = self._learn(version, frame, body, key)
            if target is None:
                return None
        return target.read(offset)

    def _learn(self, version: int, frame: memoryview, body: int, key: bytes) -> Target | None:
        targets = self._by_version[version]
        targets.pop(key, None)
        try:
            request = wire.decode(FetchRequest, frame, version, body)
        except wire.ProtocolError:
            return None
        replica_id = request.replica_state.replica_id if version >= _REPLICA_STATE else request.replica_id
        if replica_id > CONSUMER or len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return None
        if request.max_bytes <= 0 or request.forgotten_topics_data:
            return None
        topic = request.topics[0]
        index = topic.partitions[0].partition
        replicas = self._replicas
        partition = (
            replicas.find_by_id(topic.topic_id, index) if version >= _TOPIC_IDS else replicas.find(topic.topic, index)
        )
        if partition is None or partition.log is None:
            return None
        if len(targets) >= _MAX_TARGETS:
            targets.clear()
        target = targets[key] = Target(partition, request, version, replicas.fetch_max_bytes)
        return target
