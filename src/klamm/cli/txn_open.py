"""What is open in partitions, and whether anybody will ever end it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.client.admin.transactions import ProducerState, Transactions
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.client.metadata import Topic


class Open(NamedTuple):
    """A transaction that has records in a partition and no end."""

    place: TopicPartition
    producer: ProducerState


async def open_in(cluster: Cluster, topics: Iterable[Topic], partition: int | None = None) -> list[Open]:
    """What is open in these topics, or in one partition of each, by place. Partitions without a leader tell nothing."""
    led = [
        TopicPartition(topic.name, index)
        for topic in topics
        for index, one in topic.partitions.items()
        if one.leader in cluster.brokers and partition in (None, index)
    ]
    found = (await Transactions(cluster).describe_producers(led)).check()
    return [
        Open(place, producer)
        for place in sorted(found)
        for producer in sorted(found[place], key=lambda one: one.producer_id)
        if producer.txn_start_offset is not None
    ]


async def owners(cluster: Cluster, found: Sequence[Open]) -> dict[Open, str | None]:
    """By which transactional id each of them is under way; None: no coordinator will ever end it."""
    admin = Transactions(cluster)
    ids = sorted({one.producer.producer_id for one in found})
    listed = await admin.list_transactions(producer_ids=ids) if ids else []
    described = (await admin.describe_transactions(one.transactional_id for one in listed)).check()
    known = {(txn.producer_id, place): name for name, txn in described.items() for place in txn.partitions}
    return {one: known.get((one.producer.producer_id, one.place)) for one in found}
