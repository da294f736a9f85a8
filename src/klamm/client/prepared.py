"""Transactions that one writes and another ends: the two phases of a commit that is decided elsewhere (KIP-939)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klamm.client.coordinators import Coordinator, Kind
from klamm.client.errors import BrokerSaid
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k26_end_txn import EndTxnRequest

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster

LAST_END_WITHOUT_EPOCH = 4
FEATURE = "transaction.version"
IMPLICIT_LEVEL = 2


class PreparedTransaction(NamedTuple):
    """All of it is written, and it is open. Whoever has this can end it. The producer id is -1 if nothing was written:
    there is nothing to end then, and nobody has to."""

    transactional_id: str
    producer_id: int
    epoch: int


async def end(cluster: Cluster, prepared: PreparedTransaction, *, committed: bool) -> None:
    """Does no harm if it was ended in the same way before. `BrokerSaid` if it was ended in the other way, or if the id
    is in use for something else by now."""
    if prepared.producer_id < 0:
        return
    coordinator = Coordinator(
        cluster, Kind.TRANSACTION, prepared.transactional_id, cluster.config.default_api_timeout_ms
    )
    implicit = (await cluster.connection()).versions.features.get(FEATURE, 0) >= IMPLICIT_LEVEL
    request = EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.epoch,
        committed=committed,
    )
    _, code = await coordinator.ask(
        request, lambda answer: int(answer.error_code), at_most=None if implicit else LAST_END_WITHOUT_EPOCH
    )
    if code is not ErrorCode.NONE:
        raise BrokerSaid(code, prepared.transactional_id)
