"""InitProducerId (key 22), versions 0-6: an id for an idempotent producer, or a new epoch for a transactional one.

Unusual: v6 exists only for two-phase commit (KIP-939), and clients take its presence for leave to use it; so it is
there only where `transaction.two.phase.commit.enable` allows that. A transactional producer that comes while its
earlier transaction is open gets CONCURRENT_TRANSACTIONS: that transaction is aborted, and the client tries again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, Pending, ResourceType, Response
from klamm.core.errors import BrokerError, ErrorCode
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from klamm.coordinator.transactions.machine import Initialized

_KNOWS_FENCED = 4
_TWO_PHASE_COMMIT = 6


def handle(ctx: Context, request: InitProducerIdRequest) -> Answer:
    transactional_id = request.transactional_id
    denied = _denied(ctx, request)
    if denied:
        return _error(ctx, denied)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error(ctx, ErrorCode.INVALID_REQUEST)
    if transactional_id is None:
        # Without a transactional id a new producer id is always right, also for one that asks for its next epoch.
        return _new_id(ctx)
    if not transactional_id:
        return _error(ctx, ErrorCode.INVALID_REQUEST)  # an empty one is nobody's
    return _initialize(ctx, request)


def _denied(ctx: Context, request: InitProducerIdRequest) -> ErrorCode:
    transactional_id = request.transactional_id
    if transactional_id is None:
        allowed = ctx.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
        return ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    operations = [Operation.WRITE, Operation.TWO_PHASE_COMMIT] if request.enable2_pc else [Operation.WRITE]
    if all(ctx.authorize(operation, ResourceType.TRANSACTIONAL_ID, transactional_id) for operation in operations):
        return ErrorCode.NONE
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def _new_id(ctx: Context) -> InitProducerIdResponse:
    try:
        producer_id = await ctx.broker.producer_ids.take()
    except BrokerError:
        # What Kafka answers while it waits for a block: every client tries again, whatever it makes of other errors.
        return _error(ctx, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(throttle_time_ms=ctx.throttle_time_ms, producer_id=producer_id, producer_epoch=0)


def _initialize(ctx: Context, request: InitProducerIdRequest) -> Answer:
    """The coordinator cannot wait for a producer id, so there has to be one at hand when it is asked."""
    if ctx.broker.producer_ids.at_hand:
        return _coordinate(ctx, request)
    return _initialize_later(ctx, request)


async def _initialize_later(ctx: Context, request: InitProducerIdRequest) -> Response:
    try:
        await ctx.broker.producer_ids.have()
    except BrokerError:
        return _error(ctx, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer = _coordinate(ctx, request)
    return await answer.wait() if isinstance(answer, Pending) else answer


def _coordinate(ctx: Context, request: InitProducerIdRequest) -> Response | Pending:
    from klamm.coordinator.machine import Producer
    from klamm.coordinator.transactions.decisions import Init

    transactional_id = request.transactional_id
    assert transactional_id is not None
    expected = None if request.producer_id == -1 else Producer(request.producer_id, request.producer_epoch)
    init = Init(transactional_id, request.transaction_timeout_ms, expected, request.keep_prepared_txn)

    def respond(result: Initialized) -> InitProducerIdResponse:
        if result.error:
            return _error(ctx, result.error)
        return InitProducerIdResponse(
            throttle_time_ms=ctx.throttle_time_ms,
            producer_id=result.producer.id,
            producer_epoch=result.producer.epoch,
            ongoing_txn_producer_id=result.ongoing.id,
            ongoing_txn_producer_epoch=result.ongoing.epoch,
        )

    return ctx.broker.transactions.call(
        transactional_id,
        lambda machine, reply, now: machine.init_producer_id(
            reply, now, respond, init, two_phase_commit=request.enable2_pc
        ),
        lambda code: _error(ctx, code),
    )


def _error(ctx: Context, code: ErrorCode) -> InitProducerIdResponse:
    response = on_error(None, ctx.api_version, code)
    response.throttle_time_ms = ctx.throttle_time_ms
    return response


def on_error(request: InitProducerIdRequest | None, version: int, code: ErrorCode) -> InitProducerIdResponse:
    if code == ErrorCode.PRODUCER_FENCED and version < _KNOWS_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


API = Api(
    InitProducerIdRequest,
    handle,
    key=22,
    versions=(0, 6),
    on_error=on_error,
    gate=(_TWO_PHASE_COMMIT, "transaction.two.phase.commit.enable"),
)
