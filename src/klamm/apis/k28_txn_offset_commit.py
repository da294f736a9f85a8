"""TxnOffsetCommit (key 28), versions 0-5: a group stores its positions inside a transaction.

Unusual: it is sent to the group's coordinator, but the transaction has one of its own, which is asked first whether the
partition that keeps the group's offsets is part of the transaction (KIP-890). Up to v4 the client has added it with
AddOffsetsToTxn; from v5 on it is added here. What the coordinator says holds until the next event: it cannot write the
transaction's marker before it has answered, so the commit follows within the answer. From v3 on a member of the group
says who it is (KIP-447); what an older client does not say is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from klamm.apis.api import Answer, Api, Context, Operation, Pending, ResourceType, Response
from klamm.coordinator.groups.offsets import Commit, Committer
from klamm.coordinator.machine import Now, Outcome, Producer, Reply
from klamm.coordinator.transactions.state import EPOCH_BUMP
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.transactions.machine import TxnMachine

_KNOWS_LOADING = 2
_KNOWS_ABORTABLE = 4
_ADDS_PARTITIONS = 5

_VERIFICATION = "transaction.partition.verification.enable"


class _Verdict(NamedTuple):
    """Of the transaction's coordinator."""

    code: ErrorCode


def handle(ctx: Context, request: TxnOffsetCommitRequest) -> Answer:
    denial = _denial(ctx, request)
    if denial:
        return _error(request, denial, ctx.throttle_time_ms)
    response = TxnOffsetCommitResponse(throttle_time_ms=ctx.throttle_time_ms)
    commits = _accepted(ctx, request, response)
    if not commits:
        return response

    def refuse(code: ErrorCode) -> TxnOffsetCommitResponse:
        for commit in commits:
            commit.answer.error_code = _for_client(ctx.api_version, code)
        return response

    def commit() -> Answer:
        return _commit(ctx, request, commits, response, refuse)

    def decided(verdict: _Verdict) -> Answer:
        return refuse(verdict.code) if verdict.code else commit()

    if not request.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    if not ctx.broker.groups.has_topic:  # then no partition of it may become part of a transaction
        return refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not _has_to_ask(ctx, request):
        return commit()
    verdict = _ask(ctx, request)
    return _after(verdict, decided) if isinstance(verdict, Pending) else decided(verdict)


def _denial(ctx: Context, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allowed = ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
    return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED


def _accepted(ctx: Context, request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse) -> list[Commit]:
    """What is to be committed, with its place in the response; all other partitions are answered there."""
    image, commits = ctx.broker.image, []
    for asked in request.topics:
        topic, code = image.topic(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not ctx.authorize(Operation.READ, ResourceType.TOPIC, asked.name):
            topic, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = []
        for partition in asked.partitions:
            answer = TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            partitions.append(answer)
            if topic is not None and 0 <= partition.partition_index < len(topic.partitions):
                answer.error_code = ErrorCode.NONE
                commits.append(Commit(topic.name, topic.id, partition, answer))
        response.topics.append(TxnOffsetCommitResponseTopic(name=asked.name, partitions=partitions))
    return commits


def _has_to_ask(ctx: Context, request: TxnOffsetCommitRequest) -> bool:
    """Not if the transaction has offsets in the group's partition already."""
    if ctx.api_version < _ADDS_PARTITIONS and not ctx.broker.options.get_bool(_VERIFICATION):
        return False
    groups = ctx.broker.groups
    partition = ctx.broker.replicas.find(groups.topic.name, groups.partition_of(request.group_id))
    if partition is None or partition.log is None:
        return True
    producer = partition.log.producers.get(request.producer_id)
    return producer is None or producer.epoch != request.producer_epoch or producer.txn_first_offset < 0


def _ask(ctx: Context, request: TxnOffsetCommitRequest) -> _Verdict | Pending:
    groups = ctx.broker.groups
    partition = TopicPartition(groups.topic.name, groups.partition_of(request.group_id))
    producer = Producer(request.producer_id, request.producer_epoch)
    transactional_id = request.transactional_id

    def verdict(code: ErrorCode) -> Any:
        return _Verdict(code)

    def decide(machine: TxnMachine, reply: Reply, now: Now) -> Outcome:
        if ctx.api_version >= _ADDS_PARTITIONS:
            return machine.add_partitions(
                reply, now, verdict, transactional_id, producer, [partition], version=EPOCH_BUMP
            )
        return machine.verify_partitions(
            reply, now, lambda verdicts: verdict(verdicts[partition]), transactional_id, producer, [partition]
        )

    return cast("_Verdict | Pending", ctx.broker.transactions.call(transactional_id, decide, verdict))


def _after(verdict: Pending, decided: Callable[[_Verdict], Answer]) -> Pending:
    """What `decided` makes of the verdict, when it is there."""
    whole = Pending(verdict.cancel)

    def arrived(code: Any) -> None:
        answer = decided(code)
        if isinstance(answer, Pending):
            whole.on_cancel(answer.cancel)
            answer.then(whole.set)
        else:
            whole.set(cast("Response", answer))

    verdict.then(arrived)
    return whole


def _commit(
    ctx: Context,
    request: TxnOffsetCommitRequest,
    commits: Sequence[Commit],
    response: TxnOffsetCommitResponse,
    refuse: Callable[[ErrorCode], TxnOffsetCommitResponse],
) -> Answer:
    who = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        ctx.api_version,
        Producer(request.producer_id, request.producer_epoch),
    )

    def decide(machine: GroupMachine, reply: Reply, now: Now) -> Outcome:
        return machine.offsets.commit(who, commits, response, reply, now)

    return ctx.broker.groups.call(request.group_id, decide, refuse)


def _for_client(version: int, code: ErrorCode) -> ErrorCode:
    """An error that this client knows what to do about."""
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _KNOWS_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED else code


def _error(request: TxnOffsetCommitRequest, code: ErrorCode, throttle_time_ms: int = 0) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=throttle_time_ms,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def on_error(request: TxnOffsetCommitRequest, version: int, code: ErrorCode) -> TxnOffsetCommitResponse:
    return _error(request, _for_client(version, code))


API = Api(TxnOffsetCommitRequest, handle, key=28, versions=(0, 5), on_error=on_error)
