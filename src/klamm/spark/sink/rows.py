"""Rows as Spark gives them to a sink, as columns that a producer takes. Pure.

The columns are those of Spark's Kafka sink: `value`, and if they are there `key`, `headers`, `topic`, `partition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klamm.records.record import Headers
from klamm.spark.errors import BadOption, SparkError

if TYPE_CHECKING:
    import pyarrow

_TYPES: Final = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def check(columns: Mapping[str, str], topic: str | None) -> None:
    """Whether rows with these columns (name and type, as Spark writes it) can be written; `BadOption` says why not."""
    if "value" not in columns:
        raise BadOption("A topic needs a column `value`, and the rows have none.", f"They have {', '.join(columns)}.")
    if topic is None and "topic" not in columns:
        raise BadOption("Nobody says which topic to write to.", "Give the option topic, or rows with a column `topic`.")
    for name, types in _TYPES.items():
        if name in columns and columns[name].lower() not in types and not (name == "topic" and topic is not None):
            raise BadOption(f"The column {name} is {columns[name]}, and must be {' or '.join(types)}.")


@dataclass(frozen=True)
class Rows:
    """Some rows for one topic, and one partition of it if they say which."""

    topic: str
    partition: int | None
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[Headers] | None


def split(batch: pyarrow.RecordBatch, topic: str | None) -> Iterator[Rows]:
    """In the order they have, as far as they go to the same topic and partition."""
    names = set(batch.schema.names)
    by_topic = topic is None
    by_partition = "partition" in names and batch.column("partition").null_count < batch.num_rows
    if not by_topic and not by_partition:
        yield _rows(batch, topic or "", None)
        return
    topics = batch.column("topic").to_pylist() if by_topic else [topic] * batch.num_rows
    partitions = batch.column("partition").to_pylist() if by_partition else [None] * batch.num_rows
    places: dict[tuple[str | None, int | None], list[int]] = {}
    for index, place in enumerate(zip(topics, partitions, strict=True)):
        places.setdefault(place, []).append(index)
    for (name, partition), indexes in places.items():
        if name is None:
            raise SparkError("A row has no topic: its column `topic` is null.", "Fill it, or give the option topic.")
        part = batch if len(indexes) == batch.num_rows else batch.take(_indexes(indexes))
        yield _rows(part, name, partition)


def _indexes(indexes: list[int]) -> Any:
    import pyarrow as pa

    return pa.array(indexes, pa.int32())


def _rows(batch: pyarrow.RecordBatch, topic: str, partition: int | None) -> Rows:
    names = set(batch.schema.names)
    return Rows(
        topic,
        partition,
        _bytes(batch.column("value")),
        _bytes(batch.column("key")) if "key" in names else None,
        _headers(batch.column("headers")) if "headers" in names else None,
    )


def _bytes(column: Any) -> list[bytes | None]:
    import pyarrow as pa

    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()  # of strings, the bytes are the same
    return found


def _headers(column: Any) -> list[Headers]:
    return [tuple(map(_header, row or ())) for row in column.to_pylist()]


def _header(header: dict[str, Any] | None) -> tuple[str, bytes | None]:
    key, value = (None, None) if header is None else header.values()  # by their place: names may be in any case
    if key is None:
        raise SparkError("A header of a row has no key: it is null.", "Leave it out; its value may be null.")
    return key, value
