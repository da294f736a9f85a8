"""What becomes of one record that was put into a batch."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from klamm.client.batches import Batch


class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int


class Delivery(NamedTuple):
    """A record's place in a batch that is on its way."""

    batch: Batch
    number: int

    async def result(self) -> RecordMetadata:
        """Where it landed, once it has. Raises what went wrong."""
        batch, number = self
        while (result := await asyncio.shield(batch.done)) is None:
            assert batch.halves is not None
            first, second = batch.halves
            batch, number = (first, number) if number < len(first.records) else (second, number - len(first.records))
        offset = result.base_offset if result.base_offset < 0 else result.base_offset + number
        timestamp = result.log_append_time_ms
        return RecordMetadata(
            result.topic, result.partition, offset, batch.records[number].timestamp if timestamp < 0 else timestamp
        )
