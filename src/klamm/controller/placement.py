"""Which brokers keep the replicas of a new topic's partitions; the first of them leads.

The aims, in this order: no broker twice in a partition; as many racks as there are; leaders spread evenly; the
replicas that stand in for one leader spread over all others, so that its failure is shared out. Kafka's placement has
the same aims. Where to begin is random, else topics of one partition would all land on the same broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random  # noqa: TID251 - the type; the instance comes in

from klamm.metadata.image import BrokerState


def place(brokers: Sequence[BrokerState], partitions: int, replicas: int, rng: Random) -> list[tuple[int, ...]]:
    """The replicas of each partition. There must be as many brokers as replicas at least."""
    assert 0 < replicas <= len(brokers)
    if len(brokers) == 1:
        return [(brokers[0].id,)] * partitions
    racks = _racks(brokers)
    order = _interleaved(racks, rng)
    start = rng.randrange(len(order))
    rack_of = {broker.id: rack for rack, members in enumerate(racks) for broker in members}
    return [_replicas(order, rack_of, start + index, index // len(order), replicas) for index in range(partitions)]


def _racks(brokers: Sequence[BrokerState]) -> list[list[BrokerState]]:
    """Brokers by rack, in the order of ids. Brokers without a rack are one each, as nothing is known of them."""
    racks: dict[str, list[BrokerState]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        key = f"rack {broker.rack}" if broker.rack is not None else f"broker {broker.id}"
        racks.setdefault(key, []).append(broker)
    return list(racks.values())


def _interleaved(racks: list[list[BrokerState]], rng: Random) -> list[int]:
    """All broker ids, neighbours from different racks as long as there are any."""
    columns = [[broker.id for broker in rack] for rack in racks]
    for column in columns:
        rng.shuffle(column)
    rng.shuffle(columns)
    order: list[int] = []
    while columns:
        order.extend(column.pop() for column in columns)
        columns = [column for column in columns if column]
    return order


def _replicas(order: list[int], rack_of: dict[int, int], leader_at: int, turn: int, count: int) -> tuple[int, ...]:
    """One partition: the leader's turn comes by its number; the others follow, from a place that moves each turn."""
    size = len(order)
    leader = order[leader_at % size]
    others = [order[(leader_at + 1 + (turn + step) % (size - 1)) % size] for step in range(size - 1)]
    chosen = [leader]
    racks = {rack_of[leader]}
    for broker in others:
        if len(chosen) < count and rack_of[broker] not in racks:
            chosen.append(broker)
            racks.add(rack_of[broker])
    for broker in others:
        if len(chosen) < count and broker not in chosen:
            chosen.append(broker)
    return tuple(chosen)
