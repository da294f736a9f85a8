"""InitProducerId (key 22), versions 0-5: an id for an idempotent producer.

Unusual: v6 exists only for two-phase commit (KIP-939), and clients take its presence for leave to use it. There are no
transactions yet: with a transactional id the answer is COORDINATOR_NOT_AVAILABLE, as FindCoordinator's is.
"""

from __future__ import annotations

from klamm.apis.api import CLUSTER_NAME, Answer, Api, Context, Operation, ResourceType
from klamm.core.errors import BrokerError, ErrorCode
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def _new_id(ctx: Context) -> InitProducerIdResponse:
    try:
        producer_id = await ctx.broker.producer_ids.take()
    except BrokerError:
        # What Kafka answers while it waits for a block: every client tries again, whatever it makes of other errors.
        return _error(ctx, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(throttle_time_ms=ctx.throttle_time_ms, producer_id=producer_id, producer_epoch=0)


def handle(ctx: Context, request: InitProducerIdRequest) -> Answer:
    if request.transactional_id is not None:
        if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return _error(ctx, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        # An empty one is nobody's: Kafka refuses it as well.
        return _error(
            ctx, ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
    if not ctx.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        return _error(ctx, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error(ctx, ErrorCode.INVALID_REQUEST)
    # Without a transactional id a new producer id is always right, also for one that asks for its next epoch.
    return _new_id(ctx)


def _error(ctx: Context, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=ctx.throttle_time_ms, error_code=code, producer_epoch=-1)


def on_error(request: InitProducerIdRequest, version: int, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


API = Api(InitProducerIdRequest, handle, key=22, versions=(0, 5), on_error=on_error)
