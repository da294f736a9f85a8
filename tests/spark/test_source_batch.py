"""Topics as DataFrames, on Spark and a broker."""

from __future__ import annotations

from pyspark.sql import SparkSession

from support.spark import Topics


def test_rows(spark: SparkSession, topics: Topics) -> None:
    name = topics.topic(2)
    topics.produce(name, ["a", "b"], partition=0)
    topics.produce(name, ["c"], partition=1)
    assert [row.value.decode() for row in topics.batch(spark, name).orderBy("partition", "offset").collect()] == list(
        "abc"
    )
    assert topics.values(name) == list("abc")
