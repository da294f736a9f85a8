"""What a task does: the records of one range of a partition, as Arrow record batches.

It runs in Spark's Python workers, which serve one task after another: a task's consumer is kept for the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from klamm.blocking import Consumer
from klamm.client.errors import BrokerSaid, OffsetOutOfRange
from klamm.spark.errors import DataLoss, NothingCame, is_gone
from klamm.spark.kept import Kept
from klamm.spark.offsets import Range
from klamm.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("klamm.spark")

MAX_ROWS: Final = 1 << 14
"""Of a record batch. More are no faster (2,000 to 65,000 were tried), and it is in memory as a whole, here and in the
executor."""
_PATIENCE_MS: Final = 1000
"""How often to look whether anything is wrong while nothing comes."""

_DEFAULTS: Final = {
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
    "max.partition.fetch.bytes": str(2 << 20),
    "fetch.max.bytes": str(32 << 20),
    "fetch.max.wait.ms": "5",
}
"""A task has one partition to itself. What it is to read is there, so brokers need not wait for more. But asked for
what comes behind the range they do, and the next task of this worker with them: so not for long. And not for much,
since what comes from behind the range is thrown away. What was given as `kafka.*` comes before."""


def _open(config: Mapping[str, str]) -> Consumer:
    consumer = Consumer(config={**_DEFAULTS, **config})
    consumer.start()
    return consumer


_MAX_SPARE: Final = 8
"""A worker of a long-lived session may see queries of many clusters."""

consumers: Final = Kept(_open, _MAX_SPARE)


def read(one: Range, options: SourceOptions) -> Iterator[pyarrow.RecordBatch]:
    """All records of the range that are there. What is gone meanwhile raises `DataLoss`, or is left out."""
    with consumers.lend(options.client) as consumer:
        place = one.place
        consumer.assign([place])
        try:
            consumer.seek(place, one.start)
            yield from _from(consumer, one, options)
        finally:
            consumer.assign([])


def _from(consumer: Consumer, one: Range, options: SourceOptions) -> Iterator[pyarrow.RecordBatch]:
    at, silent_ms = one.start, 0
    while at < one.end:
        try:
            for batch in consumer.arrow(
                max_rows=MAX_ROWS,
                headers=options.headers,
                timeout_ms=min(_PATIENCE_MS, options.poll_timeout_ms),
                until={one.place: one.end},
            ):
                wanted = _before(batch, one.end)
                if wanted.num_rows:
                    yield wanted
        except OffsetOutOfRange as error:
            at, silent_ms = _skip(consumer, one, error.offset, options), 0
            continue
        before, at = at, consumer.position(one.place)
        silent_ms = silent_ms + _PATIENCE_MS if at == before else 0
        if at < one.end and silent_ms:
            at = _look(consumer, one, at, silent_ms, options)


def _before(batch: pyarrow.RecordBatch, end: int) -> pyarrow.RecordBatch:
    """Without the records from `end` on. Offsets only grow."""
    offsets = batch.column("offset")
    if offsets[-1].as_py() < end:
        return batch
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) // 2
        if offsets[middle].as_py() < end:
            low = middle + 1
        else:
            high = middle
    return batch.slice(0, low)


def _skip(consumer: Consumer, one: Range, offset: int, options: SourceOptions) -> int:
    """Go on where there are records again."""
    first = consumer.beginning_offsets(one.place)[one.place]
    last = min(first, one.end) if first > offset else one.end
    _lose(f"{one.place}: records from offset {offset} on, before {last}, are no longer there", options)
    if last < one.end:
        consumer.seek(one.place, last)
    return last


def _look(consumer: Consumer, one: Range, at: int, silent_ms: int, options: SourceOptions) -> int:
    """Why nothing comes: the topic may have been deleted. Where to go on."""
    if _is_gone(consumer, one):
        _lose(f"{one.place} is gone: records from offset {at} on, before {one.end}, are lost", options)
        return one.end
    if silent_ms >= options.poll_timeout_ms:
        raise NothingCame(
            f"{one.place} gives no records from offset {at} on, and there should be some up to {one.end}.",
            "Its brokers cannot be reached from here (the log of this executor says why), or are slow: then raise "
            "kafkaConsumer.pollTimeoutMs.",
        )
    return at


def _is_gone(consumer: Consumer, one: Range) -> bool:
    try:
        return one.place.partition not in consumer.partitions_for(one.place.topic)
    except BrokerSaid as error:
        if is_gone(error):
            return True
        raise


def _lose(text: str, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(f"{text}: they were deleted before they could be read.")
    log.warning("%s. They are left out, because failOnDataLoss is false.", text)
