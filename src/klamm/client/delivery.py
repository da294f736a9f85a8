"""What becomes of one record that was put into a batch."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from klamm.client.batches import Batch
from klamm.client.errors import ClientError


class RecordMetadata(NamedTuple):
    topic: str
    partition: int
    offset: int
    """-1 where the broker does not say."""
    timestamp: int


class Delivery(NamedTuple):
    """A record's place in a batch that is on its way. Await it to know where it landed; raises what went wrong."""

    batch: Batch
    number: int
    timestamp: int

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self.result().__await__()

    async def result(self) -> RecordMetadata:
        batch, number = self._place()
        while (outcome := batch.outcome) is None:
            await batch.wait()
            batch, number = self._place()
        if isinstance(outcome, ClientError):
            raise outcome.with_traceback(None)  # the same object for everybody: it must not collect their frames
        offset = outcome.base_offset
        stamped = outcome.log_append_time_ms
        return RecordMetadata(
            outcome.topic,
            outcome.partition,
            offset if offset < 0 else offset + number,
            self.timestamp if stamped < 0 else stamped,
        )

    def _place(self) -> tuple[Batch, int]:
        """Where in which batch it is now: batches may be cut in two on their way."""
        batch, number, _ = self
        while batch.halves is not None:
            first, second = batch.halves
            batch, number = (first, number) if number < first.count else (second, number - first.count)
        return batch, number

    @property
    def done(self) -> bool:
        """Whether awaiting it would not wait."""
        return self._place()[0].outcome is not None
