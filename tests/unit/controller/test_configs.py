"""Changing options as a pure command: image and changes in, records and results out. Codes and rules were compared with
those of a Kafka 4.3."""

from __future__ import annotations

from typing import Any

import pytest
from controller_setup import arguments, image_with, play
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.controller import ConfigChange, ConfigOperation, ResourceChange
from klamm.controller.config_rules import CLIENT_METRICS_RESOURCE, GROUP_RESOURCE
from klamm.controller.configs import MAX_CHANGES_PER_REQUEST, alter_configs
from klamm.controller.topics import NewTopic, create_topics
from klamm.core.errors import ErrorCode
from klamm.core.options import Options
from klamm.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigResource, Image

TOPIC = ConfigResource(TOPIC_RESOURCE, "t")
BROKER = ConfigResource(BROKER_RESOURCE, "1")
ALL_BROKERS = ConfigResource(BROKER_RESOURCE, "")
GROUP = ConfigResource(GROUP_RESOURCE, "g")
METRICS = ConfigResource(CLIENT_METRICS_RESOURCE, "m")

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
OPTIONS = Options.from_mapping({"node.id": 1})


def with_topic(**configs: str) -> Image:
    image = image_with(1)
    new = NewTopic("t", 1, configs=[(name.replace("_", "."), value) for name, value in configs.items()])
    return play(image, create_topics(image, [new], **arguments()).records)


def change(
    image: Image,
    resource: ConfigResource,
    *changes: tuple[str, int, str | None],
    replace: bool = False,
    validate_only: bool = False,
    options: Options = OPTIONS,
) -> tuple[Image, ErrorCode, str | None]:
    asked = ResourceChange(resource, [ConfigChange(*one) for one in changes], replace)
    decision = alter_configs(image, [asked], node_id=1, options=options, validate_only=validate_only)
    (result,) = decision.reply
    assert result.resource == resource
    return play(image, decision.records) if decision.records else image, result.error, result.message


def accepted(image: Image, resource: ConfigResource, *changes: Any, **kwargs: Any) -> dict[str, str]:
    after, error, message = change(image, resource, *changes, **kwargs)
    assert not error, message
    return dict(after.configs.get(resource, {}))


def test_options_are_set_and_taken_back() -> None:
    image, error, _ = change(with_topic(), TOPIC, ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))
    assert not error and image.configs[TOPIC] == {"retention.ms": "5", "segment.ms": "6"}
    assert accepted(image, TOPIC, ("retention.ms", DELETE, None)) == {"segment.ms": "6"}
    assert accepted(image, TOPIC, ("flush.ms", DELETE, None), ("no.such", DELETE, None)) == image.configs[TOPIC]


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        (None, APPEND, "delete", "delete"),
        ("compact", APPEND, "compact,delete", "compact,delete"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
        (None, SUBTRACT, "delete", ""),
        ("", APPEND, "compact", "compact"),
        ("delete", APPEND, " compact ,, ", "delete,compact"),
    ],
)
def test_lists_are_appended_to_and_subtracted_from(before: str | None, operation: int, value: str, after: str) -> None:
    image = with_topic() if before is None else with_topic(cleanup_policy=before)
    assert accepted(image, TOPIC, ("cleanup.policy", operation, value)) == {"cleanup.policy": after}


def test_a_list_that_is_not_set_starts_from_its_default_not_from_the_brokers() -> None:
    options = Options.from_mapping({"node.id": 1, "log.cleanup.policy": "compact"})
    changed = accepted(with_topic(), TOPIC, ("cleanup.policy", APPEND, "compact"), options=options)
    assert changed == {"cleanup.policy": "delete,compact"}


@pytest.mark.parametrize(
    ("resource", "changes", "code", "words"),
    [
        (TOPIC, [("retention.mss", SET, "1")], ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
        (TOPIC, [("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG, "not a whole number"),
        (TOPIC, [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "has no value"),
        (TOPIC, [("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST, "has no value"),
        (TOPIC, [("cleanup.policy", APPEND, "shred")], ErrorCode.INVALID_CONFIG, "not one of"),
        (TOPIC, [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        (TOPIC, [("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        (TOPIC, [("nope", APPEND, "1")], ErrorCode.INVALID_CONFIG, "not a topic option"),
        (TOPIC, [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "no operation 9"),
        (TOPIC, [("flush.ms", SET, "1"), ("flush.ms", DELETE, None)], ErrorCode.INVALID_REQUEST, "more than once"),
        (TOPIC, [("compression.gzip.level", SET, "0")], ErrorCode.INVALID_CONFIG, "the least is 1, or -1"),
        (TOPIC, [("compression.type", SET, "brotli")], ErrorCode.INVALID_CONFIG, "not one of"),
        (TOPIC, [("leader.replication.throttled.replicas", SET, "x")], ErrorCode.INVALID_CONFIG, "PARTITION:BROKER"),
        (TOPIC, [("remote.storage.enable", SET, "true")], ErrorCode.INVALID_CONFIG, "no remote storage"),
        (TOPIC._replace(name="nope"), [("flush.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic nope"),
        (TOPIC._replace(name="nope"), [("flush.ms", SET, "x")], ErrorCode.INVALID_CONFIG, "whole number"),
        (TOPIC._replace(name="a b"), [("flush.ms", SET, "1")], ErrorCode.INVALID_TOPIC_EXCEPTION, "characters"),
        (TOPIC._replace(name=""), [("flush.ms", SET, "1")], ErrorCode.INVALID_REQUEST, "name a topic"),
        (BROKER, [("num.partition", SET, "1")], ErrorCode.INVALID_REQUEST, "did you mean num.partitions?"),
        (BROKER, [("num.partitions", SET, "1")], ErrorCode.INVALID_REQUEST, "while the broker runs"),
        (BROKER, [("log.retention.ms", SET, "x")], ErrorCode.INVALID_REQUEST, "not a whole number"),
        (BROKER, [("log.retention.ms", SET, "0")], ErrorCode.INVALID_REQUEST, "would delete everything"),
        (BROKER, [("log.retention.ms", APPEND, "0")], ErrorCode.INVALID_CONFIG, "is not a list"),
        (BROKER, [("nope", APPEND, "0")], ErrorCode.INVALID_CONFIG, "not a broker option"),
        (BROKER, [("ssl.keystore.location", SET, "/x")], ErrorCode.INVALID_REQUEST, "for one listener"),
        (ALL_BROKERS, [("sasl.jaas.config", SET, "x")], ErrorCode.INVALID_REQUEST, "one broker at a time"),
        (ALL_BROKERS, [("listener.name.a.ssl.protocol", SET, "x")], ErrorCode.INVALID_REQUEST, "one broker at a time"),
        (BROKER._replace(name="2"), [("log.roll.ms", SET, "5")], ErrorCode.INVALID_REQUEST, "ask broker 2"),
        (BROKER._replace(name="x"), [("log.roll.ms", SET, "5")], ErrorCode.INVALID_REQUEST, "no broker's id"),
        (BROKER._replace(name="01"), [("log.roll.ms", SET, "5")], ErrorCode.INVALID_REQUEST, "no broker's id"),
        (GROUP, [("nope", SET, "1")], ErrorCode.INVALID_CONFIG, "not a group option"),
        (GROUP, [("consumer.session.timeout.ms", SET, "1")], ErrorCode.INVALID_CONFIG, "below group.consumer.min"),
        (GROUP._replace(name=""), [], ErrorCode.INVALID_REQUEST, "name a group"),
        (METRICS, [("nope", SET, "1")], ErrorCode.INVALID_REQUEST, "not a client metrics option"),
        (METRICS, [("interval.ms", SET, "1")], ErrorCode.INVALID_REQUEST, "the least is 100"),
        (METRICS, [("match", SET, "x")], ErrorCode.INVALID_CONFIG, "NAME=PATTERN"),
        (METRICS._replace(name=""), [], ErrorCode.INVALID_REQUEST, "needs a name"),
        (ConfigResource(8, "1"), [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST, "no resource type 8"),
    ],
)
def test_what_cannot_be_is_refused_as_kafka_does(
    resource: ConfigResource, changes: list[tuple[str, int, str | None]], code: ErrorCode, words: str
) -> None:
    before = with_topic(segment_ms="5")
    after, error, message = change(before, resource, *changes)
    assert (error, after) == (code, before)
    assert message is not None and words in message, message


def test_one_bad_change_keeps_the_others_of_its_resource_from_being_made_but_no_other_resource() -> None:
    image = with_topic()
    asked = [
        ResourceChange(TOPIC, [ConfigChange("flush.ms", SET, "5"), ConfigChange("segment.ms", SET, "x")]),
        ResourceChange(ALL_BROKERS, [ConfigChange("log.roll.ms", SET, "5")]),
        ResourceChange(BROKER, [ConfigChange("log.retention.ms", SET, "6")]),
    ]
    decision = alter_configs(image, asked, node_id=1, options=OPTIONS)
    assert [r.error for r in decision.reply] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE, ErrorCode.NONE]
    after = play(image, decision.records)
    assert after.configs == {ALL_BROKERS: {"log.roll.ms": "5"}, BROKER: {"log.retention.ms": "6"}}


def test_a_resource_that_is_there_twice_is_not_changed() -> None:
    asked = [ResourceChange(TOPIC, [ConfigChange(name, SET, "5")]) for name in ("flush.ms", "segment.ms")]
    decision = alter_configs(with_topic(), asked, node_id=1, options=OPTIONS)
    assert [r.error for r in decision.reply] == [ErrorCode.INVALID_REQUEST] * 2
    assert not decision.records


def test_to_replace_takes_back_what_is_not_named() -> None:
    image = with_topic(retention_ms="5", segment_ms="6")
    assert accepted(image, TOPIC, ("retention.ms", SET, "7"), replace=True) == {"retention.ms": "7"}
    assert accepted(image, TOPIC, replace=True) == {}


def test_what_does_not_change_is_not_written() -> None:
    image = with_topic(retention_ms="5")
    asked = [ResourceChange(TOPIC, [ConfigChange("retention.ms", SET, "5")])]
    assert alter_configs(image, asked, node_id=1, options=OPTIONS).records == []


def test_validate_only_says_what_would_happen_and_writes_nothing() -> None:
    image = with_topic()
    assert change(image, TOPIC, ("retention.ms", SET, "5"), validate_only=True)[:2] == (image, ErrorCode.NONE)
    assert change(image, TOPIC, ("retention.ms", SET, "x"), validate_only=True)[1] == ErrorCode.INVALID_CONFIG


def test_the_configs_of_a_topic_must_stand_together_with_each_other_and_with_the_brokers() -> None:
    image = with_topic(min_compaction_lag_ms="10")
    assert change(image, TOPIC, ("max.compaction.lag.ms", SET, "5"))[1] == ErrorCode.INVALID_CONFIG
    options = Options.from_mapping({"node.id": 1, "log.cleaner.max.compaction.lag.ms": 5})
    refused = change(with_topic(), TOPIC, ("min.compaction.lag.ms", SET, "6"), options=options)
    assert refused[1] == ErrorCode.INVALID_CONFIG


def test_the_options_of_a_broker_must_stand_together_with_those_of_all() -> None:
    image, error, _ = change(image_with(1), ALL_BROKERS, ("log.cleaner.min.compaction.lag.ms", SET, "10"))
    assert not error
    for resource in (ALL_BROKERS, BROKER):
        refused = change(image, resource, ("log.cleaner.max.compaction.lag.ms", SET, "5"))
        assert refused[1] == ErrorCode.INVALID_REQUEST, resource


def test_groups_and_client_metrics_keep_what_is_set() -> None:
    image = image_with(1)
    kept = accepted(image, GROUP, ("consumer.session.timeout.ms", SET, "50000"))
    assert kept == {"consumer.session.timeout.ms": "50000"}
    kept = accepted(image, METRICS, ("metrics", APPEND, "a."), ("match", SET, "client_id=b.*"))
    assert kept == {"metrics": "a.", "match": "client_id=b.*"}


def test_a_request_has_a_bound() -> None:
    many = [ConfigChange(f"name.{i}", DELETE, None) for i in range(MAX_CHANGES_PER_REQUEST + 1)]
    decision = alter_configs(with_topic(), [ResourceChange(TOPIC, many)], node_id=1, options=OPTIONS)
    assert decision.reply[0].error == ErrorCode.POLICY_VIOLATION


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["retention.ms", "cleanup.policy", "compression.type", "leader.replication.throttled.replicas"]
            ),
            st.integers(-1, 4),
            st.none() | st.sampled_from(["", "5", "compact", "delete,compact", "*", "0:1", "gzip", ","]),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_whatever_is_asked_what_is_accepted_can_be_set_again(changes: list[Any], replace: bool) -> None:
    image = with_topic(retention_ms="5")
    after, error, message = change(image, TOPIC, *changes, replace=replace)
    assert bool(message) == bool(error)
    again = [(name, SET, value) for name, value in after.configs.get(TOPIC, {}).items()]
    assert accepted(after, TOPIC, *again, replace=True) == after.configs.get(TOPIC, {})
