"""The table for people, and that the page in docs/ is made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.cli import main
from klamm.core.options import reference

PAGE = Path(__file__).parents[3] / "docs" / "options.md"


def test_the_page_is_what_the_table_says_now() -> None:
    assert PAGE.read_text() == reference.markdown(), "make it anew: klamm config docs --markdown > docs/options.md"


def test_every_option_is_on_the_page_once_for_each_kind_of_thing_that_has_it() -> None:
    seen = [(section.of, option.name) for section in reference.sections() for option in section.options]
    assert len(seen) == len(set(seen))
    assert {("topics", "retention.ms"), ("brokers", "log.retention.ms"), ("brokers", "ssl.key.password")} <= set(seen)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["retention.ms", "num.partitions", "604800000"]),
        (["retention.ms"], ["topics", "long", "604800000", "from -1", "log.retention.hours"]),
        (["compression.type"], ["topics", "brokers", "cluster-wide", "snappy"]),
        (["ssl.keystore"], ["ssl.keystore.location", "(no effect)"]),
        (["process.roles"], ["effect", "read-only"]),
        (["--all"], ["sasl.jaas.config"]),
        (["retention.ms", "-o", "json"], ['"honoured": true']),
        (["--markdown"], ["# Options", "| `retention.ms` |"]),
    ],
)
def test_klamm_config_docs(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "docs", *arguments]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words), out


def test_a_name_that_no_option_has_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "docs", "retention.mss"]) == 2
    assert "did you mean retention.ms?" in capsys.readouterr().err


def test_options_without_effect_are_only_listed_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "docs"])
    assert "sasl.jaas.config" not in capsys.readouterr().out
