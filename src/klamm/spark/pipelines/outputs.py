"""What flows write: rows for a topic, a folder of Parquet files, or the console; and the query that does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from klamm.spark.errors import SparkError
from klamm.spark.pipelines.model import Output
from klamm.spark.pipelines.said import plain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

KEY: Final = "key"
VALUE: Final = "value"
_QUERY: Final = "sql.streaming.queryId"


class BadOutput(SparkError):
    """The rows of a flow do not go into its output."""


def records(rows: DataFrame, output: Output) -> DataFrame:
    """Rows as a topic takes them, in the format of the output."""
    if output.format == "raw":
        return rows
    key = [] if output.key is None else [_key(rows, output.key).alias(KEY)]
    return rows.select(*key, _value(rows, output).alias(VALUE))


def _key(rows: DataFrame, name: str) -> Column:
    column = sf.col(_quoted(name))
    kind: DataType = rows.schema[name].dataType
    if isinstance(kind, StringType | BinaryType):
        return column
    return sf.to_json(column) if isinstance(kind, StructType | MapType) else column.cast("string")


def _value(rows: DataFrame, output: Output) -> Column:
    names = rows.columns
    whole = sf.struct(*(sf.col(_quoted(name)) for name in names))
    if output.format == "json":
        return sf.to_json(whole)
    if output.format == "csv":
        return sf.to_csv(whole)
    others = [name for name in names if name != output.key] or names
    if len(others) != 1:
        raise BadOutput(
            f"A text is one column, and there are {', '.join(others)}.", "Select one, or use the format json."
        )
    kind = rows.schema[others[0]].dataType
    column = sf.col(_quoted(others[0]))
    return column if isinstance(kind, StringType | BinaryType) else column.cast("string")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def writer(rows: DataFrame, output: Output, mode: str, client: dict[str, str], name: str) -> DataStreamWriter:
    """Of a query that writes these rows; without trigger, name and checkpoint."""
    if output.kind == "topic":
        return _to_topic(records(rows, output), output, mode, client, name)
    found = rows.writeStream.outputMode(mode).options(**output.options)
    if output.kind == "parquet":
        assert output.parquet is not None
        found = found.format("parquet").option("path", output.parquet)
        return found.partitionBy(*output.partition_by) if output.partition_by else found
    return found.format("console")


def _to_topic(rows: DataFrame, output: Output, mode: str, client: dict[str, str], name: str) -> DataStreamWriter:
    options = {f"kafka.{option}": value for option, value in client.items()}
    assert output.topic is not None
    options |= {"topic": output.topic, **output.options}
    if mode == "append":
        return rows.writeStream.outputMode(mode).format("klamm").options(**options)
    return rows.writeStream.outputMode(mode).foreachBatch(_write_batch(options, name))


def _write_batch(options: dict[str, str], name: str) -> Callable[[DataFrame, int], None]:
    """For modes that Spark does not let a sink in Python have. The query's id stands in its checkpoint, and the number
    of a batch in its log: a batch that is done again after a crash has both as before, and is not written twice."""
    is_once = options.get("deliveryGuarantee", "exactly-once").strip().lower() == "exactly-once"

    def write(batch: DataFrame, number: int) -> None:
        given = options
        if is_once:
            query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY)
            if query is None:
                raise BadOutput("Spark does not say which query this is.", "Use deliveryGuarantee=at-least-once.")
            given = {**options, "txnAppId": f"{name}-{query}", "txnVersion": str(number)}
        try:
            batch.write.format("klamm").mode("append").options(**given).save()
        except (PySparkException, Py4JError) as error:
            # With all traces in it, it would be too long for the expression by which Spark tells a failure from a stop.
            raise BadOutput(plain(str(error))) from None

    return write
