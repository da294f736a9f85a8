"""The same queries through Spark's own Kafka connector and through ours: the same rows, batch by batch.

The connector is of another release than PySpark: there is none of the same. Our default of the isolation level is
another one, so it is set in both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from klamm import Producer
from support.downloads import fetched, run_client
from support.spark import Topics

POM = Path(__file__).with_name("connector") / "pom.xml"
OURS, THEIRS = "klamm", "kafka"


@pytest.fixture(scope="module")
def both(spark: SparkSession, tool: Callable[[str, str], str]) -> SparkSession:
    """The session, with Spark's own connector added."""

    def fetch(folder: Path) -> None:
        mvn = tool("mvn", "Maven, which fetches Spark's connector")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        run_client("Spark's Kafka connector from Maven", mvn, "-q", "-B", "-f", str(POM), *goal, cwd=folder)

    for jar in sorted(fetched("spark-kafka-4.2.0", fetch).glob("*.jar")):
        spark.sql(f"ADD JAR '{jar}'")
    return spark


@pytest.fixture(scope="module")
def written(topics: Topics) -> str:
    """A topic with everything in it."""
    name = topics.topic(3, name="compared-1")
    topics.topic(name="compared-2")
    times = [1_700_000_000_000 + 1000 * number for number in range(40)]
    keys = [None if number % 3 else f"k{number}" for number in range(40)]
    headers = [(("n", b"%d" % number), ("none", None)) if number % 2 else () for number in range(40)]
    values = [None if number == 7 else "" if number == 8 else f"v{number}" for number in range(40)]
    topics.produce(name, values, keys=keys, headers=headers, timestamps_ms=times, partition=0)
    topics.produce(name, values[:9], keys=keys[:9], timestamps_ms=times[:9], partition=1)
    topics.transaction(name, ["c1", "c2", "c3"], commit=True, partition=2)
    topics.transaction(name, ["a1", "a2"], commit=False, partition=2)
    topics.produce("compared-2", ["x", "y"])
    return name


def frame(spark: SparkSession, source: str, topics: Topics, options: dict[str, Any]) -> DataFrame:
    level = {"kafka.isolation.level": "read_committed", "includeHeaders": "true"}
    return spark.read.format(source).options(**level | topics.options(**options)).load()


def rows(found: DataFrame) -> list[str]:
    return sorted(repr(row) for row in found.collect())


P0, P1, P2 = "0", "1", "2"


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "compared-1, compared-2"},
        {"subscribePattern": "mpared-[1-9]", "includeHeaders": "false"},
        {"subscribe": "compared-1", "kafka.isolation.level": "read_uncommitted"},
        {"assign": {"compared-1": [0, 2]}, "startingOffsets": {"compared-1": {P0: 30, P2: -2}}, "minPartitions": 7},
        {"subscribe": "compared-1", "endingOffsets": {"compared-1": {P0: 5, P1: -1, P2: 5}}},
        {
            "subscribe": "compared-1",
            "startingTimestamp": 1_700_000_005_500,
            "endingTimestamp": 1_700_000_030_000,
            "maxRecordsPerPartition": 10,
        },
        {
            "assign": {"compared-1": [0, 1]},
            "startingOffsetsByTimestamp": {"compared-1": {P0: 1_700_000_039_000, P1: 1_700_000_039_000}},
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ],
    ids=["names", "pattern", "uncommitted", "assigned", "ends", "times", "times-of-partitions"],
)
def test_batches_have_the_same_rows_of_the_same_types(
    both: SparkSession, topics: Topics, written: str, options: dict[str, Any]
) -> None:
    given = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in options.items()}
    ours, theirs = (frame(both, source, topics, given) for source in (OURS, THEIRS))
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    if {"minPartitions", "maxRecordsPerPartition"} & options.keys():  # else Spark also has tasks with nothing to do
        assert ours.rdd.getNumPartitions() == theirs.rdd.getNumPartitions()
    found = rows(ours)
    assert found == rows(theirs)
    assert found


def test_an_open_transaction_is_waited_for_by_neither(both: SparkSession, topics: Topics) -> None:
    name = topics.topic()
    topics.produce(name, ["before"])
    with Producer(bootstrap_servers=topics.bootstrap, transactional_id=f"{name}-open") as producer:
        producer.begin()
        producer.send_many(name, [b"open"])
        producer.flush()
        topics.produce(name, ["behind"])
        ours, theirs = (rows(frame(both, source, topics, {"subscribe": name})) for source in (OURS, THEIRS))
        assert ours == theirs
        assert len(ours) == 1
        producer.abort()


def test_streams_have_the_same_batches_and_go_on_from_sparks_checkpoints(
    both: SparkSession, topics: Topics, written: str, tmp_path: Path
) -> None:
    more = topics.topic(name="streamed-1")
    topics.produce(more, [f"m{number}" for number in range(25)])

    def run(source: str, folder: Path) -> list[list[str]]:
        found: list[list[str]] = []
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "17", "includeHeaders": "true"}
        level = {"kafka.isolation.level": "read_committed", "subscribePattern": "compared-.*|streamed-.*"}
        stream = both.readStream.format(source).options(**topics.options(), **options, **level).load()
        writer = stream.writeStream.foreachBatch(lambda frame, _: found.append(rows(frame)))
        writer = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True)
        writer.start().awaitTermination()
        return [batch for batch in found if batch]

    ours, theirs = (run(source, tmp_path / source) for source in (OURS, THEIRS))
    assert ours == theirs
    assert len(ours) > 3
    topics.produce(more, ["z1", "z2"])
    assert run(OURS, tmp_path / OURS) == run(OURS, tmp_path / THEIRS)


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "compared-1", "assign": "{}"},
        {"subscribe": "compared-1", "startingOffsets": "latest"},
        {"subscribe": "compared-1", "startingOffsets": '{"compared-1": {"0": 3}}'},
        {"subscribe": "compared-1", "startingTimestamp": "1900000000000"},
    ],
)
def test_what_one_refuses_the_other_refuses_too(
    both: SparkSession, topics: Topics, written: str, options: dict[str, str]
) -> None:
    for source in (OURS, THEIRS):
        with pytest.raises((PySparkException, Py4JJavaError)):
            frame(both, source, topics, options).collect()
