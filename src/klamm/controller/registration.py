"""A broker comes (back): its registration, and what becomes of the partitions of its earlier incarnation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from klamm.controller.commands import Decision
from klamm.controller.features import first_levels
from klamm.metadata.image import BrokerEndpoint, BrokerState, Image, broker_record
from klamm.metadata.records import MetadataRecord, PartitionChangeRecord


class BrokerRegistration(NamedTuple):
    """`clean` says that the broker's logs are as its last incarnation left them: it stopped in an orderly way."""

    id: int
    incarnation_id: bytes
    endpoints: Sequence[BrokerEndpoint]
    rack: str | None = None
    features: Sequence[tuple[str, int, int]] = ()
    clean: bool = False


def register_broker(image: Image, broker: BrokerRegistration, *, epoch: int) -> Decision[int]:
    """The reply is the broker epoch."""
    state = BrokerState(
        broker.id,
        epoch,
        broker.incarnation_id,
        tuple(broker.endpoints),
        broker.rack,
        tuple(broker.features),
        fenced=False,
    )
    records: list[MetadataRecord] = [broker_record(state), *first_levels(image, state)]
    if not broker.clean:
        records.extend(_new_leader_epochs(image, broker.id))
    return Decision(records, epoch)


def _new_leader_epochs(image: Image, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """After a crash a leader's log may be shorter than what consumers have read. A new leader epoch lets them notice
    (KIP-320), as a change of leader would."""
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.leader == broker_id:
                yield PartitionChangeRecord(
                    topic_id=topic.id,
                    partition_id=index,
                    leader=broker_id,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                )
