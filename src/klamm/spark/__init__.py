"""Topics as Spark DataFrames, with nothing to install but `klamm[spark]`.

    import klamm.spark

    spark = klamm.spark.session()
    clicks = spark.readStream.format("klamm").option("kafka.bootstrap.servers", "localhost:9092")...

`klamm.spark.register(spark)` does it for a session that is there already. (Spark finds the format by itself, too, where
Klamm is installed: see `pyspark_klamm`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]

_HEARD: Final = "_klamm_listeners"
"""What a session has whose queries are listened to already."""


def register(spark: SparkSession) -> None:
    """From now on this session knows `format("klamm")`, shows the progress of its queries as groups' offsets, and ends
    transactions that they have open when they are stopped."""
    from klamm.spark.source import KlammSource

    spark.dataSource.register(KlammSource)
    _listen(spark)


def _listen(spark: SparkSession) -> None:
    from pyspark.sql.utils import is_remote

    if is_remote() or hasattr(spark, _HEARD):  # Spark Connect's listeners live in a process without the plans
        return
    from klamm.spark.progress import Progress
    from klamm.spark.stopped import Stopped

    listeners = [Progress(spark), Stopped(spark)]
    for listener in listeners:
        spark.streams.addListener(listener)
    setattr(spark, _HEARD, listeners)


def session(name: str = "klamm", master: str | None = None, **settings: object) -> SparkSession:
    """The session of this process: the one that is there, else a new one, on this machine unless `master` says where.

        spark = klamm.spark.session("clicks", "local[4]", spark_sql_shuffle_partitions=4)

    Settings are Spark's, with underscores in place of dots, or as they are: `**{"spark.sql.shuffle.partitions": 4}`.
    In a program that was given to spark-submit, all that is not said here is as that was told."""
    from klamm.spark.sessions import make

    return make(name, master, settings)
