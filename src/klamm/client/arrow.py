"""Records as Arrow record batches, with the columns of Spark's Kafka source.

| column | type | |
|---|---|---|
| key, value | binary | null where the record has none |
| topic | string | |
| partition | int32 | |
| offset | int64 | |
| timestamp | timestamp[us, UTC] | |
| timestampType | int32 | 0: when the record was made, 1: when it was appended |
| headers | list<struct<key: string, value: binary>> | if asked for; null where the record has none, as Spark has it |

The kernel writes the columns straight from what the broker sent; pyarrow gets the memory as it is. It is the extra
`klamm[arrow]` and imported only here, when it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from klamm.client.errors import ClientError
from klamm.client.pouring import Pouring
from klamm.records.kernel import Table

if TYPE_CHECKING:
    import pyarrow

    from klamm.client.cursor import Rest
    from klamm.records.columnar import Arrays

MAX_ROWS: Final = 1 << 16
"""How many rows a record batch has at most, unless told."""
MAX_BYTES: Final = 64 << 20
"""A record batch ends with the batch of the log that takes it over so many bytes of keys, values and headers. Its
columns have room for 2 GiB; a batch of the log is at most `MAX_DECOMPRESSED_BYTES`."""


class NoArrow(ClientError):
    """pyarrow is not installed."""


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise NoArrow("Arrow record batches need pyarrow.", "Install it: pip install pyarrow.") from error
    return pyarrow


def schema(*, headers: bool = False) -> pyarrow.Schema:
    """The schema of all record batches, with or without the column of headers."""
    pa = _pyarrow()
    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
    if headers:
        fields.append(("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))))
    return pa.schema(fields)


def batches(
    chunks: Iterable[Rest], *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES, headers: bool = False
) -> Iterator[pyarrow.RecordBatch]:
    """What `Consumer.undecoded` gives, as record batches: each of `max_rows` rows, or fewer if these have `max_bytes`,
    the last one of what is left. An error comes behind the record batch with everything before it."""
    if max_rows < 1 or max_bytes < 1:
        raise ValueError(f"record batches of {max_rows} rows and {max_bytes} bytes would never end")
    columns = Columns(headers=headers)
    for chunk in chunks:
        pouring = Pouring(chunk)
        while not pouring.is_empty:
            try:
                pouring.pour(columns.table, max_rows, max_bytes)
            except ClientError:
                if not columns.table.rows:
                    raise
                yield columns.take()  # what was read before; then it comes again
            if columns.table.rows >= max_rows or columns.table.size >= max_bytes:
                yield columns.take()
    if columns.table.rows:
        yield columns.take()


class Columns:
    """A table to pour records into, and record batches out of it."""

    def __init__(self, *, headers: bool = False) -> None:
        self.schema = schema(headers=headers)
        self.table = Table(headers=headers)
        self._pa = _pyarrow()

    def take(self) -> pyarrow.RecordBatch:
        """All that is in the table, which is empty then. Nothing is copied."""
        found = self.table.take()
        columns = self._plain(found)
        if len(self.schema) > len(columns):
            columns.append(self._headers(found))
        return self._pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _plain(self, found: Arrays) -> list[Any]:
        types, rows = self.schema.types, found.rows
        buffers: list[tuple[bytearray | None, int, list[bytearray]]] = [
            (found.key_validity, found.key_nulls, [found.key_bounds, found.key_data]),
            (found.value_validity, found.value_nulls, [found.value_bounds, found.value_data]),
            (None, 0, [found.topic_bounds, found.topic_data]),
            (None, 0, [found.partitions]),
            (None, 0, [found.offsets]),
            (None, 0, [found.timestamps]),
            (None, 0, [found.timestamp_types]),
        ]
        return [
            self._array(of, rows, validity, nulls, data)
            for of, (validity, nulls, data) in zip(types[: len(buffers)], buffers, strict=True)
        ]

    def _headers(self, found: Arrays) -> Any:
        of = self.schema.field("headers").type
        struct = of.value_type
        children = [
            self._array(struct[0].type, found.headers, None, 0, [found.header_key_bounds, found.header_key_data]),
            self._array(
                struct[1].type,
                found.headers,
                found.header_value_validity,
                found.header_value_nulls,
                [found.header_value_bounds, found.header_value_data],
            ),
        ]
        pairs = self._pa.Array.from_buffers(struct, found.headers, [None], 0, children=children)
        lists = [self._buffer(found.headers_validity, found.headers_nulls), self._pa.py_buffer(found.headers_bounds)]
        return self._pa.Array.from_buffers(of, found.rows, lists, found.headers_nulls, children=[pairs])

    def _array(self, of: Any, rows: int, validity: bytearray | None, nulls: int, data: list[bytearray]) -> Any:
        buffers = [self._buffer(validity, nulls), *map(self._pa.py_buffer, data)]
        return self._pa.Array.from_buffers(of, rows, buffers, nulls)

    def _buffer(self, validity: bytearray | None, nulls: int) -> Any:
        """Without nulls there need be no bitmap."""
        return self._pa.py_buffer(validity) if validity is not None and nulls else None
