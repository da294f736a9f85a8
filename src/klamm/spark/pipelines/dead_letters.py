"""Records that could not be parsed, as they were, into a topic for them, with the reason in their headers.

This is a query of its own for each input that can have them, exactly once as any other. So its topic is read and parsed
once more, beside the flows; Spark has one output for each query, and a flow may have state in between. It looks every
few seconds and not all the time, for these are in no hurry, and a batch costs more than the records in it. Then it
reads all there is, however much the flows read at a time: else it would fall behind them, for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

from klamm.spark.pipelines.inputs import source_options
from klamm.spark.pipelines.parsing import BAD, parsed, reason

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from klamm.spark.pipelines.model import Input, Pipeline

TRIGGER: Final = "5 seconds"
_LIMITS: Final = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "includeheaders")
"""Options of an input that are for its flows."""
REASON: Final = "klamm.reason"
TOPIC: Final = "klamm.topic"
PARTITION: Final = "klamm.partition"
OFFSET: Final = "klamm.offset"
TIMESTAMP: Final = "klamm.timestamp"
INPUT: Final = "klamm.input"
"""The headers, behind those that the record had. `klamm.timestamp` is the record's own, in milliseconds."""


def dead_letters(spark: SparkSession, pipeline: Pipeline, one: Input, group: str) -> DataFrame:
    """Key, value and headers of those records of an input that are in no view."""
    records = spark.readStream.format("klamm").options(**_options(pipeline, one, group)).load()
    rows = parsed(records, one).where(sf.col(BAD))
    added = {
        REASON: reason(one),
        TOPIC: sf.col("topic"),
        PARTITION: sf.col("partition"),
        OFFSET: sf.col("offset"),
        TIMESTAMP: sf.unix_millis("timestamp"),
        INPUT: sf.lit(f"{pipeline.name}.{one.name}"),
    }
    ours = sf.array(*(_header(name, value) for name, value in added.items()))
    had = sf.coalesce(sf.col("headers"), sf.array().cast("array<struct<key:string,value:binary>>"))
    return rows.select("key", "value", sf.concat(had, ours).alias("headers"))


def _options(pipeline: Pipeline, one: Input, group: str) -> dict[str, str]:
    found = source_options(pipeline, one, group)
    return {name: value for name, value in found.items() if name.lower() not in _LIMITS} | {"includeHeaders": "true"}


def _header(name: str, value: Column) -> Column:
    return sf.struct(sf.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
