from __future__ import annotations

import pytest

from klamm.controller import is_valid_topic_name
from klamm.controller.names import problem_with_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "_", "-", "...", "a" * 249, "__consumer_offsets"])
def test_legal_names(name):
    assert problem_with_name(name) is None
    assert is_valid_topic_name(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "needs a name"),
        (".", "cannot be the name"),
        ("..", "cannot be the name"),
        ("a" * 250, "at most 249"),
        ("a b", "other than ASCII"),
        ("a/b", "other than ASCII"),
        ("ä", "other than ASCII"),
        ("a\n", "other than ASCII"),
        ("a\0", "other than ASCII"),
    ],
)
def test_illegal_names_with_the_reason(name, message):
    assert message in problem_with_name(name)
    assert not is_valid_topic_name(name)
