"""Joins the transaction coordinator to WriteTxnMarkers: what it decides is written by the handler of that API.

There is only this broker to send markers to; one in a cluster will send the others a request. What this needs is
imported with the first transaction that ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.apis.api import Broker

if TYPE_CHECKING:
    from klamm.apis.api import Pending
    from klamm.wire.messages.k27_write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


def connect(broker: Broker) -> None:
    """Before the coordinators start."""

    def first(partition: int, effect: object) -> None:
        from klamm.apis import k27_write_txn_markers
        from klamm.coordinator.transactions.markers import MarkerWriter

        def send(leader: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | Pending:
            assert leader == broker.node_id, "there are no other brokers yet"
            return k27_write_txn_markers.write(broker, request)

        writer = MarkerWriter(broker.transactions, lambda: broker.image, send)
        broker.transactions.on_effect = writer.on_effect
        writer.on_effect(partition, effect)

    broker.transactions.on_effect = first
