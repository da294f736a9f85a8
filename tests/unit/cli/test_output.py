from __future__ import annotations

import pytest

from klamm.cli.output import print_fields, table


def test_numbers_are_set_to_the_right_and_empty_columns_left_out() -> None:
    lines = table(("TOPIC", "PARTITIONS", "ERROR", "SIZE"), [("orders", 3, None, "1.5 MiB"), ("a", 12, "", "12 B")])
    assert lines == [
        "TOPIC   PARTITIONS     SIZE",
        "orders           3  1.5 MiB",
        "a               12     12 B",
    ]


def test_a_missing_cell_is_a_dash_and_lists_stay_on_the_left() -> None:
    assert table(("LEADER", "REPLICAS"), [(1, "1,2"), (None, "2,1,3")]) == [
        "LEADER  REPLICAS",
        "     1  1,2",
        "     -  2,1,3",
    ]


def test_a_table_without_rows_has_its_headers() -> None:
    assert table(("A", "B"), []) == ["A  B"]


def test_fields_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("topic", "orders"), ("id", None), ("partitions", 3)])
    assert capsys.readouterr().out == "topic:       orders\npartitions:  3\n"
