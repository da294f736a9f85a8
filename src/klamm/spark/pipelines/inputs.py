"""Inputs of pipelines as streaming DataFrames: a topic, read and parsed.

A record that cannot be parsed is in no view: it is a dead letter, or fails the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from klamm.spark.pipelines.parsing import BAD, PARSED, parsed, reason, schema_of
from klamm.spark.pipelines.texts import whole_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from klamm.spark.pipelines.model import Input, Pipeline, Table


def source_options(pipeline: Pipeline, one: Input, group: str) -> dict[str, str]:
    """Of the source. `group` is where the progress of the query that reads is shown."""
    options = {f"kafka.{name}": value for name, value in pipeline.client.items()}
    options |= {"kafka.group.id": group, "startingOffsets": one.starting, **one.options}
    if one.topic is not None:
        options["subscribe"] = one.topic
    elif one.pattern is not None:
        options["subscribePattern"] = whole_names(one.pattern)
    return options


def view(spark: SparkSession, pipeline: Pipeline, one: Input, group: str) -> DataFrame:
    """What flows see under the input's name."""
    return rows(spark.readStream.format("klamm").options(**source_options(pipeline, one, group)).load(), one)


def rows(records: DataFrame, one: Input) -> DataFrame:
    """The view of these records, which have Kafka's columns."""
    if one.format == "raw":
        found = records.select("*", *_kafka_columns())
    elif one.format == "text":
        found = records.select(_text().alias("value"), *_kafka_columns())
    else:
        found = _good(records, one)
    return found if one.watermark is None else found.withWatermark(one.event_time, one.watermark)


def _kafka_columns() -> list[Column]:
    return [sf.col(name).alias(f"_{name}") for name in ("key", "topic", "partition", "offset", "timestamp")]


def _text() -> Column:
    """A text is text: bytes that are none become the character that stands for such."""
    return sf.make_valid_utf8(sf.col("value").cast("string"))


def _good(records: DataFrame, one: Input) -> DataFrame:
    schema = schema_of(one)
    rows = parsed(records, one)
    fields = [sf.col(PARSED)[field.name].alias(field.name) for field in schema.fields]
    if one.dead_letters is not None:
        return rows.where(~sf.col(BAD)).select(*fields, *_kafka_columns())
    where = sf.concat_ws("", sf.lit("Record "), sf.col("offset"), sf.lit(" of "), sf.col("topic"), sf.lit("-"),
                         sf.col("partition"), sf.lit(" cannot be parsed: "), reason(one), sf.lit("."))  # fmt: skip
    checked = sf.when(sf.col(BAD), sf.raise_error(where).cast("boolean")).otherwise(True)
    return rows.where(checked).select(*fields, *_kafka_columns())


def table(spark: SparkSession, one: Table) -> DataFrame:
    reader = spark.read.format(one.format).options(**one.options)
    if one.schema is not None:
        reader = reader.schema(one.schema)
    return reader.load(one.path)
