"""What Spark asks of a source of streams, asked without Spark: where to begin, how far to go, what to read. The broker
is a real one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from klamm import Producer
from klamm.client.errors import BrokerSaid
from klamm.core.ids import TopicPartition
from klamm.spark.errors import BadOption, DataLoss, NothingCame
from klamm.spark.lookup import Lookup
from klamm.spark.offsets import Places
from klamm.spark.options import Bound, SourceOptions
from klamm.spark.reading import consumers
from klamm.spark.source import BatchReader, StreamReader
from klamm.testing import Broker
from support.apache_kafka import ApacheKafka
from support.spark import Topics


class Query:
    """Does with a reader what Spark does, and keeps what Spark would keep."""

    def __init__(self, options: dict[str, str], *, available_now: bool = False) -> None:
        self.options = options
        self.available_now = available_now
        self.ends: list[dict[str, Any]] = []
        self.start()

    def start(self, **changes: str) -> None:
        """A process anew, with nothing but the checkpoint."""
        self.options |= changes
        self.reader = StreamReader(SourceOptions.parse(self.options, streaming=True))
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()
        if self.available_now:
            self.reader.prepareForTriggerAvailableNow()

    def plan(self) -> bool:
        """Write down where the next batch ends, if there is one."""
        at = self.ends[-1] if self.ends else self.reader.initialOffset()
        end = json.loads(json.dumps(self.reader.latestOffset(at, self.limit)))
        if end != at:
            self.ends.append(end)
        return end != at

    def read(self) -> list[str]:
        """The last batch that was planned."""
        start = self.ends[-2] if len(self.ends) > 1 else self.reader.initialOffset()
        found = []
        for task in self.reader.partitions(start, self.ends[-1]):
            for batch in self.reader.read(task):
                found += [value.decode() for value in batch.column("value").to_pylist()]
        return found

    def next(self) -> list[str] | None:
        return self.read() if self.plan() else None


@pytest.fixture
def query(topics: Topics) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def make(topic: str | None = None, *, available_now: bool = False, of: Topics = topics, **options: object) -> Query:
        given = {"startingOffsets": "earliest", "fetchOffset.retryIntervalMs": 1} | options
        made.append(Query(of.options(topic, **given), available_now=available_now))
        return made[-1]

    yield make
    for each in made:
        each.reader.stop()


def words(first: int, end: int) -> list[str]:
    return [f"v{number}" for number in range(first, end)]


def test_batches_follow_each_other_and_stop_when_there_is_nothing(topics: Topics, query: Callable[..., Query]) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 3))
    reading = query(name)
    assert reading.next() == words(0, 3)
    assert reading.next() is None
    topics.produce(name, words(3, 4))
    assert reading.next() == words(3, 4)
    assert all(not consumer.assignment() for consumer in consumers._spare.values())  # nothing is fetched for nobody
    reading.start()
    assert reading.next() is None


def test_latest_means_when_the_query_was_first_started_also_if_it_died_in_its_first_batch(
    topics: Topics, query: Callable[..., Query]
) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 3))
    reading = query(name, startingOffsets="latest")
    assert reading.plan()  # a batch with nothing in it, so that it is written down where the query begins
    topics.produce(name, words(3, 5))
    reading.start()
    assert reading.read() == []
    assert reading.next() == words(3, 5)

    reading = query(name, startingOffsets="latest")
    assert reading.reader.initialOffset()
    topics.produce(name, words(5, 8))
    reading.ends.append(reading.reader.latestOffset(reading.reader._first, reading.limit))  # and dies in this batch
    topics.produce(name, words(8, 9))
    reading.start()
    assert (reading.read(), reading.next(), reading.next()) == (words(5, 8), words(8, 9), None)


def test_a_limit_is_shared_among_partitions_and_nothing_is_left_out(
    topics: Topics, query: Callable[..., Query]
) -> None:
    name = topics.topic(2)
    topics.produce(name, words(0, 90), partition=0)
    topics.produce(name, words(90, 100), partition=1)
    reading = query(name, maxOffsetsPerTrigger=20)
    assert isinstance(reading.limit, ReadMaxRows)
    assert reading.next() == words(0, 18) + words(90, 92)
    found = [reading.next() for _ in range(4)]
    assert [len(batch or ()) for batch in found] == [20, 20, 20, 20]
    assert reading.next() is None
    topics.produce(name, words(100, 140), partition=0)
    reading.limit = ReadAllAvailable()  # as with Trigger.Once
    assert reading.next() == words(100, 140)
    reading.limit = ReadMaxRows(20)
    topics.admin.create_partitions({name: 3}).check()
    topics.produce(name, words(140, 170), partition=2)
    assert reading.next() == words(140, 160)


def test_batches_wait_until_there_is_enough_and_no_longer_than_told(
    topics: Topics, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr("klamm.spark.source.RealClock.monotonic", lambda *_: now_s[0])
    name = topics.topic()
    topics.produce(name, ["v0"])
    reading = query(name, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=8, maxTriggerDelay="10s")
    assert reading.next() == ["v0"]  # the first one never waits
    topics.produce(name, words(1, 5))
    assert reading.next() is None
    topics.produce(name, words(5, 6))
    assert reading.next() == words(1, 6)
    topics.produce(name, words(6, 16))
    assert reading.next() == words(6, 14)
    now_s[0] += 9
    assert reading.next() is None
    now_s[0] += 2
    assert reading.next() == words(14, 16)
    only_least = query(name, minOffsetsPerTrigger=5)
    assert isinstance(only_least.limit, ReadMinRows)


def test_available_now_ends_where_partitions_ended_at_the_start(topics: Topics, query: Callable[..., Query]) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 10))
    reading = query(name, available_now=True, maxOffsetsPerTrigger=4, minOffsetsPerTrigger=4)
    found = reading.next()
    topics.produce(name, words(10, 12))
    while (batch := reading.next()) is not None:
        found += batch
    assert found == words(0, 10)
    reading.start()
    assert reading.next() == words(10, 12)


def test_available_now_notices_that_a_topic_is_no_longer_what_it_was_at_the_start(
    topics: Topics, query: Callable[..., Query]
) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 10))
    reading = query(name, available_now=True, maxOffsetsPerTrigger=4)
    assert reading.next() == words(0, 4)
    topics.admin.delete_topics([name]).check()
    topics.topic(name=name)
    topics.produce(name, words(100, 110))
    with pytest.raises(DataLoss, match=f"made anew: of {name}-0, what was from offset 4 on is lost"):
        reading.next()


def test_new_partitions_and_topics_are_read_from_their_beginning(topics: Topics, query: Callable[..., Query]) -> None:
    name = topics.topic(name="grows-1")
    topics.produce(name, ["a"])
    reading = query(subscribePattern="grows-.*", startingOffsets="latest", maxOffsetsPerTrigger=100)
    assert reading.next() == []
    topics.admin.create_partitions({name: 2}).check()
    topics.produce(name, ["b"], partition=1)
    topics.produce(topics.topic(name="grows-2"), ["c"])
    assert reading.next() == ["b", "c"]
    reading.start()
    assert reading.next() is None


def test_only_what_is_committed_is_read_and_ranges_without_a_record_are_over_at_once(
    topics: Topics, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.spark.reading._PATIENCE_MS", 600_000)  # a wait for a record would not be over in time
    name = topics.topic()
    reading = query(name, **{"kafkaConsumer.pollTimeoutMs": 600_000})
    uncommitted = query(name, **{"kafka.isolation.level": "read_uncommitted"})
    assert (reading.next(), uncommitted.next()) == ([], [])
    topics.transaction(name, words(0, 3), commit=False)
    assert (reading.next(), uncommitted.next()) == ([], words(0, 3))
    topics.transaction(name, words(3, 6), commit=True)
    assert (reading.next(), uncommitted.next()) == (words(3, 6), words(3, 6))
    assert topics.ends(name) == {0: 8}
    assert (reading.next(), uncommitted.next()) == (None, None)
    marker = query(name, startingOffsets=json.dumps({name: {"0": 7}}))
    assert marker.next() == []


def test_an_open_transaction_is_not_waited_for(topics: Topics, query: Callable[..., Query]) -> None:
    name = topics.topic()
    reading, uncommitted = query(name), query(name, **{"kafka.isolation.level": "read_uncommitted"})
    assert (reading.next(), uncommitted.next()) == ([], [])
    with Producer(bootstrap_servers=topics.bootstrap, transactional_id=name) as producer:
        producer.begin()
        producer.send(name, b"v0")
        assert (reading.next(), uncommitted.next()) == (None, ["v0"])
        uncommitted.start(**{"kafka.isolation.level": "read_committed"})
        assert uncommitted.next() is None  # it is ahead of what it may read now, and nothing is lost
        producer.commit()
    assert (reading.next(), uncommitted.next()) == (["v0"], [])


@pytest.mark.parametrize("end", [105, 110])  # offsets alone would not tell
def test_a_topic_that_was_deleted_and_made_anew_is_noticed(
    end: int, topics: Topics, query: Callable[..., Query]
) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 5))
    reading = query(name)
    assert reading.next() == words(0, 5)
    topics.admin.delete_topics([name]).check()
    topics.topic(name=name)
    topics.produce(name, words(100, end))
    assert reading.plan()
    with pytest.raises(DataLoss, match=f"Topic {name} was deleted and made anew"):
        reading.read()
    reading.ends.pop()
    reading.start(failOnDataLoss="false")
    assert reading.next() == words(100, end)
    assert reading.next() is None


def test_a_batch_of_before_is_not_read_from_a_topic_that_was_made_since(
    topics: Topics, query: Callable[..., Query]
) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 5))
    reading = query(name)
    assert reading.plan()  # and the driver dies
    topics.admin.delete_topics([name]).check()
    topics.topic(name=name)
    topics.produce(name, words(100, 110))
    reading.start()
    with pytest.raises(DataLoss, match=f"made anew: of {name}-0, what was from offset 0 on is lost"):
        reading.read()
    reading.start(failOnDataLoss="false")
    assert reading.read() == []
    assert reading.next() == words(100, 110)


def test_a_topic_that_is_gone_is_a_loss(topics: Topics, query: Callable[..., Query]) -> None:
    name, other = topics.topic(), topics.topic()
    topics.produce(name, words(0, 5))
    reading = query(f"{name},{other}")
    assert reading.next() == words(0, 5)
    topics.admin.delete_topics([name]).check()
    assert reading.plan()
    with pytest.raises(DataLoss, match=f"{name}-0 is gone: what was not read of it, from offset 5 on, is lost"):
        reading.read()
    topics.produce(other, ["x"])
    reading.ends.pop()
    reading.start(failOnDataLoss="false")
    assert reading.next() == ["x"]


def test_a_topic_that_goes_while_a_task_reads_it_is_a_loss_and_not_a_wait(
    topics: Topics, query: Callable[..., Query]
) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 5))
    reading = query(name)
    assert reading.plan()
    [task] = reading.reader.partitions(reading.reader.initialOffset(), reading.ends[0])
    topics.admin.delete_topics([name]).check()
    with pytest.raises(DataLoss, match=f"{name}-0 is gone: records from offset 0 on, before 5, are lost"):
        list(reading.reader.read(task))


def test_retention_that_overtakes_a_query_is_told_with_what_is_lost(
    klamm_broker: Broker, own_topics: Topics, query: Callable[..., Query]
) -> None:
    name = own_topics.topic(retention_ms=60_000, segment_ms=1000)
    own_topics.produce(name, words(0, 10))
    reading = query(name, of=own_topics, maxOffsetsPerTrigger=4)
    assert reading.next() == words(0, 4)
    klamm_broker.advance_time(timedelta(seconds=2))
    in_half_an_hour = round(time.time() * 1000) + 30 * 60_000
    own_topics.produce(name, words(10, 12), timestamps_ms=in_half_an_hour)  # in a segment of its own
    klamm_broker.advance_time(timedelta(minutes=2))
    assert len(klamm_broker.records(name)) == 2
    assert reading.plan()
    with pytest.raises(DataLoss, match=f"{name}-0: records from offset 4 on, before 8, are no longer there"):
        reading.read()
    reading.start(failOnDataLoss="false")
    assert (reading.read(), reading.next(), reading.next()) == ([], words(10, 12), None)


def test_a_partition_that_was_cut_is_a_loss_when_it_stays_so(
    topics: Topics, query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.topic()
    topics.produce(name, words(0, 5))
    reading = query(name)
    assert reading.next() == words(0, 5)
    latest = type(reading.reader.lookup).latest
    told = [3, 5]  # a leader that is new, and knows the end only when it is asked again
    monkeypatch.setattr(
        type(reading.reader.lookup),
        "latest",
        lambda lookup, places: {place: told.pop(0) for place in places} if told else latest(lookup, places),
    )
    assert reading.next() is None
    assert not told
    monkeypatch.setattr(type(reading.reader.lookup), "latest", lambda _, places: dict.fromkeys(places, 3))
    assert reading.next() is None  # the records are there, only not to be read: a transaction, say
    monkeypatch.setattr(type(reading.reader.lookup), "log_ends", lambda _, places: dict.fromkeys(places, 3))
    assert reading.plan()
    with pytest.raises(DataLoss, match=f"{name}-0 ends at offset 3, and the query stands at 5"):
        reading.read()


def test_a_broker_that_gives_nothing_is_not_waited_for_for_ever(
    klamm_broker: Broker, own_topics: Topics, query: Callable[..., Query]
) -> None:
    name = own_topics.topic()
    own_topics.produce(name, words(0, 5))
    reading = query(name, of=own_topics, **{"kafkaConsumer.pollTimeoutMs": 1})
    assert reading.plan()
    tasks = reading.reader.partitions(reading.reader.initialOffset(), reading.ends[0])
    klamm_broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=None)
    with pytest.raises(NothingCame, match=f"{name}-0 gives no records from offset 0 on"):
        list(reading.reader.read(tasks[0]))


def test_offsets_that_are_refused_are_no_loss(
    klamm_broker: Broker, own_topics: Topics, query: Callable[..., Query]
) -> None:
    name = own_topics.topic()
    reading = query(name, of=own_topics, failOnDataLoss="false")
    assert reading.next() == []
    klamm_broker.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", times=1)
    with pytest.raises(BrokerSaid, match="TOPIC_AUTHORIZATION_FAILED"):
        reading.plan()


def test_offsets_to_begin_with_are_given_for_all_partitions(topics: Topics, query: Callable[..., Query]) -> None:
    name = topics.topic(2)
    for partition in (0, 1):
        topics.produce(name, words(10 * partition, 10 * partition + 5), partition=partition)
    some = {"startingOffsets": json.dumps({name: {"0": 3}})}
    with pytest.raises(BadOption, match=rf"not the same: {name}-1"):
        query(name, **some).next()
    every = {"startingOffsets": json.dumps({name: {"0": 3, "1": -1}})}
    assert query(name, **every).next() == words(3, 5)
    with pytest.raises(BadOption, match=f"There is no partition {name}-2"):
        query(assign=json.dumps({name: [1, 2]})).next()


def test_streams_of_apache_kafka_are_read_in_the_same_way(
    apache_kafka: ApacheKafka, query: Callable[..., Query]
) -> None:
    topics = Topics(apache_kafka.bootstrap)
    try:
        name = topics.topic(2)
        reading = query(name, of=topics, startingOffsets="latest", maxOffsetsPerTrigger=10)
        assert reading.next() == []
        topics.produce(name, words(0, 8), partition=0)
        topics.transaction(name, words(8, 12), commit=False, partition=1)
        topics.transaction(name, words(12, 14), commit=True, partition=1)
        found: list[str] = []
        while (batch := reading.next()) is not None:
            found += batch
        assert sorted(found) == sorted(words(0, 8) + words(12, 14))
        topics.admin.delete_records({(name, 0): 8}).check()
        topics.admin.delete_topics([name]).check()
        reading.start()
        assert reading.plan()
        with pytest.raises(DataLoss, match=f"{name}-0 is gone"):
            reading.read()
    finally:
        topics.close()


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted_while_a_batch_is_planned_is_told(
    fails: bool, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.topic(2)
    topics.produce(name, words(0, 2), partition=0)
    topics.produce(name, words(2, 4), partition=1)
    resolve = Lookup.resolve

    def deleted(self: Lookup, bound: Bound, places: Collection[TopicPartition], *, starting: bool) -> Places:
        found = resolve(self, bound, places, starting=starting)
        return found if starting else {place: offset for place, offset in found.items() if place.partition}

    monkeypatch.setattr(Lookup, "resolve", deleted)
    options = {**topics.options(name), "failOnDataLoss": str(fails)}
    reader = BatchReader(SourceOptions.parse(options, streaming=False))
    if fails:
        with pytest.raises(DataLoss, match=f"{name}-0 was deleted a moment ago"):
            reader.partitions()
    else:
        (task,) = reader.partitions()
        assert task.value == (name, 1, 0, 2)
