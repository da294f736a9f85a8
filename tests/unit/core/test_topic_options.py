from __future__ import annotations

import pytest

from klamm.core.options import (
    TOPIC_OPTIONS,
    OptionError,
    Options,
    Source,
    check_topic_configs,
    find_option,
    resolve,
    resolve_all,
)

HOUR_MS = 3_600_000


@pytest.mark.parametrize("option", TOPIC_OPTIONS.values(), ids=lambda option: option.name)
def test_a_topic_option_and_its_broker_options_agree(option):
    defaults = []
    for synonym in option.synonyms:
        broker = find_option(synonym.name)
        if broker.default is not None:
            defaults.append(broker.default * synonym.factor if synonym.factor > 1 else broker.default)
    assert all(default == option.default for default in defaults)


def test_the_topic_decides_then_the_broker_then_the_default():
    options = Options.from_mapping({"log.segment.bytes": "5000"})
    assert resolve("segment.bytes", {"segment.bytes": "7000"}, options)[1:] == (7000, Source.TOPIC, "segment.bytes")
    assert resolve("segment.bytes", {}, options)[1:] == (5000, Source.STATIC, "log.segment.bytes")
    assert resolve("segment.bytes", {}, Options.from_mapping())[1:] == (1 << 30, Source.DEFAULT, "segment.bytes")


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "2147483647"}, 2147483647 * HOUR_MS),
    ],
)
def test_the_finest_unit_of_retention_wins(given, value):
    assert resolve("retention.ms", {}, Options.from_mapping(given)).value == value


def test_all_options_of_a_topic_are_resolved_internal_ones_where_they_are_set():
    shown = {name for name, option in TOPIC_OPTIONS.items() if not option.internal}
    assert {r.option.name for r in resolve_all({}, Options.from_mapping())} == shown
    internal = {"internal.segment.bytes": "50"}
    assert {r.option.name for r in resolve_all(internal, Options.from_mapping())} == shown | set(internal)


def test_good_configs_come_back_as_values():
    given = {"retention.ms": "-1", "cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"}
    values = {"retention.ms": -1, "cleanup.policy": ("compact", "delete"), "message.timestamp.type": "LogAppendTime"}
    assert check_topic_configs(given) == values


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"retention.mss": "1"}, "did you mean retention.ms?"),
        ({"cleanup.policy": "shred"}, "is not one of compact, delete"),
        ({"retention.ms": None}, "retention.ms has no value"),
        ({"min.insync.replicas": "0"}, "the least is 1"),
        ({"remote.storage.enable": "true"}, "no remote storage"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "is more than"),
    ],
)
def test_bad_configs_are_refused(configs, message):
    with pytest.raises(OptionError) as caught:
        check_topic_configs(configs)
    assert message in str(caught.value)


def test_of_many_bad_configs_only_the_first_few_are_explained():
    with pytest.raises(OptionError) as caught:
        check_topic_configs({f"retention.{i}": "1" for i in range(1000)})
    assert "retention.0 is not a topic option" in caught.value.problems[0]
    assert caught.value.problems[-1] == "and there may be more"
    assert len(caught.value.problems) == 11
