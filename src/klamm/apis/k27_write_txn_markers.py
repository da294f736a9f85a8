"""WriteTxnMarkers (key 27), versions 1-2: a transaction coordinator tells leaders how transactions ended.

Unusual:
- For coordinators, and for administrators who end a transaction that hangs: either may do it to the cluster.
- Answered once every marker is safe, as with acks=all. What is refused is refused for each partition.
- v2 says by which rules the transaction went. By version 2 of them the marker carries the producer's next epoch.
- Markers for committed offsets go through the group coordinator, which has to know at once that offsets count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Broker, Context, Operation, Pending, ResourceType
from klamm.coordinator.machine import Producer
from klamm.core.errors import ErrorCode
from klamm.log.results import Appended, Rejected
from klamm.records.record import ControlType, EndMarker, encode_end_marker
from klamm.replica.partition import Partition
from klamm.replica.produce import ALL, Awaited, DelayedProduce
from klamm.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_OFFSETS = "__consumer_offsets"
_NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
"""Of the group coordinator. Who sends markers knows errors of partitions only, and comes again for this one."""
_TIMEOUT_S = 30
"""For the other replicas, where there are some; the request has no time limit of its own."""


def handle(ctx: Context, request: WriteTxnMarkersRequest) -> Answer:
    if not any(
        ctx.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME)
        for operation in (Operation.ALTER, Operation.CLUSTER_ACTION)
    ):
        return on_error(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return write(ctx.broker, request)


def write(broker: Broker, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Pending:
    """Also for the coordinators of this broker, which need no request for it."""
    work = _Writing(broker)
    response = WriteTxnMarkersResponse(markers=[work.marker(marker) for marker in request.markers])
    return work.answer(response)


class _Writing:
    """One request on its way through its partitions."""

    __slots__ = ("_answers", "_awaited", "_broker", "_touched")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._touched: list[Partition] = []
        self._awaited: list[Awaited] = []
        self._answers: list[WritableTxnMarkerPartitionResult] = []  # those that `_awaited` decides on

    def marker(self, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        batch = encode_end_marker(
            _end_marker(marker),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=self._broker.env.clock.time_ms(),
        )
        topics = [self._topic(marker, topic, batch) for topic in marker.topics]
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

    def _topic(
        self, marker: WritableTxnMarker, topic: WritableTxnMarkerTopic, batch: bytes
    ) -> WritableTxnMarkerTopicResult:
        results = [self._partition(marker, topic.name, index, batch) for index in topic.partition_indexes]
        return WritableTxnMarkerTopicResult(name=topic.name, partitions=results)

    def _partition(
        self, marker: WritableTxnMarker, topic: str, index: int, batch: bytes
    ) -> WritableTxnMarkerPartitionResult:
        answer = WritableTxnMarkerPartitionResult(partition_index=index)
        partition = self._broker.replicas.find(topic, index)
        if partition is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return answer
        result = self._append(partition, marker, batch)
        if isinstance(result, Rejected):
            answer.error_code = result.code
            return answer
        self._touched.append(partition)
        if result.last_offset >= partition.high_watermark:
            self._awaited.append(Awaited(partition, result.last_offset))
            self._answers.append(answer)
        return answer

    def _append(self, partition: Partition, marker: WritableTxnMarker, batch: bytes) -> Appended | Rejected:
        version = marker.transaction_version
        if partition.topic != _OFFSETS:
            return partition.append_internal(bytearray(batch), transaction_version=version)
        producer = Producer(marker.producer_id, marker.producer_epoch)
        result = self._broker.groups.write_marker(partition.index, producer, _end_marker(marker), version)
        if isinstance(result, Rejected) and result.code in _NOT_READY:
            return Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, result.message)
        return result

    def answer(self, response: WriteTxnMarkersResponse) -> WriteTxnMarkersResponse | Pending:
        for partition in self._touched:
            partition.wake()
        if not self._awaited:
            return response
        pending = Pending()
        delayed = DelayedProduce(self._awaited, ALL, partial(self._settled, pending, response))
        if not delayed.hold(self._broker.purgatory, _TIMEOUT_S):
            delayed.complete(timed_out=True)
        pending.on_cancel(delayed.cancel)
        return pending

    def _settled(self, pending: Pending, response: WriteTxnMarkersResponse, awaited: Sequence[Awaited]) -> None:
        for one, answer in zip(awaited, self._answers, strict=True):
            if one.error:
                answer.error_code = one.error
        pending.set(response)


def _end_marker(marker: WritableTxnMarker) -> EndMarker:
    kind = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
    return EndMarker(kind, marker.coordinator_epoch)


def on_error(request: WriteTxnMarkersRequest, version: int, code: ErrorCode) -> WriteTxnMarkersResponse:
    def topic(one: WritableTxnMarkerTopic) -> WritableTxnMarkerTopicResult:
        results = [
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code) for index in one.partition_indexes
        ]
        return WritableTxnMarkerTopicResult(name=one.name, partitions=results)

    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[topic(one) for one in marker.topics])
            for marker in request.markers
        ]
    )


API = Api(WriteTxnMarkersRequest, handle, key=27, versions=(1, 2), on_error=on_error)
