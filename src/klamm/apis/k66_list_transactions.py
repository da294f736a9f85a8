"""ListTransactions (key 66), versions 0-2: the transactional ids that this broker coordinates.

Unusual: v1 asks for those that have been going on for long (KIP-994), v2 for ids that match an expression, which
is one of RE2's here: Java's could keep the broker busy for ever. States that nobody knows are named in the answer.
"""

from __future__ import annotations

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.coordinator.transactions.listing import Filter, selecting, states_by_name
from klamm.core import regex
from klamm.core.errors import ErrorCode
from klamm.core.slices import in_slices
from klamm.wire.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle(ctx: Context, request: ListTransactionsRequest) -> Answer:
    pattern = regex.compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None
    if isinstance(pattern, str):
        return on_error(request, ctx.api_version, ErrorCode.INVALID_REGULAR_EXPRESSION)
    if ctx.broker.transactions.loading:
        return on_error(request, ctx.api_version, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states, unknown = states_by_name(request.state_filters)
    wanted = Filter(states, frozenset(request.producer_id_filters), request.duration_filter, pattern)
    return _list(ctx, wanted, unknown)


async def _list(ctx: Context, wanted: Filter, unknown: list[str]) -> ListTransactionsResponse:
    """There may be very many: all of this moment, looked at bit by bit."""
    every = [txn for _, machine in ctx.broker.transactions.shards() for txn in machine.transactions.values()]
    found = await in_slices(selecting(every, wanted, ctx.broker.env.clock.time_ms()))
    return ListTransactionsResponse(
        throttle_time_ms=ctx.throttle_time_ms,
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=txn.transactional_id,
                producer_id=txn.producer.id,
                transaction_state=txn.state.label,
            )
            for txn in found
            if ctx.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, txn.transactional_id)
        ],
    )


def on_error(request: ListTransactionsRequest, version: int, code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)


API = Api(ListTransactionsRequest, handle, key=66, versions=(0, 2), on_error=on_error)
