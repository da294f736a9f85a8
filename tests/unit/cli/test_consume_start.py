from __future__ import annotations

import argparse
from datetime import UTC, datetime

import pytest

from klamm.cli.consume_start import BEGINNING, END, Start, offsets_for, parse_start

NOON = int(datetime(2026, 1, 31, 12, 30, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", BEGINNING),
        ("earliest", BEGINNING),
        ("end", END),
        ("17", Start(offset=17)),
        ("-5", Start(tail=5)),
        ("2h", Start(ago_ms=7_200_000)),
        ("2026-01-31T12:30Z", Start(at_ms=NOON)),
        ("2026-01-31T13:30:00+01:00", Start(at_ms=NOON)),
        (f"@{NOON}", Start(at_ms=NOON)),
        (f"@{NOON // 1000}", Start(at_ms=NOON)),
    ],
)
def test_a_start_can_be_written_in_many_ways(text: str, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["banana", "", "-", "--5", "@", "2026-13-01", "1.5"])
def test_what_is_no_start_is_told_with_what_would_be(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="neither beginning, end, an offset"):
        parse_start(text)


@pytest.mark.parametrize(
    ("start", "offset", "remarks"),
    [
        (BEGINNING, 10, 0),
        (END, 20, 0),
        (Start(offset=15), 15, 0),
        (Start(offset=5), 10, 1),
        (Start(offset=25), 20, 1),
        (Start(tail=3), 17, 0),
        (Start(tail=300), 10, 0),
    ],
)
def test_offsets_are_kept_within_the_partition(start: Start, offset: int, remarks: int) -> None:
    plan = offsets_for(start, {("t", 0): 10}, {("t", 0): 20})
    assert (plan.start, plan.end, len(plan.remarks)) == ({("t", 0): offset}, {("t", 0): 20}, remarks)
