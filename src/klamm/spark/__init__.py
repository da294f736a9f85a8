"""Topics as Spark DataFrames, with nothing to install but `klamm[spark]`.

    import klamm.spark

    spark = klamm.spark.session()
    clicks = spark.readStream.format("klamm").option("kafka.bootstrap.servers", "localhost:9092")...

`klamm.spark.register(spark)` does it for a session that is there already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """From now on this session knows `format("klamm")`."""
    from klamm.spark.source import KlammSource

    spark.dataSource.register(KlammSource)
