"""What completion offers where no cluster has to be asked."""

from __future__ import annotations

import pytest

from klamm.cli import VERBS
from klamm.cli.complete import candidates


def offered(*words: str, shell: str = "zsh") -> list[str]:
    return [candidate.word for candidate in candidates(shell, words)]


def test_the_first_word_is_a_verb() -> None:
    assert set(VERBS) <= set(offered(""))
    assert offered("comp") == ["completion"]
    assert offered("help", "comp") == ["completion"]
    assert offered("help", "topic", "cr") == ["create"]


def test_the_second_is_a_verb_of_its_own() -> None:
    assert offered("topic", "") == ["create", "list", "describe", "alter", "delete"]
    assert offered("no-such-verb", "") == []


def test_options_are_offered_for_a_dash_and_their_values_after_them() -> None:
    assert "--partitions" in offered("topic", "create", "t", "-")
    assert offered("topic", "list", "--output", "") == ["table", "json", "name"]
    assert offered("topic", "list", "--output=j") == ["--output=json"]
    assert offered("topic", "list", "--output", "=", "j", shell="bash") == ["json"]


def test_files_and_folders_are_left_to_the_shell() -> None:
    assert offered("topic", "list", "--command-config", "cli") == [":files"]
    assert offered("start", "--data", "") == [":dirs"]
    assert offered("log", "dump", "") == [":files"]


def test_names_of_options_come_with_the_equals_sign_and_their_choices_behind_it() -> None:
    assert offered("topic", "create", "t", "-c", "retention.") == ["retention.bytes=", "retention.ms="]
    assert offered("topic", "alter", "t", "--unset", "retention.") == ["retention.bytes", "retention.ms"]
    assert offered("topic", "create", "t", "-c", "cleanup.policy=d") == ["cleanup.policy=delete"]
    assert offered("topic", "create", "t", "-c", "cleanup.policy", "=", "d", shell="bash") == ["delete"]
    assert "num.partitions=" in offered("start", "--set", "num.")
    assert offered("topic", "list", "-X", "request.t") == ["request.timeout.ms="]


@pytest.mark.parametrize(
    "words", [("topic", "create", ""), ("topic", "create", "t", "-p", ""), ("completion", "bash", "")]
)
def test_where_anything_may_stand_nothing_is_offered(words: tuple[str, ...]) -> None:
    assert offered(*words) == []
