"""The logs of a fake cluster: appended to by Kafka's rules for idempotent producers, read back by Fetch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client_broker import TOPIC_ID, FakeBroker, HangUp

from klamm.core.errors import ErrorCode
from klamm.records import batch as header_of
from klamm.records.record import Record, decode_records
from klamm.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from klamm.wire.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from klamm.wire.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from klamm.wire.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

REMEMBERED = 5

Fault = Callable[[int], "ErrorCode | str | None"]
"""What happens to a batch for this partition: an error code, "lost before", "lost after" (the append), "moved after"
(another broker leads by then), or nothing."""


class FakeLog:
    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.records: list[Record] = []
        self.start = 0  # what is before it was deleted
        self.epoch = 0  # of the leader that appends
        self._producers: dict[int, list[tuple[int, int, int]]] = {}  # id: first and last sequence, base offset

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        header = header_of.read_header(data)
        header_of.validate(data, 0, header)
        base = len(self.records)
        if header.producer_id >= 0:
            seen = self._producers.setdefault(header.producer_id, [])
            for first, last, offset in seen:
                if (header.base_sequence, header.last_sequence) == (first, last):
                    return ErrorCode.NONE, offset
            if seen and header.base_sequence != seen[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            seen.append((header.base_sequence, header.last_sequence, base))
            del seen[:-REMEMBERED]
        placed = bytearray(data)
        header_of.assign(placed, 0, base, self.epoch)
        self.batches.append(bytes(placed))
        self.records += decode_records(bytes(placed))
        return ErrorCode.NONE, base

    def truncate(self, end: int) -> None:
        """As a leader that has less than the one before it."""
        self.batches = [batch for batch in self.batches if header_of.read_header(batch).next_offset <= end]
        del self.records[end:]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The latest epoch up to this one that has records, and where it ends; -1 and -1 if there is none."""
        headers = [header_of.read_header(batch) for batch in self.batches]
        before = [header for header in headers if header.leader_epoch <= epoch]
        return (before[-1].leader_epoch, before[-1].next_offset) if before else (-1, -1)


class FakeLogs:
    """Shared by the brokers of a fake cluster. Every one of them answers for the partitions that it leads."""

    def __init__(self, *brokers: FakeBroker, topic: str = "t", partitions: int = 1) -> None:
        self.topic = topic
        self.logs = [FakeLog() for _ in range(partitions)]
        self.brokers = brokers
        self.fault: Fault = lambda partition: None
        self.max_batch_bytes = 1 << 20
        self.producer_ids = 0
        self.largest_request = 0
        for broker in brokers:
            broker.leaders = {(topic, n): brokers[0].node_id for n in range(partitions)}
            broker.on(ProduceRequest, lambda request, version, broker=broker: self._produce(broker, request, version))
            broker.on(FetchRequest, lambda request, version, broker=broker: self._fetch(broker, request, version))
            broker.on(ListOffsetsRequest, self._list_offsets)
            broker.on(OffsetForLeaderEpochRequest, self._epochs)
            broker.on(InitProducerIdRequest, self._init_producer_id)

    def lead(self, partition: int, broker: FakeBroker) -> None:
        for each in self.brokers:
            each.leaders[self.topic, partition] = broker.node_id
            each.epoch += 1

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.logs[partition].records]

    def _init_producer_id(self, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)

    def _produce(self, broker: FakeBroker, request: ProduceRequest, version: int) -> ProduceResponse | None:
        parts = []
        for topic in request.topic_data:
            assert topic.name == self.topic or topic.topic_id == TOPIC_ID
            for data in topic.partition_data:
                self.largest_request = max(self.largest_request, len(data.records))
                code, offset = self._append(broker, data.index, bytes(data.records))
                parts.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
        answer = TopicProduceResponse(name=self.topic, topic_id=TOPIC_ID, partition_responses=parts)
        return ProduceResponse(responses=[answer]) if request.acks else None

    def _append(self, broker: FakeBroker, partition: int, data: bytes) -> tuple[ErrorCode, int]:
        if broker.leaders[self.topic, partition] != broker.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if len(data) > self.max_batch_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        fault = self.fault(partition)
        if isinstance(fault, ErrorCode):
            return fault, -1
        if fault == "lost before":
            raise HangUp
        found = self.logs[partition].append(data)
        if fault == "lost after":
            raise HangUp
        if fault == "moved after":
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        return found

    def _fetch(self, broker: FakeBroker, request: FetchRequest, version: int) -> FetchResponse:
        parts = []
        room = request.max_bytes
        for topic in request.topics:
            for asked in topic.partitions:
                answer = self._fetched(broker, asked, room)
                room -= len(answer.records or b"")
                parts.append(answer)
        found = FetchableTopicResponse(topic=self.topic, topic_id=TOPIC_ID, partitions=parts)
        return FetchResponse(responses=[found])

    def _fetched(self, broker: FakeBroker, asked: Any, room: int) -> PartitionData:
        log = self.logs[asked.partition]
        fault = self.fault(asked.partition)
        if fault == "lost before":
            raise HangUp
        code = fault if isinstance(fault, ErrorCode) else ErrorCode.NONE
        if broker.leaders[self.topic, asked.partition] != broker.node_id:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not code and -1 < asked.current_leader_epoch < broker.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif not log.start <= asked.fetch_offset <= len(log.records):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        data = b""
        for batch in log.batches if not code else ():
            header = header_of.read_header(batch)
            if header.next_offset > asked.fetch_offset and len(data) < min(room, asked.partition_max_bytes):
                data += batch
        return PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=len(log.records),
            last_stable_offset=len(log.records),
            log_start_offset=log.start,
            records=data,
        )

    def _epochs(self, request: OffsetForLeaderEpochRequest, version: int) -> OffsetForLeaderEpochResponse:
        parts = []
        for asked in request.topics[0].partitions:
            epoch, end = self.logs[asked.partition].end_of_epoch(asked.leader_epoch)
            parts.append(EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end))
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=self.topic, partitions=parts)])

    def _offset_at(self, log: FakeLog, timestamp: int) -> int:
        if timestamp < 0:
            return log.start if timestamp == -2 else len(log.records)
        return next((record.offset for record in log.records if record.timestamp >= timestamp), -1)

    def _list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=p.partition_index,
                        offset=self._offset_at(self.logs[p.partition_index], p.timestamp),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)
