"""The replicas of new partitions, where somebody chose them by hand: the checks, and the state that they begin with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klamm.core.errors import BrokerError, ErrorCode
from klamm.metadata.image import NO_LEADER, Image, PartitionState


def check_assignment(
    image: Image, assignment: Sequence[Sequence[int]], *, first: int, factor: int | None = None
) -> list[tuple[int, ...]]:
    """The replicas of partitions from number `first` on, each with `factor` of them (None: as many as the first one).
    BrokerError if they cannot be had."""
    placed = [tuple(replicas) for replicas in assignment]
    live = {broker.id for broker in image.live_brokers()}
    for index, replicas in enumerate(placed, first):
        check_replicas(image, f"partition {index}", replicas)
        wanted = len(placed[0]) if factor is None else factor
        if len(replicas) != wanted:
            raise _refused(f"partition {index} has {len(replicas)} replicas, where the others have {wanted}")
        if live.isdisjoint(replicas):
            raise _refused(f"none of the brokers of partition {index} is up: {list(replicas)}")
    return placed


def check_replicas(image: Image, name: str, replicas: Sequence[int]) -> None:
    """Brokers that are there, at least one, none twice; else BrokerError."""
    unknown = [broker for broker in replicas if broker not in image.brokers]
    if not replicas:
        raise _refused(f"{name} has no replicas")
    if len(set(replicas)) != len(replicas):
        raise _refused(f"{name} names a broker twice: {list(replicas)}")
    if unknown:
        raise _refused(f"{name} names brokers that are not there: {unknown}")


def new_partitions(image: Image, assignment: Sequence[tuple[int, ...]]) -> Iterator[PartitionState]:
    """In sync are the replicas on brokers that are up; the first of them leads."""
    live = {broker.id for broker in image.live_brokers()}
    for replicas in assignment:
        isr = replicas if live.issuperset(replicas) else tuple(broker for broker in replicas if broker in live)
        yield PartitionState(replicas, isr, isr[0] if isr else NO_LEADER, leader_epoch=0, partition_epoch=0)


def _refused(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
