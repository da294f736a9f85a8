"""The checker of transactions finds what it is there to find."""

from __future__ import annotations

import pytest

from klamm.testing.transactions import Fate, History


def history() -> History:
    """Two producers, two partitions: a and c are committed, b is aborted, of d nobody knows."""
    made = History()
    for producer, name, fate in (
        ("p", b"a", Fate.COMMITTED),
        ("q", b"b", Fate.ABORTED),
        ("p", b"c", Fate.COMMITTED),
        ("q", b"d", Fate.UNKNOWN),
    ):
        transaction = made.begin(producer)
        for number in range(4):
            transaction.add(number % 2, name + b"%d" % number)
        transaction.fate = fate
    return made


@pytest.mark.parametrize("with_unknown", [True, False])
def test_what_should_be_there_is_fine(with_unknown: bool) -> None:
    rest = ([b"d0", b"d2"], [b"d1", b"d3"]) if with_unknown else ([], [])
    assert not history().problems(
        {0: [b"a0", b"a2", b"c0", *rest[0], b"c2"], 1: [b"a1", b"a3", b"c1", b"c3", *rest[1]]}
    )


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ([b"a0", b"c0", b"c2"], "is lost"),
        ([b"a0", b"a2", b"c0", b"c2", b"c2"], "twice"),
        ([b"a0", b"a2", b"c2", b"c0"], "too late"),
        ([b"c0", b"c2", b"a0", b"a2"], "too late"),
        ([b"a0", b"a2", b"b0", b"c0", b"c2"], "was not committed and is there"),
        ([b"a0", b"a2", b"c0", b"d0", b"c2"], "of the same transaction is not"),
        ([b"a0", b"a2", b"c0", b"c2", b"x"], "nobody wrote it"),
        ([b"a0", b"a2", b"c0", b"c2", b"a1"], "nobody wrote it"),
    ],
)
def test_what_is_wrong_is_found(first: list[bytes], problem: str) -> None:
    found = history().problems({0: first, 1: [b"a1", b"a3", b"c1", b"c3"]})
    assert any(problem in one for one in found), found
