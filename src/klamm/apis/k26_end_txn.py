"""EndTxn (key 26), versions 0-5: commit or abort.

Unusual: answered when it is decided, which is before the markers are in all partitions. v5 is transaction protocol 2
(KIP-890): the producer goes on with the epoch, and maybe the id, that the answer has for it.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.apis.fencing import fenced
from klamm.coordinator.machine import Producer
from klamm.coordinator.transactions.machine import Ended
from klamm.coordinator.transactions.state import EPOCH_BUMP
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

_KNOWS_FENCED = 2
_BUMPS_EPOCHS = 5


def handle(ctx: Context, request: EndTxnRequest) -> Answer:
    if not ctx.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return _response(ctx, Ended(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    producer = Producer(request.producer_id, request.producer_epoch)
    version = EPOCH_BUMP if ctx.api_version >= _BUMPS_EPOCHS else 0

    def respond(ended: Ended) -> EndTxnResponse:
        return _response(ctx, ended)

    return ctx.broker.transactions.call(
        request.transactional_id,
        lambda machine, reply, now: machine.end(
            reply, now, respond, request.transactional_id, producer, committed=request.committed, version=version
        ),
        lambda code: _response(ctx, Ended(code)),
    )


def _response(ctx: Context, ended: Ended) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=ctx.throttle_time_ms,
        error_code=fenced(ended.error, ctx.api_version, since=_KNOWS_FENCED),
        producer_id=ended.producer.id,
        producer_epoch=ended.producer.epoch,
    )


def on_error(request: EndTxnRequest, version: int, code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)


API = Api(EndTxnRequest, handle, key=26, versions=(0, 5), on_error=on_error)
