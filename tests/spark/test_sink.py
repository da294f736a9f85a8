"""`df.write` and `df.writeStream` with `format("klamm")`, on real Spark: what gets into the topic, and how often."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klamm.records.consuming import ConsumerRecord
from klamm.spark.sink.decisions import TOPIC
from support.spark import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def to(topics: Topics, options: dict[str, object]) -> dict[str, str]:
    return {**topics.options(), **{name: str(value) for name, value in options.items()}}


def write(topics: Topics, rows: DataFrame, **options: object) -> None:
    rows.write.format("klamm").options(**to(topics, options)).mode("append").save()


def run(topics: Topics, rows: DataFrame, folder: Path, **options: object) -> StreamingQuery:
    """Copy what is there now, and end."""
    writer = rows.writeStream.format("klamm").options(**to(topics, options))
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


# Batch.


def test_every_column_of_a_row_gets_to_its_place(spark: SparkSession, topics: Topics) -> None:
    one, other = topics.topic(3), topics.topic(3)
    rows = spark.sql(f"""
        select * from values
            ('{one}', 2, cast('k' as binary), 'v', array(named_struct('key', 'h', 'value', cast('x' as binary)))),
            ('{one}', 0, null, 'w', null),
            ('{other}', null, cast('k' as binary), null, array())
        as rows(topic, partition, key, value, headers)""")
    write(topics, rows)
    assert [as_told(record) for record in topics.records(one)] == [(0, None, b"w", ()), (2, b"k", b"v", (("h", b"x"),))]
    (record,) = topics.records(other)
    assert (record.key, record.value, record.headers) == (b"k", None, ())


def as_told(record: ConsumerRecord) -> tuple[Any, ...]:
    return record.partition, record.key, record.value, tuple(record.headers)


def test_the_option_topic_wins_over_the_column_and_keys_choose_partitions(spark: SparkSession, topics: Topics) -> None:
    topic = topics.topic(3)
    rows = spark.range(300).selectExpr("'nowhere' topic", "cast(id % 10 as string) key", "cast(id as string) value")
    write(topics, rows, topic=topic)
    records = topics.records(topic)
    assert sorted(int(record.value or b"") for record in records) == list(range(300))
    homes = {(record.key, record.partition) for record in records}
    assert len(homes) == 10
    assert len({partition for _, partition in homes}) > 1


def test_a_write_without_a_name_is_atomic_and_leaves_nothing_behind(spark: SparkSession, own_topics: Topics) -> None:
    topic = own_topics.topic()
    rows = spark.range(0, 100, numPartitions=4)
    bad = rows.selectExpr("case when id = 99 then raise_error('no') else cast(id as string) end as value")
    with pytest.raises(Exception, match="no"):
        write(own_topics, bad, topic=topic)
    assert own_topics.values(topic) == []
    write(own_topics, rows.selectExpr("cast(id as string) value"), topic=topic)
    assert own_topics.admin.list_transactions(states=["Ongoing"]) == []  # nor of tasks that were given up
    assert sorted(map(int, own_topics.values(topic))) == list(range(100))
    assert own_topics.admin.list_groups() == []
    assert TOPIC not in own_topics.admin.list_topics()
    assert own_topics.admin.list_transactions(states=["Ongoing"]) == []


def test_a_version_of_an_application_is_written_once_to_each_topic(spark: SparkSession, topics: Topics) -> None:
    one, other = topics.topic(), topics.topic()
    for topic, version in ((one, 0), (one, 0), (other, 0), (one, 1), (one, 0)):
        rows = spark.range(3).selectExpr(f"concat('{version}-', id) value")
        write(topics, rows, topic=topic, txnAppId="an app/1", txnVersion=version)
    assert sorted(topics.values(one)) == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]
    assert sorted(topics.values(other)) == ["0-0", "0-1", "0-2"]


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("id", {"topic": "t"}, "A topic needs a column `value`"),
        ("id value", {"topic": "t"}, "The column value is bigint, and must be string or binary"),
        ("'v' value", {}, "Nobody says which topic to write to"),
        ("'v' value, cast(null as string) topic", {}, "A row has no topic"),
        ("'v' value", {"topic": "t", "txnAppId": "a"}, "txnAppId and txnVersion belong together"),
        ("'v' value", {"topic": "t", "kafka.transactional.id": "x"}, "Transactions are the sink's own affair"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_reason(
    spark: SparkSession, topics: Topics, columns: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception) as caught:
        write(topics, spark.range(1).selectExpr(*columns.split(", ")), **options)
    assert told in str(caught.value)


# Streams.


def test_a_stream_is_copied_once_over_restarts_in_any_number_of_tasks(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, sink = topics.topic(3), topics.topic(2)
    for number, tasks in enumerate((1, 5)):
        topics.produce(source, [f"{number}-{n}" for n in range(50)], keys=[str(n % 7) for n in range(50)])
        rows = topics.stream(spark, source, startingOffsets="earliest", maxOffsetsPerTrigger=30, minPartitions=tasks)
        run(topics, rows.select("key", "value"), tmp_path / "checkpoint", topic=sink)
    # A query that lost what it wrote down last does that batch again, in other tasks.
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    rows = topics.stream(spark, source, startingOffsets="earliest", maxOffsetsPerTrigger=30, minPartitions=2)
    run(topics, rows.select("key", "value").repartition(3), tmp_path / "checkpoint", topic=sink)
    assert pairs(topics, sink) == pairs(topics, source)
    assert topics.admin.list_transactions(states=["Ongoing"]) == []


def pairs(topics: Topics, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((record.key, record.value) for record in topics.records(topic))


def test_a_query_that_is_stopped_in_the_middle_of_a_batch_is_in_nobodys_way(
    spark: SparkSession, own_topics: Topics, tmp_path: Path
) -> None:
    source, sink = own_topics.topic(), own_topics.topic()
    values = [str(n) for n in range(25_000)]  # a task is given 10,000 at a time
    own_topics.produce(source, values)
    stays = tmp_path / "stays"
    stays.touch()
    folder = str(stays)

    def slow(batches: Any) -> Any:
        import os
        import time

        yield from batches
        while os.path.exists(folder):
            time.sleep(0.1)

    def start() -> StreamingQuery:
        rows = own_topics.stream(spark, source, startingOffsets="earliest").select("value")
        writer = rows.mapInArrow(slow, rows.schema).writeStream.format("klamm").options(**own_topics.options())
        return writer.option("topic", sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = start()
    wait_for(lambda: open_in(own_topics) and written_to(own_topics, sink))
    query.stop()
    wait_for(lambda: not open_in(own_topics))
    assert own_topics.values(sink) == []
    stays.unlink()
    query = start()
    query.processAllAvailable()
    query.stop()
    assert own_topics.values(sink) == values


def open_in(topics: Topics) -> list[object]:
    return [one for one in topics.admin.list_transactions(states=["Ongoing"]) if "/task/" in one.transactional_id]


def written_to(topics: Topics, topic: str) -> int:
    return topics.admin.list_offsets({(topic, 0): -1}, read_committed=False)[topic, 0].offset


def wait_for(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


def test_at_least_once_makes_no_transactions(spark: SparkSession, own_topics: Topics, tmp_path: Path) -> None:
    source, sink = own_topics.topic(), own_topics.topic()
    own_topics.produce(source, ["a", "b"])
    rows = own_topics.stream(spark, source, startingOffsets="earliest").select("value")
    run(own_topics, rows, tmp_path / "checkpoint", topic=sink, deliveryGuarantee="at-least-once")
    assert own_topics.values(sink) == ["a", "b"]
    assert own_topics.admin.list_transactions() == []


def test_for_each_batch_writes_to_two_topics_once(
    spark: SparkSession, topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, one, other = topics.topic(), topics.topic(), topics.topic()
    topics.produce(source, [str(n) for n in range(40)])
    failures = ["before the second"]

    def both(rows: DataFrame, batch: int) -> None:
        named = {"txnAppId": "both", "txnVersion": batch}
        write(topics, rows, topic=one, **named)
        if failures:
            raise RuntimeError(failures.pop())
        write(topics, rows, topic=other, **named)

    def go() -> None:
        rows = topics.stream(spark, source, startingOffsets="earliest", maxOffsetsPerTrigger=20).select("value")
        writer = rows.writeStream.foreachBatch(both).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="before the second"):
        go()
    go()
    assert topics.values(one) == topics.values(other) == [str(n) for n in range(40)]
    assert "What a query leaves open" not in caplog.text  # such a query has no sink to be asked for that
