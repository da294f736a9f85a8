"""Topics as DataFrames: what is in their rows, and which of them are read. On Spark and a broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from klamm import Producer
from support.spark import Topics


def values(frame: DataFrame) -> list[str]:
    rows = frame.selectExpr("topic", "partition", "offset", "cast(value as string) as value").collect()
    return [row.value for row in sorted(rows)]


def words(first: int, end: int) -> list[str]:
    return [f"v{number}" for number in range(first, end)]


def test_rows_have_the_columns_of_sparks_own_source(spark: SparkSession, topics: Topics) -> None:
    made, appended = topics.topic(), topics.topic(message_timestamp_type="LogAppendTime")
    at_ms = [1_700_000_000_123, 0, 1_700_000_000_000]
    headers = [(("a", b"1"), ("a", None)), (), (("empty", b""),)]
    topics.produce(made, ["text", "", None], keys=["key", None, ""], headers=headers, timestamps_ms=at_ms)
    topics.produce(appended, ["x"], timestamps_ms=[1])

    plain = topics.batch(spark, made)
    assert [(field.name, field.dataType.simpleString()) for field in plain.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    with_headers = topics.batch(spark, f"{made},{appended}", INCLUDEheaders=True)
    assert with_headers.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    rows = with_headers.orderBy("topic", "offset").selectExpr("*", "unix_micros(timestamp) as us").collect()
    assert [(row.key, row.value, row.partition, row.offset, row.timestampType) for row in rows] == [
        (b"key", b"text", 0, 0, 0),
        (None, b"", 0, 1, 0),
        (b"", None, 0, 2, 0),
        (None, b"x", 0, 0, 1),
    ]
    assert [row.topic for row in rows] == [made] * 3 + [appended]
    assert [row.us for row in rows][:3] == [time * 1000 for time in at_ms]
    assert rows[3].timestamp.astimezone(UTC) > datetime(2020, 1, 1, tzinfo=UTC)
    assert [row.headers and [tuple(pair) for pair in row.headers] for row in rows] == [
        [("a", b"1"), ("a", None)],
        None,
        [("empty", b"")],
        None,
    ]
    assert plain.where("value is null").count() == 1


def test_topics_are_named_fitted_or_assigned(spark: SparkSession, topics: Topics) -> None:
    one, two = topics.topic(2, name="fits-one"), topics.topic(name="fits-two")
    topics.topic(name="it-fits-three")
    for name in (one, two, "it-fits-three"):
        topics.produce(name, [name], partition=0)
    topics.produce(one, ["second"], partition=1)
    servers = topics.options()
    assert values(topics.batch(spark, f"{two}, {one}")) == [one, "second", two]
    assert values(topics.batch(spark, subscribePattern="^fits-")) == [one, "second", two]
    assert values(topics.batch(spark, subscribePattern="fits-t")) == [two, "it-fits-three"]
    assert values(topics.batch(spark, assign=json.dumps({one: [1], two: [0]}))) == ["second", two]
    assert values(spark.read.format("klamm").options(subscribePattern="nothing-.*", **servers).load()) == []


def test_a_batch_begins_and_ends_where_it_is_told(spark: SparkSession, topics: Topics) -> None:
    name = topics.topic(2)
    for partition in (0, 1):
        times = [1000 * number for number in range(1, 6)]
        topics.produce(name, words(10 * partition, 10 * partition + 5), partition=partition, timestamps_ms=times)

    def read(**options: object) -> list[str]:
        given = {key: json.dumps({name: value}) if isinstance(value, dict) else value for key, value in options.items()}
        return values(topics.batch(spark, name, **given))

    everything = words(0, 5) + words(10, 15)
    assert read(startingOffsets="earliest", endingOffsets="latest") == everything
    assert read(startingOffsets={"0": 3, "1": -2}) == words(3, 5) + words(10, 15)
    assert read(startingOffsets={"0": 3, "1": 1}, endingOffsets={"0": -1, "1": 2}) == words(3, 5) + words(11, 12)
    assert read(startingTimestamp=3500, endingTimestamp=4500) == ["v3", "v13"]
    assert read(startingOffsetsByTimestamp={"0": 5000, "1": 4001}) == ["v4", "v14"]
    assert read(endingOffsetsByTimestamp={"0": 2000, "1": 9000}) == ["v0", *words(10, 15)]
    late = {"startingOffsetsByTimestamp": {"0": 6000, "1": 5000}}
    assert read(**late, startingOffsetsByTimestampStrategy="latest") == ["v14"]
    with pytest.raises(PySparkException, match=f"no record at or after the time to begin with: {name}-0 at 6000"):
        read(**late)


def test_large_partitions_are_read_by_several_tasks(spark: SparkSession, topics: Topics) -> None:
    name = topics.topic(2)
    topics.produce(name, words(0, 1000), partition=0)
    topics.produce(name, words(1000, 1010), partition=1)
    for options, tasks in [({}, 2), ({"minPartitions": 5}, 5), ({"maxRecordsPerPartition": 300}, 5)]:
        frame = topics.batch(spark, name, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert values(frame) == words(0, 1010)


def test_only_what_is_committed_is_read_unless_told_otherwise(spark: SparkSession, topics: Topics) -> None:
    name = topics.topic()
    topics.transaction(name, words(0, 3), commit=True)
    topics.transaction(name, words(3, 6), commit=False)
    with Producer(bootstrap_servers=topics.bootstrap, transactional_id=f"{name}-open") as producer:
        producer.begin()
        producer.send_many(name, words_in_bytes(6, 9))
        producer.flush()
        topics.produce(name, words(9, 12))
        assert values(topics.batch(spark, name)) == words(0, 3)
        uncommitted = topics.batch(spark, name, **{"kafka.isolation.level": "read_uncommitted"})
        assert values(uncommitted) == words(0, 12)
        producer.commit()
    # The range ends behind the marker of the last transaction: in a gap, to which the reading has to come by itself.
    assert values(topics.batch(spark, name)) == words(0, 3) + words(6, 12)
    ends = json.dumps({name: {"0": 8}})  # in the midst of what was aborted
    assert values(topics.batch(spark, name, endingOffsets=ends)) == words(0, 3)
    begins = json.dumps({name: {"0": 5}})
    assert values(topics.batch(spark, name, startingOffsets=begins, endingOffsets=ends)) == []


def words_in_bytes(first: int, end: int) -> list[bytes]:
    return [word.encode() for word in words(first, end)]


def test_gaps_that_compaction_leaves_are_no_loss(spark: SparkSession, topics: Topics) -> None:
    name = topics.topic(cleanup_policy="compact", segment_bytes=1000, min_cleanable_dirty_ratio=0.01)
    for number in range(100):
        topics.produce(name, [f"v{number}"], keys=["k" if 20 <= number < 80 else f"k{number}"])
    while len(left := topics.records(name)) > 60:
        pass
    gap = next(b.offset - 1 for a, b in pairwise(left) if b.offset - a.offset > 1)
    expected = [record.value.decode() for record in left if record.offset < gap]
    ends = json.dumps({name: {"0": gap}})
    assert values(topics.batch(spark, name, endingOffsets=ends)) == expected
    assert values(topics.batch(spark, name, maxRecordsPerPartition=5))[-20:] == words(80, 100)


def test_records_that_were_deleted_are_told_with_their_offsets(spark: SparkSession, topics: Topics) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 10))
    topics.admin.delete_records({(name, 0): 6}).check()
    begins = {"startingOffsets": json.dumps({name: {"0": 2}})}
    with pytest.raises(PySparkException, match=f"{name}-0: records from offset 2 on, before 6, are no longer there"):
        values(topics.batch(spark, name, **begins))
    assert values(topics.batch(spark, name, failOnDataLoss=False, **begins)) == words(6, 10)
    assert values(topics.batch(spark, name)) == words(6, 10)
    ends = {"endingOffsets": json.dumps({name: {"0": 12}})}
    with pytest.raises(PySparkException, match=f"{name}-0 before offset 12, and it ends at 10"):
        values(topics.batch(spark, name, **ends))
    assert values(topics.batch(spark, name, failOnDataLoss=False, **ends)) == words(6, 10)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no-such-topic"}, "There is no topic no-such-topic."),
        ({"subscribe": "x", "includeHeaders": "perhaps"}, "The option includeHeaders is 'perhaps'."),
        ({"subscribe": "x", "kafka.auto.offset.reset": "none"}, "kafka.auto.offset.reset cannot be used here"),
    ],
)
def test_mistakes_in_options_are_said_in_a_sentence(
    spark: SparkSession, topics: Topics, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        topics.batch(spark, **options).collect()
    assert said in str(caught.value)


def test_columns_cannot_be_chosen_by_a_schema(spark: SparkSession, topics: Topics) -> None:
    name = topics.topic()
    for schema in ("value string", "key string, value binary"):
        with pytest.raises(PySparkException, match="The columns of a topic are key binary, value binary"):
            spark.read.schema(schema).format("klamm").options(**topics.options(name)).load().collect()
