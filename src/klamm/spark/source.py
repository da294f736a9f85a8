"""`format("klamm")` for Spark: what its Python Data Source API asks of a source. A thin layer: decisions are made in
`options`, `offsets` and `planning`, which know nothing of Spark.

The readers live in a process of their own next to the driver; `read` runs in the workers of executors, to which the
reader comes by pickle. So nothing is opened before it is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from klamm.core.env.real import RealClock
from klamm.core.ids import TopicPartition
from klamm.spark.errors import BadOption, DataLoss
from klamm.spark.lookup import Lookup
from klamm.spark.offsets import Places, Position, Range, divide, spread
from klamm.spark.options import SinkOptions, SourceOptions, Texts
from klamm.spark.planning import Found, behind, missing, of_now, plan, receded, to_ask
from klamm.spark.reading import read
from klamm.spark.sink.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

log = logging.getLogger("klamm.spark")

COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADERS: Final = {"headers": "array<struct<key:string,value:binary>>"}


class KlammSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "klamm"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self._columns().items())

    def _columns(self) -> dict[str, str]:
        return COLUMNS | HEADERS if Texts(self.options).flag("includeHeaders", False) else COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check(schema)
        return BatchReader(SourceOptions.parse(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        try:
            self._check(schema)
            return StreamReader(SourceOptions.parse(self.options, streaming=True))
        except BadOption as error:
            return Refusal(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadOption("A topic cannot be overwritten.", 'Write with mode("append").')
        return BatchWriter(SinkOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(SinkOptions.parse(self.options), schema)

    def _check(self, schema: StructType) -> None:
        columns = self._columns()
        if {field.name: field.dataType.simpleString() for field in schema} != columns:
            raise BadOption(
                f"The columns of a topic are {', '.join(f'{name} {kind}' for name, kind in columns.items())}.",
                "Leave out .schema(...), and take what you want of them with select.",
            )


class Task(InputPartition):
    def __init__(self, one: Range) -> None:
        super().__init__((one.place.topic, one.place.partition, one.start, one.end))
        self.range = one


class _Reads:
    """What tasks do, batch or stream."""

    options: SourceOptions

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return read(partition.range, self.options) if isinstance(partition, Task) else iter(())

    def _tasks(self, ranges: Sequence[Range]) -> list[InputPartition]:
        return [Task(one) for one in divide(ranges, self.options.min_tasks, self.options.max_records)]


class BatchReader(_Reads, DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        lookup = Lookup(self.options)
        try:
            found = _existing(lookup, self.options)
            start = lookup.resolve(self.options.starting, found.places, starting=True)
            end = lookup.resolve(self.options.ending, found.places, starting=False)
            if self.options.ending.offsets is not None:
                end = self._within(end, lookup.latest(found.places))
        finally:
            lookup.close()
        for place in sorted(start.keys() & end.keys()):
            if start[place] > end[place]:
                raise BadOption(f"{place} would be read from offset {start[place]} on, before {end[place]}.")
        for place in sorted(found.places - (start.keys() & end.keys())):
            report(f"{place} was deleted a moment ago: what was in it is lost.", self.options)
        return self._tasks([Range(place, start[place], end[place]) for place in sorted(start.keys() & end.keys())])

    def _within(self, end: Places, latest: Places) -> dict[TopicPartition, int]:
        """Offsets that were given to end with may be where nothing is yet, or any more."""
        beyond = [place for place in sorted(end) if end[place] > latest.get(place, 0)]
        text = ", ".join(
            f"{place} before offset {end[place]}, and it ends at {latest.get(place, 0)}" for place in beyond
        )
        if beyond and self.options.fail_on_data_loss:
            raise BadOption(f"There would be to read: {text}.", "With failOnDataLoss=false, what there is is read.")
        if beyond:
            log.warning("There would be to read: %s. Only that is read, because failOnDataLoss is false.", text)
        return {place: min(offset, latest.get(place, 0)) for place, offset in end.items()}


class StreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._lookup: Lookup | None = None
        self._first: dict[str, Any] | None = None  # where the query begins, if it begins now
        self._target: Position | None = None  # where it ends, if it is to read what is available now
        self._available_now = False
        self._latest: Position | None = None
        self._last_ms: float | None = None  # when there was last a batch
        self._made: dict[str, Any] | None = None  # the last end of a batch that was thought out here

    def __getstate__(self) -> Mapping[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]

    @property
    def lookup(self) -> Lookup:
        if self._lookup is None:
            self._lookup = Lookup(self.options)
        return self._lookup

    def stop(self) -> None:
        if self._lookup is not None:
            self._lookup.close()

    # How far to go.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = _existing(self.lookup, self.options)
        at = self.lookup.resolve(self.options.starting, found.places, starting=True)
        self._first = Position(at, found.ids).to_json()
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """It says that there is one; `latestOffset` knows both."""
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.min_offsets is not None:
            return ReadMinRows(self.options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else self._latest.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._made = self._next(start, is_limited=not isinstance(limit, ReadAllAvailable))
        return self._made

    def _next(self, start: dict[str, Any], *, is_limited: bool) -> dict[str, Any]:
        begin = Position.from_json(start)
        latest = self._end(begin)
        if is_limited and self._is_too_little(begin, latest):
            return start
        at: Places = latest.at
        if is_limited and self.options.max_offsets is not None:
            new = self.lookup.earliest(to_ask(begin, latest))
            at = spread(self.options.max_offsets, {**begin.at, **new}, latest.at)
        if start == self._first:
            return Position(at, latest.ids, first=begin.at).to_json()
        self._first = None  # asked for again after a restart: the first batch is written down
        if at == begin.at and latest.ids == begin.ids:
            return start
        return Position(at, latest.ids).to_json()

    def _end(self, begin: Position) -> Position:
        if self._target is not None:
            return self._target
        found, latest = self._look(begin)
        self._latest = Position(latest, found.ids)
        if self._available_now:
            self._target = self._latest
        return self._latest

    def _look(self, begin: Position) -> tuple[Found, Places]:
        """Where partitions end. A broker that has just started, or just become leader, may not know all of it yet: what
        looks like a loss is looked at again."""
        for attempt in range(max(self.options.retries, 1)):
            if attempt:
                sleep(self.options.retry_interval_ms / 1000)
            found = self.lookup.partitions()
            latest = self.lookup.latest(found.places)
            short = receded(begin, latest, found.ids)
            if not short and begin.at.keys() <= latest.keys():
                return found, latest
        # Behind an open transaction, if what is not committed was read before: those records are still there.
        ends = self.lookup.log_ends(short)
        there = {place: begin.at[place] for place in short if ends.get(place, 0) >= begin.at[place]}
        return found, {**latest, **there}

    def _is_too_little(self, begin: Position, end: Position) -> bool:
        """Whether to wait for more, and not for too long. The first batch after a start waits for nothing."""
        if self.options.min_offsets is None or self._available_now:
            return False
        now_ms = RealClock().monotonic() * 1000
        if (
            self._last_ms is not None
            and now_ms - self._last_ms < self.options.max_delay_ms
            and behind(begin.at, end.at) < self.options.min_offsets
        ):
            return True
        self._last_ms = now_ms
        return False

    # What to read.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = Position.from_json(start), Position.from_json(end)
        if until.first is not None:
            begin = Position(until.first, until.ids)
        planned = plan(begin, until, self.lookup.earliest(to_ask(begin, until)))
        if end != self._made or self._target is not None:
            planned = of_now(planned, until, self.lookup.partitions())
        for loss in planned.losses:
            report(loss, self.options)
        return self._tasks(planned.ranges)


class Refusal(DataSourceStreamReader):
    """In place of a reader whose options cannot be used. Where `streamReader` itself raises, PySpark 4.3 stumbles over
    the reader that it does not have, and tells of that instead."""

    def __init__(self, error: BadOption) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._error

    def latestOffset(self, *_: object) -> dict[str, Any]:  # noqa: N802
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        raise self._error


def report(loss: str, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(loss)
    log.warning("%s The query goes on, because failOnDataLoss is false.", loss)


def _existing(lookup: Lookup, options: SourceOptions) -> Found:
    """The partitions to read. Topics that were named must be there."""
    found = lookup.partitions()
    which = options.which
    gone = missing([*which.names, *(place.topic for place in which.partitions)], found.places)
    lone = sorted(set(which.partitions) - found.places)
    if gone or lone:
        what = f"no topic {', '.join(gone)}" if gone else f"no partition {', '.join(map(str, lone))}"
        raise BadOption(f"There is {what}.", "Create it first, or read what there is with subscribePattern.")
    return found
