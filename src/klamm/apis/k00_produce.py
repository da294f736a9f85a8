"""Produce (key 0), versions 3-13: append one batch to each of some partitions.

Unusual:
- Advertised from v0, because librdkafka up to 2.0 (Debian's kcat) stops compressing when v0 is missing; v0-2, which
  carry the old message formats, are refused.
- acks=0 gets no answer; an error then closes the connection, so that the producer looks for its leader anew.
- Topics go by id from v13 on. A wrong leader is answered with the right one from v10 on (KIP-951).
- A batch compressed with zstd is refused before v7, which brought that codec (KIP-110).
- A batch that its topic wants compressed in another way may have to wait for a thread, and what comes after it for the
  same partition with it (replica.recoding); the answer is then a task's.
- A compacted topic refuses a batch in which a record has no key, and names these records from v8 on (KIP-467).
- The usual small request takes a shortcut around the codec (see produce_targets).
- A first transactional batch waits for its transaction's coordinator (apis.transactional).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.apis.api import Answer, Api, Context, Hangup, Operation, Pending, ResourceType, Response
from klamm.apis.produce_targets import FIRST_VERSION
from klamm.core.errors import ErrorCode
from klamm.log.results import Appended, Rejected
from klamm.records.batch import CODEC_MASK
from klamm.replica.produce import ALL, LEADER, NOBODY, Awaited, DelayedProduce
from klamm.wire.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from klamm.apis.transactional import Refused
    from klamm.replica.partition import Partition
    from klamm.replica.recoding import Deferred

_TOPIC_IDS = 13
_LEADER_HINTS = 10
_ZSTD_SINCE = 7

_ZSTD = 4
_ATTRIBUTES_LOW_BYTE = 22  # of a batch: where the codec is


def handle(ctx: Context, request: ProduceRequest) -> Answer:
    acks = request.acks
    if acks != ALL and acks != LEADER and acks != NOBODY:
        return _refuse(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if request.transactional_id is not None:
        return _in_transaction(ctx, request)
    return _append(ctx, request)


def _append(ctx: Context, request: ProduceRequest, refused: Refused | None = None) -> Answer:
    work = _Produce(ctx, request.acks, refused)
    return work.answer([work.topic(topic) for topic in request.topic_data], request.timeout_ms)


def _in_transaction(ctx: Context, request: ProduceRequest) -> Answer:
    transactional_id = request.transactional_id or ""
    if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.acks == NOBODY:
            raise Hangup(code, f"with acks=0, {code.name} has no other answer")
        return _refuse(request, code)
    broker = ctx.broker
    if broker.verifier is None:
        from klamm.apis.transactional import Verifier  # not for those who never write in transactions

        broker.verifier = Verifier(broker)
    return broker.verifier.produce(ctx, request, _append)


def shortcut(ctx: Context, frame: memoryview, body: int) -> bytes | Answer:
    """One batch for one partition, and what comes of it but rarely is left to `_Produce`."""
    broker = ctx.broker
    if ctx.api_version < FIRST_VERSION or broker.authorizer is not None or ctx.throttle_time_ms:
        return None
    found = broker.produce_targets.find(ctx.api_version, frame, body)
    if found is None:
        return None
    target, records = found
    partition = target.partition
    result = partition.append(records, target.acks)
    log = partition.log
    if (
        log is not None
        and isinstance(result, Appended)
        and result.last_offset < (partition.high_watermark if target.acks == ALL else log.end_offset)
    ):
        if partition.waiters:
            partition.wake()
        return target.success(result.base_offset, result.append_time_ms, log.start_offset)
    work = _Produce(ctx, target.acks)
    answer = work.appended(partition, target.index, result)
    topic = TopicProduceResponse(name=target.name, topic_id=target.topic_id, partition_responses=[answer])
    return work.answer([topic], target.timeout_ms)


class _Produce:
    """One request on its way through its partitions."""

    __slots__ = (
        "acks",
        "answers",
        "awaited",
        "by_id",
        "ctx",
        "deferred",
        "failed",
        "find",
        "moved",
        "refused",
        "touched",
    )

    def __init__(self, ctx: Context, acks: int, refused: Refused | None = None) -> None:
        self.ctx = ctx
        self.refused = refused  # None: the request names no transaction
        self.acks = acks
        self.by_id = ctx.api_version >= _TOPIC_IDS
        replicas = ctx.broker.replicas
        self.find = replicas.find_by_id if self.by_id else replicas.find
        self.touched: Partition | list[Partition] | None = None  # a list only where there are several
        self.awaited: list[Awaited] | None = None
        self.answers: list[PartitionProduceResponse] | None = None  # those that `awaited` decides on
        self.moved: list[tuple[PartitionProduceResponse, Partition]] | None = None
        self.deferred: list[tuple[Deferred, Partition, PartitionProduceResponse]] | None = None
        self.failed = ErrorCode.NONE  # the last error

    def topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        if self.ctx.broker.authorizer is not None and not self._allowed(topic):
            self.failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            parts = [_error(data.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for data in topic.partition_data]
        else:
            key = topic.topic_id if self.by_id else topic.name
            parts = [self._partition(key, data) for data in topic.partition_data]
        return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts)

    def _allowed(self, topic: TopicProduceData) -> bool:
        name = topic.name
        if self.by_id:
            name = self.ctx.broker.replicas.name_of(topic.topic_id) or ""
        return not name or self.ctx.authorize(Operation.WRITE, ResourceType.TOPIC, name)

    def _partition(self, key: str | bytes, data: PartitionProduceData) -> PartitionProduceResponse:
        partition = self.find(key, data.index)  # type: ignore[arg-type] # the key fits the method
        if partition is None:
            unknown_id = self.by_id and not self.ctx.broker.replicas.knows_id(key)  # type: ignore[arg-type]
            self.failed = ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _error(data.index, self.failed)
        records = data.records
        if not records:
            self.failed = ErrorCode.INVALID_RECORD
            return _error(data.index, self.failed, "a produce request carries one batch per partition")
        if self.ctx.api_version < _ZSTD_SINCE and _is_zstd(records):  # type: ignore[arg-type]
            self.failed = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            return _error(data.index, self.failed, f"zstd needs a produce request of v{_ZSTD_SINCE} or later")
        result: Appended | Rejected | Deferred
        if self.refused is None:
            result = partition.append(records, self.acks)  # type: ignore[arg-type] # never a FileRange when decoded
        elif (rejected := self.refused.get((key, data.index))) is not None:
            result = rejected
        else:
            result = partition.append(records, self.acks, in_transaction=True)  # type: ignore[arg-type]
        return self.appended(partition, data.index, result)

    def appended(
        self, partition: Partition, index: int, result: Appended | Rejected | Deferred
    ) -> PartitionProduceResponse:
        response = PartitionProduceResponse(index=index)
        if isinstance(result, asyncio.Future):
            if self.deferred is None:
                self.deferred = []
            self.deferred.append((result, partition, response))
        else:
            self._settle(partition, response, result)
        return response

    def _settle(self, partition: Partition, response: PartitionProduceResponse, result: Appended | Rejected) -> None:
        if isinstance(result, Rejected):
            self._rejected(partition, response, result)
            return
        log = partition.log
        if log is None:  # deferred, and gone since
            self._rejected(partition, response, Rejected(partition.error, ""))
            return
        response.base_offset = result.base_offset
        response.log_append_time_ms = result.append_time_ms
        response.log_start_offset = log.start_offset
        self._touch(partition)
        if result.last_offset >= (partition.high_watermark if self.acks == ALL else log.end_offset):
            self._await(partition, result.last_offset, response)

    def _rejected(self, partition: Partition, response: PartitionProduceResponse, rejected: Rejected) -> None:
        self.failed = response.error_code = rejected.code
        response.base_offset = -1
        response.error_message = rejected.message or rejected.code.text or None
        if rejected.records:
            response.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
                for index, why in rejected.records
            ]
        if rejected.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self.ctx.api_version >= _LEADER_HINTS:
            if self.moved is None:
                self.moved = []
            self.moved.append((response, partition))

    def _await(self, partition: Partition, last_offset: int, response: PartitionProduceResponse) -> None:
        if self.awaited is None or self.answers is None:
            self.awaited, self.answers = [], []
        self.awaited.append(Awaited(partition, last_offset))
        self.answers.append(response)

    def _touch(self, partition: Partition) -> None:
        if self.touched is None:
            self.touched = partition
        elif isinstance(self.touched, list):
            self.touched.append(partition)
        else:
            self.touched = [self.touched, partition]

    def answer(self, responses: list[TopicProduceResponse], timeout_ms: int) -> Answer:
        """All appends are made, but for the deferred ones."""
        self._wake()
        if self.deferred is not None:
            return self._answer_later(responses, timeout_ms)
        response = ProduceResponse(responses=responses, throttle_time_ms=self.ctx.throttle_time_ms)
        if self.acks == NOBODY:
            if self.failed:
                raise Hangup(self.failed, f"with acks=0, {self.failed.name} has no other answer")
            return None
        if self.moved:
            _add_leaders(self.ctx, response, self.moved)
        return self._wait(response, timeout_ms) if self.awaited else response

    async def _answer_later(self, responses: list[TopicProduceResponse], timeout_ms: int) -> Response:
        """A task, because an error may have to close the connection (acks=0) when nobody is there to be told."""
        deferred, self.deferred, self.touched = self.deferred, None, None
        for future, partition, response in deferred or ():
            self._settle(partition, response, await future)
        answer = self.answer(responses, timeout_ms)
        if isinstance(answer, Pending):
            done: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            answer.then(done.set_result)
            return await done
        return answer  # type: ignore[return-value] # None where none is wanted

    def _wake(self) -> None:
        """Tell the waiting fetches, after the last append: one that waits for several partitions is woken once."""
        touched = self.touched
        if touched is None:
            return
        if isinstance(touched, list):
            for partition in touched:
                partition.wake()
        elif touched.waiters:
            touched.wake()

    def _wait(self, response: ProduceResponse, timeout_ms: int) -> Pending:
        awaited, answers = self.awaited, self.answers
        assert awaited is not None and answers is not None
        pending = Pending()

        def done(awaited: Sequence[Awaited]) -> None:
            for one, answer in zip(awaited, answers, strict=True):
                if one.error:
                    answer.error_code = one.error
                    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
            pending.set(response)

        delayed = DelayedProduce(awaited, self.acks, done)
        if not delayed.hold(self.ctx.broker.purgatory, max(timeout_ms, 0) / 1000):
            delayed.complete(timed_out=True)
        pending.on_cancel(delayed.cancel)
        return pending


def _is_zstd(records: memoryview) -> bool:
    return len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK == _ZSTD


def _error(index: int, code: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, error_message=message or code.text or None
    )


def _add_leaders(
    ctx: Context, response: ProduceResponse, moved: list[tuple[PartitionProduceResponse, Partition]]
) -> None:
    from klamm.apis.leaders import addresses  # rare

    for answer, partition in moved:
        answer.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
    response.node_endpoints = [
        NodeEndpoint(node_id=a.node_id, host=a.host, port=a.port, rack=a.rack)
        for a in addresses(ctx.broker.image, ctx.listener, (partition.leader_id for _, partition in moved))
    ]


def _refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_error(data.index, code) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def on_error(request: ProduceRequest, version: int, code: ErrorCode) -> ProduceResponse | None:
    return None if request.acks == NOBODY else _refuse(request, code)


API = Api(ProduceRequest, handle, key=0, versions=(3, 13), advertised=(0, 13), on_error=on_error, shortcut=shortcut)
