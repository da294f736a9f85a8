"""Sessions that know the format: those that `klamm.spark.session` gives, and all others where Klamm is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import klamm.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.spark import Topics


def test_there_is_one_session_and_asking_again_gives_it(spark: SparkSession) -> None:
    again = klamm.spark.session("another name", spark_sql_session_timeZone="UTC")
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.driver.host") == "127.0.0.1"


def test_a_session_that_nobody_has_told_of_the_format_finds_it(spark: SparkSession, topics: Topics) -> None:
    topic = topics.topic()
    topics.produce(topic, ["one", "two"])
    assert spark.newSession().read.format("klamm").options(**topics.options(topic)).load().count() == 2
