"""A pipeline as its files declare it: plain values, checked as far as that goes without Spark and without a broker.

Everything that can be missing in the files has its default here, and every path is whole: who runs a pipeline has
nothing to look up. `at("mode")` is the place in the files where a value stands, for messages. Must not import Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from klamm.spark.pipelines.mistakes import Place

InputFormat: TypeAlias = Literal["raw", "text", "json", "csv"]
TableFormat: TypeAlias = Literal["parquet", "csv", "json"]
OutputFormat: TypeAlias = Literal["json", "text", "csv", "raw"]
OutputKind: TypeAlias = Literal["topic", "parquet", "console"]
Mode: TypeAlias = Literal["append", "update", "complete"]
Starting: TypeAlias = Literal["earliest", "latest"]

KAFKA_COLUMNS: Final[Mapping[str, str]] = {
    "_key": "binary",
    "_topic": "string",
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
}
"""What every input's view has behind its own columns, of whatever format it is."""
RAW_COLUMNS: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
TEXT_COLUMNS: Final[Mapping[str, str]] = {"value": "string"}
"""The own columns of inputs that have no schema. Raw ones have `headers` too with the option `includeHeaders`."""
DEFAULT_BOOTSTRAP: Final = "localhost:9092"


@dataclass(frozen=True)
class Declared:
    """Something that stands in `pipeline.yml`."""

    name: str
    place: Place
    places: Mapping[str, Place] = field(repr=False, compare=False)
    """Of the values that were given, by the name of the field."""

    def at(self, field_name: str) -> Place:
        return self.places.get(field_name, self.place)


@dataclass(frozen=True)
class Input(Declared):
    """A streaming view of a topic, or of all topics whose whole name fits a pattern."""

    topic: str | None
    pattern: str | None
    """Exactly one of them is there."""
    format: InputFormat
    schema: str | None
    """DDL, where the format needs one: json and csv."""
    parse: Mapping[str, str]
    """More options of from_json or from_csv: `sep`, `timestampFormat`."""
    event_time: str
    """A column of the view; `_timestamp`, the record's own, if nothing else was said."""
    watermark: str | None
    starting: Starting
    dead_letters: str | None
    """The topic for records that cannot be parsed; None: there can be none, or they fail the query."""
    options: Mapping[str, str]
    """More of the source's: `maxOffsetsPerTrigger`."""

    @property
    def can_fail(self) -> bool:
        """Whether there can be records that cannot be parsed."""
        return self.format in ("json", "csv")


@dataclass(frozen=True)
class Table(Declared):
    """A static view of files."""

    path: str
    """Whole, or a URL."""
    format: TableFormat
    schema: str | None
    options: Mapping[str, str]
    """Of Spark's reader: `header`, `sep`."""


@dataclass(frozen=True)
class Output:
    kind: OutputKind
    place: Place
    places: Mapping[str, Place] = field(repr=False, compare=False)
    topic: str | None = None
    key: str | None = None
    """A column of the flow; it is also in the value if that is JSON."""
    format: OutputFormat = "json"
    """json: the value is an object of all columns, csv: a line of them. text: it is the only column besides the key.
    raw: the columns are those of `format("klamm")`: value, and if they are there key, headers, partition."""
    parquet: str | None = None
    """The folder, whole, or a URL."""
    partition_by: tuple[str, ...] = ()
    """Of a Parquet folder."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More of the sink's: `deliveryGuarantee` (topic), `compression` (parquet), `numRows`, `truncate` (console)."""

    def at(self, field_name: str) -> Place:
        return self.places.get(field_name, self.place)


@dataclass(frozen=True)
class Sql:
    file: str
    """Whole."""
    text: str
    place: Place
    """Of the file's first character, for messages."""


@dataclass(frozen=True)
class Python:
    file: str
    function: str
    arguments: tuple[str, ...]
    """Names of views, and `spark`; all of them are there."""
    place: Place
    """Of the function."""


@dataclass(frozen=True)
class Flow(Declared):
    """A view of views, and if it has an output a query."""

    code: Sql | Python
    output: Output | None
    mode: Mode
    trigger: str | None
    """How often ("10 seconds"); None: as soon as possible. Spark understands it as it is."""
    available_now: bool
    """The query ends when it has read what was there when it began."""
    checkpoint: str
    """The folder of this flow's query, whole, or a URL."""


@dataclass(frozen=True)
class Pipeline(Declared):
    folder: str
    """Whole."""
    bootstrap: str
    kafka: Mapping[str, str]
    """More options of the client, without the prefix `kafka.`."""
    spark: Mapping[str, str]
    checkpoints: str
    inputs: tuple[Input, ...]
    tables: tuple[Table, ...]
    flows: tuple[Flow, ...]
    """In the order of the file: each sees the inputs, the tables and the flows before it."""

    @property
    def client(self) -> dict[str, str]:
        """What a client of the cluster needs."""
        return {**self.kafka, "bootstrap.servers": self.bootstrap}

    @property
    def outputs(self) -> tuple[tuple[Flow, Output], ...]:
        return tuple((flow, flow.output) for flow in self.flows if flow.output is not None)
