from __future__ import annotations

import pytest

from klamm.core.options import BROKER_OPTIONS, OptionError, Options, Source


def test_without_anything_given_the_defaults_hold():
    options = Options.from_mapping()
    assert options.get_int("num.partitions") == 1
    assert options.get_bool("auto.create.topics.enable") is True
    assert options.get_list("log.cleanup.policy") == ("delete",)
    assert options.get("log.retention.ms") is None
    assert options.source("num.partitions") is Source.DEFAULT
    assert options.given() == {}
    assert options.node_id == 1
    assert options.data_dir is None


def test_a_later_layer_wins_and_says_where_a_value_is_from():
    options = Options.from_mapping({"num.partitions": "3", "log.segment.bytes": 2000})
    above = options.overlay({"num.partitions": "5"}, Source.DYNAMIC_BROKER)
    assert options.get_int("num.partitions") == 3
    assert above.get_int("num.partitions") == 5
    assert above.source("num.partitions") is Source.DYNAMIC_BROKER
    assert above.source("log.segment.bytes") is Source.STATIC
    assert above.given() == {"num.partitions": 5, "log.segment.bytes": 2000}


def test_an_unknown_name_is_refused_with_the_nearest_or_only_reported():
    with pytest.raises(OptionError) as caught:
        Options.from_mapping({"num.partition": "3"})
    assert str(caught.value) == "num.partition is not a broker option; did you mean num.partitions?"
    options = Options.from_mapping({"num.partition": "3", "zzz": "1", "num.partitions": "2"}, strict=False)
    assert options.get_int("num.partitions") == 2
    assert options.warnings == (
        "ignored: num.partition is not a broker option; did you mean num.partitions?",
        "ignored: zzz is not a broker option",
    )


def test_every_problem_is_reported_at_once():
    with pytest.raises(OptionError) as caught:
        Options.from_mapping({"num.partitions": "0", "listenerz": "x", "message.max.bytes": "many"})
    assert len(caught.value.problems) == 3


def test_options_without_effect_are_taken_with_one_warning_that_names_them():
    options = Options.from_mapping({"log.preallocate": "true", "num.partitions": "2", "process.roles": "broker"})
    assert options.get_bool("log.preallocate") is True
    assert options.warnings == ("known, but without effect in Klamm: log.preallocate, process.roles",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"node.id": "1", "broker.id": "2"}, "differ"),
        ({"log.dirs": "/a,/b"}, "several folders"),
        ({"log.retention.ms": "0"}, "log.retention.ms=0"),
        ({"max.connections.per.ip.overrides": "1.2.3.4"}, "ADDRESS:COUNT"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given, message):
    with pytest.raises(OptionError) as caught:
        Options.from_mapping(given)
    assert message in str(caught.value)


def test_older_names_are_understood():
    assert Options.from_mapping({"broker.id": "7"}).node_id == 7
    assert Options.from_mapping({"broker.id": "7", "node.id": "7"}).node_id == 7
    assert Options.from_mapping({"log.dir": "/a"}).data_dir == "/a"
    assert Options.from_mapping({"log.dirs": "/b", "log.dir": "/a"}).data_dir == "/b"


def test_connection_limits_per_address():
    options = Options.from_mapping({"max.connections.per.ip.overrides": "127.0.0.1:5,[::1]:6"})
    assert options.connection_limits() == {"127.0.0.1": 5, "::1": 6}


def test_getters_refuse_names_that_are_not_in_the_table():
    with pytest.raises(KeyError):
        Options.from_mapping().get_int("no.such.option")


def test_our_own_options_have_our_prefix_and_names_are_well_formed():
    for name in BROKER_OPTIONS:
        assert name == name.lower() and name.replace(".", "").isalnum()
