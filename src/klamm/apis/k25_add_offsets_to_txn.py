"""AddOffsetsToTxn (key 25), versions 0-4: the offsets of a group become part of a transaction.

Unusual: what becomes part of it is the partition of `__consumer_offsets` that the group is kept in, so that topic is
created first, should nobody have needed it yet. Clients of transaction protocol 2 do without this request.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, Pending, ResourceType, Response
from klamm.apis.fencing import fenced
from klamm.coordinator.machine import Producer
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_KNOWS_FENCED = 2


def handle(ctx: Context, request: AddOffsetsToTxnRequest) -> Answer:
    if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return _response(ctx, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return _response(ctx, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if ctx.broker.groups.has_topic:
        return _coordinate(ctx, request)
    return _create_first(ctx, request)


async def _create_first(ctx: Context, request: AddOffsetsToTxnRequest) -> Response:
    error = await ctx.broker.groups.ensure_topic()
    if error:
        return _response(ctx, error)
    answer = _coordinate(ctx, request)
    return await answer.wait() if isinstance(answer, Pending) else answer


def _coordinate(ctx: Context, request: AddOffsetsToTxnRequest) -> Response | Pending:
    groups = ctx.broker.groups
    offsets = TopicPartition(groups.topic.name, groups.partition_of(request.group_id))
    producer = Producer(request.producer_id, request.producer_epoch)

    def respond(code: ErrorCode) -> AddOffsetsToTxnResponse:
        return _response(ctx, code)

    return ctx.broker.transactions.call(
        request.transactional_id,
        lambda machine, reply, now: machine.add_partitions(
            reply, now, respond, request.transactional_id, producer, (offsets,)
        ),
        respond,
    )


def _response(ctx: Context, code: ErrorCode) -> AddOffsetsToTxnResponse:
    code = fenced(code, ctx.api_version, since=_KNOWS_FENCED)
    return AddOffsetsToTxnResponse(throttle_time_ms=ctx.throttle_time_ms, error_code=code)


def on_error(request: AddOffsetsToTxnRequest, version: int, code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)


API = Api(AddOffsetsToTxnRequest, handle, key=25, versions=(0, 4), on_error=on_error)
