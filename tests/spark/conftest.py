"""Spark for tests: one session for each test process, one broker, and topics of it.

A session takes seconds to make, so nobody stops it and nobody changes its settings for others. Queries that a test
leaves behind are stopped when it is over. On a machine without Java the tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import klamm.testing
from klamm.testing import Broker
from support.spark import QUICK, Rows, Topics
from support.tools import unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.streaming.stopTimeout": "60s",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """On two cores, with `format("klamm")`."""
    pytest.importorskip("pyspark")
    import klamm.spark
    from klamm.spark.java import NoJava

    folders = tmp_path_factory.mktemp("spark")
    places = {"spark.local.dir": str(folders / "local"), "spark.sql.warehouse.dir": str(folders / "warehouse")}
    try:
        made = klamm.spark.session("klamm tests", "local[2]", **SETTINGS, **places)
    except NoJava as error:
        unavailable(str(error))
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def no_query_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        spark: SparkSession = request.getfixturevalue("spark")
        for query in spark.streams.active:
            query.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One for all tests of this process: nobody stops it or moves its clock. `klamm_broker` is one of a test's own."""
    options = {
        "offsets_topic_num_partitions": 4,
        "transaction_state_log_num_partitions": 4,
        "log_cleaner_backoff_ms": 20,
    }
    with klamm.testing.broker(**options) as started:
        yield started


@pytest.fixture(scope="session")
def topics(broker: Broker) -> Iterator[Topics]:
    """Topics of `broker`."""
    found = Topics(broker.bootstrap)
    yield found
    found.close()


@pytest.fixture
def own_topics(klamm_broker: Broker) -> Iterator[Topics]:
    """Topics of `klamm_broker`, which may be stopped, and of which the clock may be moved."""
    found = Topics(klamm_broker.bootstrap)
    yield found
    found.close()


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> Callable[..., Rows]:
    """`rows(topics.options("clicks", startingOffsets="earliest"))`: a streaming query into a folder, see `Rows`."""

    def make(options: dict[str, str], folder: str = "query", **settings: str) -> Rows:
        return Rows(spark, tmp_path / folder, options, **settings)

    return make
