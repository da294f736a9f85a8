"""DescribeTransactions (key 65), version 0: what the coordinator knows of transactional ids.

Topics that the client may not describe are left out.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.apis.gather import gathered
from klamm.coordinator.machine import Answer as Answered
from klamm.coordinator.machine import Now, Outcome, Reply
from klamm.coordinator.transactions.machine import TxnMachine
from klamm.coordinator.transactions.state import Transaction
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(ctx: Context, request: DescribeTransactionsRequest) -> Answer:
    return gathered(
        [_describe(ctx, transactional_id) for transactional_id in request.transactional_ids],
        lambda states: DescribeTransactionsResponse(
            throttle_time_ms=ctx.throttle_time_ms, transaction_states=list(states)
        ),
    )


def _describe(ctx: Context, transactional_id: str) -> Any:
    """A TransactionState, or where it will be."""
    if not ctx.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return _failed(transactional_id, ErrorCode.INVALID_REQUEST)

    def decide(machine: TxnMachine, reply: Reply, now: Now) -> Outcome:
        txn = machine.transactions.get(transactional_id)
        not_found = _failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return Outcome(answers=(Answered(reply, not_found if txn is None else _state(ctx, txn)),))

    return ctx.broker.transactions.call(
        transactional_id,
        decide,
        partial(_failed, transactional_id),  # type: ignore[arg-type] # a part of one
    )


def _state(ctx: Context, txn: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.label,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer.id,
        producer_epoch=txn.producer.epoch,
        topics=[
            TopicData(topic=topic, partitions=list(partitions))
            for topic, partitions in txn.partitions.items()
            if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )


def _failed(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=code)


def on_error(request: DescribeTransactionsRequest, version: int, code: ErrorCode) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=[_failed(one, code) for one in request.transactional_ids])


API = Api(DescribeTransactionsRequest, handle, key=65, versions=(0, 0), on_error=on_error)
