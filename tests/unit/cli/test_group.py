"""What `klamm group` makes of its arguments, of files, and of what members were assigned."""

from __future__ import annotations

import argparse

import pytest

from klamm import wire
from klamm.cli import main
from klamm.cli.group_reset import TopicChoice, read_file, shifted, topic_choice, within
from klamm.cli.group_view import described_here, select
from klamm.cli.parsing import Failed, UsageError
from klamm.client.admin.group_members import assigned
from klamm.client.admin.groups import GroupListing as Listed
from klamm.wire.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition


def test_a_topic_may_be_named_with_some_of_its_partitions() -> None:
    assert topic_choice("orders") == TopicChoice("orders", [])
    assert topic_choice("orders-*:0,2") == TopicChoice("orders-*", [0, 2])
    for wrong in (":1", "orders:", "orders:x", "orders:-1"):
        with pytest.raises(argparse.ArgumentTypeError, match="orders:0,2"):
            topic_choice(wrong)


def test_a_file_has_lines_of_topic_partition_and_offset() -> None:
    lines = ["orders,0,5", "", " orders , 1 , 7 ", '"odd.name",0,1']
    assert read_file(lines, "g") == {("orders", 0): 5, ("orders", 1): 7, ("odd.name", 0): 1}


def test_of_a_file_with_many_groups_only_one_counts() -> None:
    assert read_file(["g,orders,0,5", "h,orders,0,9"], "g") == {("orders", 0): 5}
    with pytest.raises(UsageError, match="no offsets for group 'g'"):
        read_file(["h,orders,0,9"], "g")


@pytest.mark.parametrize("line", ["orders,0", "orders,zero,1", "orders,0,end", "g,orders,0,1,2"])
def test_a_line_that_is_none_is_told_with_its_number(line: str) -> None:
    with pytest.raises(UsageError, match=f"line 2 of the file is not TOPIC,PARTITION,OFFSET: {line}"):
        read_file(["orders,0,1", line], "g")


def test_a_shift_goes_from_what_is_committed_and_stays_within_the_log() -> None:
    places = [("t", 0), ("t", 1), ("t", 2)]
    new = shifted("g", places, {("t", 0): 10, ("t", 1): 3, ("t", 2): 98}, -5)
    assert new == {("t", 0): 5, ("t", 1): -2, ("t", 2): 93}
    ends = dict.fromkeys(places, 90)
    kept, remarks = within(new, dict.fromkeys(places, 1), ends)
    assert kept == {("t", 0): 5, ("t", 1): 1, ("t", 2): 90}
    assert remarks == [
        "t, partition 1, begins at 1: that is taken, not -2.",
        "t, partition 2, ends at 90: that is taken, not 93.",
    ]


def test_there_is_nothing_to_shift_where_nothing_was_committed() -> None:
    with pytest.raises(Failed, match="committed nothing in t, partition 1"):
        shifted("g", [("t", 0), ("t", 1)], {("t", 0): 10}, 1)


def test_assignments_are_read_in_any_version_and_what_is_none_is_nothing() -> None:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="t", partitions=[2, 0]), TopicPartition(topic="u", partitions=[1])]
    )
    body = wire.encode(assignment, 0)
    for version in (b"\0\0", b"\0\3", b"\0\x09"):
        assert assigned(version + body + b"what a later version adds") == (("t", 2), ("t", 0), ("u", 1))
    for nonsense in (b"", b"\0", b"\0\0", b"\0\0\x7f\xff\xff\xff"):
        assert assigned(nonsense) == ()


def test_names_are_taken_for_names_first_and_then_for_patterns() -> None:
    groups = [Listed(name, "classic", "", "Empty", 1) for name in ("a*", "ab", "b")]
    assert [group.group_id for group in select(groups, [])] == ["a*", "ab", "b"]
    assert [group.group_id for group in select(groups, ["a*"])] == ["a*"]
    assert [group.group_id for group in select(groups, ["a?", "b"])] == ["a*", "ab", "b"]
    with pytest.raises(Failed, match="no group matches 'c"):
        select(groups, ["c*"])
    with pytest.raises(Failed, match="there is no group 'ba'"):
        select(groups, ["ba"])


def test_groups_of_other_kinds_have_no_offsets_to_show() -> None:
    groups = [Listed("a", "classic", "", "Empty", 1), Listed("b", "share", "share", "Stable", 1)]
    ours, others = described_here(groups, [])
    assert ([g.group_id for g in ours], [g.group_id for g in others]) == (["a"], ["b"])
    with pytest.raises(Failed, match="'b' is a share group"):
        described_here(groups, ["b"])


@pytest.mark.parametrize("ways", [[], ["--to", "earliest", "--shift", "1"], ["--file", "f", "--topic", "t"]])
def test_a_reset_says_one_thing(ways: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "reset-offsets", "g", *ways]) == 2
    assert capsys.readouterr().err.startswith("klamm: ")


def test_what_kafkas_tool_calls_it_leads_to_what_it_is_called_here(capsys: pytest.CaptureFixture[str]) -> None:
    for theirs, ours in (("--to-earliest", "--to earliest"), ("--shift-by", "--shift"), ("--from-file", "--file")):
        with pytest.raises(SystemExit):
            main(["group", "reset-offsets", "g", theirs])
        assert f"did you mean {ours}?" in capsys.readouterr().err
