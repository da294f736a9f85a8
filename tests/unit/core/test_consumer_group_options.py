from __future__ import annotations

import pytest

from klamm.core.options import OptionError, Options

PREFIX = "group.consumer."


def given(**options: object) -> Options:
    return Options.from_mapping({PREFIX + name.replace("_", "."): value for name, value in options.items()})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"session_timeout_ms": 10_000}, "not between group.consumer.min.session.timeout.ms=45000 and"),
        ({"max_heartbeat_interval_ms": 4000}, "group.consumer.heartbeat.interval.ms=5000 is not between"),
        ({"assignment_interval_ms": 20_000}, "group.consumer.max.assignment.interval.ms=15000"),
        (
            {"min_session_timeout_ms": 1, "session_timeout_ms": 5000},
            "group.consumer.session.timeout.ms=5000 must be more than group.consumer.heartbeat.interval.ms=5000",
        ),
        ({"assignors": "uniform,mine"}, "mine"),
        ({"assignors": ""}, "must name one"),
    ],
)
def test_options_of_consumer_groups_that_contradict_each_other_are_refused(
    options: dict[str, object], words: str
) -> None:
    with pytest.raises(OptionError) as refused:
        given(**options)
    assert words in str(refused.value)


def test_options_of_consumer_groups_that_agree_are_taken() -> None:
    options = given(min_session_timeout_ms=1000, session_timeout_ms=6000, assignors="range")
    assert options.get_int("group.consumer.session.timeout.ms") == 6000
    assert options.get_list("group.consumer.assignors") == ("range",)
