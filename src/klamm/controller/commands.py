"""What every command of the controller returns, and the smallest of them.

A command is a function of the image and its arguments: no I/O, no clock; randomness comes in as an argument. It
decides and returns records; nothing has happened until the store has them.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from klamm.core.errors import ErrorCode
from klamm.metadata.image import Image
from klamm.metadata.records import MetadataRecord, ProducerIdsRecord

R = TypeVar("R")

PRODUCER_ID_BLOCK = 1000
"""Producer ids that a broker gets at a time, as in Kafka; at most so many are lost when it stops."""

_MAX_PRODUCER_ID = 2**63 - 1


class Decision(NamedTuple, Generic[R]):
    """The records that bring a change about, and what to answer once they are safe."""

    records: list[MetadataRecord]
    reply: R


class ProducerIdBlock(NamedTuple):
    """Ids from `first` on that nobody else will ever get; none if there is an error."""

    error: ErrorCode = ErrorCode.NONE
    first: int = 0
    size: int = 0


def allocate_producer_ids(image: Image, *, broker_id: int) -> Decision[ProducerIdBlock]:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return Decision([], ProducerIdBlock(ErrorCode.BROKER_ID_NOT_REGISTERED))
    first = image.next_producer_id
    following = first + PRODUCER_ID_BLOCK
    if following > _MAX_PRODUCER_ID:
        return Decision([], ProducerIdBlock(ErrorCode.UNKNOWN_SERVER_ERROR))
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker.epoch, next_producer_id=following)
    return Decision([record], ProducerIdBlock(first=first, size=PRODUCER_ID_BLOCK))
