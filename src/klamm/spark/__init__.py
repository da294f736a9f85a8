"""Topics as Spark DataFrames, with nothing to install but `klamm[spark]`.

    import klamm.spark

    spark = klamm.spark.session()
    clicks = spark.readStream.format("klamm").option("kafka.bootstrap.servers", "localhost:9092")...

`klamm.spark.register(spark)` does it for a session that is there already. (Spark finds the format by itself, too, where
Klamm is installed: see `pyspark_klamm`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def register(spark: SparkSession) -> None:
    """From now on this session knows `format("klamm")`."""
    from klamm.spark.source import KlammSource

    spark.dataSource.register(KlammSource)


def session(name: str = "klamm", master: str | None = None, **settings: object) -> SparkSession:
    """The session of this process: the one that is there, else a new one, on this machine unless `master` says where.

        spark = klamm.spark.session("clicks", "local[4]", spark_sql_shuffle_partitions=4)

    Settings are Spark's, with underscores in place of dots, or as they are: `**{"spark.sql.shuffle.partitions": 4}`.
    In a program that was given to spark-submit, all that is not said here is as that was told."""
    from klamm.spark.sessions import make

    return make(name, master, settings)
