from __future__ import annotations

import pytest

from klamm.cli.parsing import UsageError
from klamm.cli.units import explained, plain_value, show_count, show_duration, show_size


@pytest.mark.parametrize(
    ("name", "given", "sent"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1.5h", "5400000"),
        ("retention.ms", "-1", "-1"),
        ("segment.ms", "30 s", "30000"),
        ("max.message.bytes", "2M", "2097152"),
        ("segment.bytes", "1GiB", "1073741824"),
        ("segment.bytes", "1048576", "1048576"),
        ("cleanup.policy", "7d", "7d"),
        ("compression.type", "lz4", "lz4"),
    ],
)
def test_times_and_sizes_may_have_a_unit(name: str, given: str, sent: str) -> None:
    assert plain_value(name, given) == sent


@pytest.mark.parametrize(
    ("name", "given", "example"),
    [("retention.ms", "7parsecs", "7d"), ("segment.bytes", "10kB", "64K"), ("segment.bytes", "", "64K")],
)  # is kB a thousand, or 1024?
def test_what_is_no_time_or_size_is_told_how_to_write_one(name: str, given: str, example: str) -> None:
    with pytest.raises(UsageError, match=example):
        plain_value(name, given)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", "604800000", "604800000 (7d)"),
        ("retention.ms", "5400000", "5400000 (1h 30m)"),
        ("retention.ms", "-1", "-1"),
        ("flush.ms", str(2**63 - 1), str(2**63 - 1)),
        ("segment.bytes", "1073741824", "1073741824 (1 GiB)"),
        ("index.interval.bytes", "100", "100"),
        ("cleanup.policy", "delete", "delete"),
    ],
)
def test_a_long_number_is_explained(name: str, value: str, shown: str) -> None:
    assert explained(name, value) == shown


def test_counts_sizes_and_times_are_short() -> None:
    assert [show_count(n) for n in (0, 9.5, 12.3, 999_999, 1_234_567, 3 * 10**9)] == [
        "0", "9.5", "12", "999,999", "1.23M", "3.00G",
    ]  # fmt: skip
    assert [show_size(n) for n in (0, 100, 1500, 100 << 20, 1 << 30)] == [
        "0 B",
        "100 B",
        "1.46 KiB",
        "100 MiB",
        "1 GiB",
    ]
    assert [show_duration(ms) for ms in (5, 61_000, 90_000_000)] == ["5ms", "1m 1s", "1d 1h"]
