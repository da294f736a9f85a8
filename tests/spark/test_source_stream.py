"""Topics as streams, on Spark and a broker: checkpoints, restarts, and what a query shows of its progress. (What Spark
asks a source, case by case, is in test_source_readers.)"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from support.spark import Rows, Topics


def words(first: int, end: int) -> list[str]:
    return [f"v{number:03}" for number in range(first, end)]


def committed(topics: Topics, group: str, expected: dict[tuple[str, int], int]) -> None:
    """Wait until a group has committed this. Listeners of Spark hear of a batch some time after it is done."""
    found: dict[Any, int] = {}
    while found != expected:
        found = {place: at.offset for place, at in topics.admin.list_group_offsets(group).items()}


def test_a_query_goes_on_from_its_checkpoint_with_nothing_lost_or_doubled(
    topics: Topics, rows: Callable[..., Rows]
) -> None:
    name = topics.topic(2, name="stream-grows")
    topics.produce(name, words(0, 40), partition=0)
    topics.produce(name, words(40, 50), partition=1)
    options = topics.options(subscribePattern="stream-gr.*", startingOffsets="earliest", maxOffsetsPerTrigger=20)
    query = rows(options | {"kafka.group.id": "stream-shown"})
    ran = query.run()
    assert [progress.numInputRows for progress in ran.recentProgress] == [20, 20, 10]
    assert query.values() == words(0, 50)
    committed(topics, "stream-shown", {(name, 0): 40, (name, 1): 10})

    topics.admin.create_partitions({name: 3}).check()
    topics.produce(name, words(50, 60), partition=2)
    topics.transaction(name, ["aborted"], commit=False, partition=0)
    topics.transaction(name, words(60, 70), commit=True, partition=0)
    topics.produce(topics.topic(name="stream-grew"), words(70, 75))
    query.run()
    assert query.values() == words(0, 75)


def test_a_query_that_dies_in_its_first_batch_begins_where_latest_was(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 5))
    seen: list[list[str]] = []
    dies = [True]

    def take(frame: DataFrame, number: int) -> None:
        if dies[0]:
            topics.produce(name, words(5, 8))
            raise RuntimeError("of its own accord")
        seen.append(sorted(row.value.decode() for row in frame.collect()))

    stream = topics.stream(spark, name).writeStream.foreachBatch(take)
    writer = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="of its own accord"):
        writer.start().processAllAvailable()
    dies[0] = False
    query = writer.start()
    query.processAllAvailable()
    topics.produce(name, words(8, 9))
    query.processAllAvailable()
    query.stop()
    assert [word for batch in seen for word in batch] == words(5, 9)


def test_what_is_lost_ends_a_query_unless_it_may_go_on(topics: Topics, rows: Callable[..., Rows]) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 10))
    query = rows(topics.options(name, startingOffsets="earliest", minOffsetsPerTrigger=1000))  # all that there is
    query.run()
    topics.produce(name, words(10, 20))
    topics.admin.delete_records({(name, 0): 15}).check()
    with pytest.raises(StreamingQueryException, match=f"{name}-0: records from offset 10 on, before 15, are no longer"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.values() == words(0, 10) + words(15, 20)

    topics.admin.delete_topics([name]).check()
    topics.topic(name=name)
    topics.produce(name, words(20, 50))
    with pytest.raises(StreamingQueryException, match=f"Topic {name} was deleted and made anew"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.values() == words(0, 10) + words(15, 50)


def test_progress_is_shown_as_the_lag_of_a_group(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Of two sources of one query, in the groups that their options say, and only behind what is done."""
    left, right, other = topics.topic(2), topics.topic(), topics.topic()
    topics.produce(left, words(0, 6), partition=0)
    topics.produce(right, words(0, 3))
    options = {"startingOffsets": "earliest", "groupIdPrefix": "shop"}
    named = options | {"kafka.group.id": "right-of-shop"}
    rate = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("cast(cast(value as string) as binary) as value")
        .where("false")
    )
    both = topics.stream(spark, left, **options).select("value").union(rate)
    both = both.union(topics.stream(spark, f"{right},{other}", **named).select("value"))
    writer = both.writeStream.queryName("orders").format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    committed(topics, "shop-orders", {(left, 0): 6, (left, 1): 0})
    committed(topics, "right-of-shop", {(right, 0): 3, (other, 0): 0})
    query.stop()

    topics.produce(left, words(6, 10), partition=0)
    command = [sys.executable, "-m", "klamm", "group", "describe", "shop-orders", "--bootstrap", topics.bootstrap]
    told = subprocess.run([*command, "--output", "json"], capture_output=True, text=True, check=True).stdout
    lags = {each["partition"]: each["lag"] for each in json.loads(told)[0]["partitions"]}
    assert lags == {0: 4, 1: 0}


def test_a_query_runs_where_its_progress_cannot_be_shown(topics: Topics, rows: Callable[..., Rows]) -> None:
    from klamm import Consumer

    name = topics.topic()
    topics.produce(name, words(0, 3))
    with Consumer(name, bootstrap_servers=topics.bootstrap, group_id="taken") as member:
        member.getmany(timeout_ms=1)
        query = rows(topics.options(name, startingOffsets="earliest", **{"kafka.group.id": "taken"}))
        query.run()
    assert query.values() == words(0, 3)
