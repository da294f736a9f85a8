"""Names of Spark's settings, as they are given to `klamm.spark.session`."""

from __future__ import annotations

import pytest

from klamm.spark import sessions


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("spark_sql_shuffle_partitions", "spark.sql.shuffle.partitions"),
        ("spark.sql.shuffle.partitions", "spark.sql.shuffle.partitions"),
        ("spark.executorEnv.AWS_REGION", "spark.executorEnv.AWS_REGION"),
    ],
)
def test_underscores_stand_for_dots_where_there_are_none(given: str, meant: str) -> None:
    assert sessions._setting(given) == meant
