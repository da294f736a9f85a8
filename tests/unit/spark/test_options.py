"""The options of `format("klamm")`: what they can be, and what is said of those that they cannot be."""

from __future__ import annotations

import pytest

from klamm.core.ids import TopicPartition
from klamm.spark.errors import BadOption
from klamm.spark.options import EARLIEST, LATEST, Guarantee, NoMatch, SinkOptions, SourceOptions, duration_ms

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def parse(streaming: bool = False, **options: str) -> SourceOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    given.setdefault("subscribe", "clicks") if not {"subscribePattern", "assign"} & given.keys() else None
    return SourceOptions.parse(SERVERS | given, streaming=streaming)


def test_defaults_are_those_of_sparks_own_source_but_for_the_isolation_level() -> None:
    batch, stream = parse(), parse(streaming=True)
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert stream.starting.everywhere == LATEST
    assert (batch.fail_on_data_loss, batch.headers, batch.no_match) == (True, False, NoMatch.ERROR)
    assert (batch.max_delay_ms, batch.poll_timeout_ms) == (15 * 60_000, 120_000)
    assert batch.read_committed
    assert not parse(**{"kafka.isolation.level": "read_uncommitted"}).read_committed
    assert parse(**{"kafka.isolation.level": " read_committed "}).read_committed


def test_names_of_options_may_be_written_in_any_case() -> None:
    found = parse(STARTINGOFFSETS="latest", streaming=True, failondataloss="FALSE", MaxOffsetsPerTrigger=" 7 ")
    assert (found.starting.everywhere, found.fail_on_data_loss, found.max_offsets) == (LATEST, False, 7)
    assert parse(**{"fetchOffset.numRetries": "0"}).retries == 0


def test_options_with_kafka_in_front_go_to_the_client_and_the_group_does_not() -> None:
    found = parse(**{"kafka.security.protocol": "SSL", "kafka.group.id": "shown"})
    assert found.client == {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SSL",
        "isolation.level": "read_committed",
    }
    assert found.group_id == "shown"


def test_topics_are_named_fitted_or_assigned() -> None:
    assert parse(subscribe=" a, b ,a,").which.names == ("a", "b")
    pattern = parse(subscribePattern="page-.*").which
    assert [pattern.fits(name) for name in ("page-views", "homepage-views", "page")] == [True, True, False]
    assert [name for name in ("a", "__klamm_spark_decisions") if parse(subscribePattern=".*").which.fits(name)] == ["a"]
    assigned = parse(assign='{"a": [0, 2], "b": [1]}').which.partitions
    assert assigned == (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))


def test_a_time_for_all_comes_before_times_by_partition_and_those_before_offsets() -> None:
    offsets, times = '{"clicks": {"0": 5, "1": -2}}', '{"clicks": {"0": 1000, "1": 2000}}'
    found = parse(startingOffsets=offsets).starting
    assert found.offsets == {TopicPartition("clicks", 0): 5, TopicPartition("clicks", 1): EARLIEST}
    found = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times).starting
    assert found.times_ms == {TopicPartition("clicks", 0): 1000, TopicPartition("clicks", 1): 2000}
    found = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="3000").starting
    assert found.time_ms == 3000


@pytest.mark.parametrize(
    ("text", "expected"), [("15m", 900_000), ("30s", 30_000), ("2 min", 120_000), ("1h", 3_600_000), ("0", 0), ("7", 7)]
)
def test_times_are_written_as_in_sparks_settings(text: str, expected: int) -> None:
    assert duration_ms(text) == expected
    assert parse(maxTriggerDelay=text).max_delay_ms == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"subscribePattern": "x", "subscribe": "y"}, "subscribe and subscribePattern were given"),
        ({"subscribe": " , "}, "The option subscribe is ','"),
        ({"assign": "[0]"}, "The option assign is '[0]'"),
        ({"assign": '{"clicks": "01"}'}, "The option assign is"),
        ({"assign": '{"clicks": [0.5]}'}, "The option assign is"),
        ({"assign": '{"clicks": [-1]}'}, "The option assign is"),
        ({"assign": '{"clicks": [true]}'}, "The option assign is"),
        ({"subscribePattern": "("}, "a regular expression"),
        ({"startingOffsets": "newest"}, "earliest, latest, or JSON like"),
        ({"startingOffsets": "latest"}, "would be empty"),
        ({"endingOffsets": "earliest"}, "would be empty"),
        ({"startingOffsets": '{"clicks": {"0": -1}}'}, "would be empty"),
        ({"endingOffsets": '{"clicks": {"0": -2}}'}, "would be empty"),
        ({"startingOffsets": '{"clicks": {"0": -3}}'}, "no such offsets"),
        ({"startingOffsets": '{"clicks": {"0": 1.5}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"clicks": [1]}'}, "startingOffsets is"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday'"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "a number from 1 on"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger is 9, more than"),
        ({"minPartitions": "many"}, "minPartitions is 'many'"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition is '-1'"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"maxTriggerDelay": "soon"}, "a time like 15m"),
        ({"kafka.auto.offset.reset": "earliest"}, "decided by startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "in its checkpoint"),
        ({"kafka.key.deserializer": "x"}, "functions of DataFrames"),
        (
            {"startingOffsets": '{"clicks": {"0": 1}}', "endingOffsets": '{"clicks": {"1": 1}}'},
            "not of the same partitions: clicks-0, clicks-1",
        ),
        (
            {"startingOffsets": '{"clicks": {"0": 5}}', "endingOffsets": '{"clicks": {"0": 4}}'},
            "from 5 on, before 4",
        ),
    ],
)
def test_what_cannot_be_meant_is_said_with_the_options_name(options: dict[str, str], said: str) -> None:
    given = SERVERS | ({} if {"subscribePattern", "assign", "subscribe"} & options.keys() else {"subscribe": "clicks"})
    with pytest.raises(BadOption) as caught:
        SourceOptions.parse(given | options, streaming=False)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(BadOption, match=f"The option {name} has no meaning for a stream"):
        parse(streaming=True, **{name: "latest"})


def test_a_stream_may_begin_with_the_latest() -> None:
    assert parse(streaming=True, startingOffsets='{"clicks": {"0": -1}}').starting.offsets == {
        TopicPartition("clicks", 0): LATEST
    }


def test_the_sinks_sequence_of_writes_has_a_name_and_numbers() -> None:
    found = SinkOptions.parse(SERVERS | {"topic": "out", "txnAppId": "hourly", "txnVersion": "0"})
    assert (found.topic, found.guarantee, found.app_id, found.version) == ("out", Guarantee.EXACTLY_ONCE, "hourly", 0)
    for half in ({"txnAppId": "hourly"}, {"txnVersion": "1"}):
        with pytest.raises(BadOption, match="belong together"):
            SinkOptions.parse(SERVERS | half)
    with pytest.raises(BadOption, match="txnAppId makes writing exactly once"):
        SinkOptions.parse(SERVERS | {"txnAppId": "a", "txnVersion": "1", "deliveryGuarantee": "at-least-once"})
    with pytest.raises(BadOption, match="deliveryGuarantee is 'twice'"):
        SinkOptions.parse(SERVERS | {"deliveryGuarantee": "twice"})
