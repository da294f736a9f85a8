"""Message classes: constructors, defaults, equality."""

from __future__ import annotations

import pytest

from klamm.wire import ProtocolError, Request, Struct, encode, is_flexible, versions_of
from klamm.wire.messages.k01_fetch import FetchResponse, LeaderIdAndEpoch, PartitionData
from klamm.wire.messages.k03_metadata import MetadataRequest
from klamm.wire.schema import array, in_range, int32, string, struct


class Part(Struct):
    number: int = int32(default=-1)
    names: list[str] = array(string)


class Whole(Request, key=99, versions="0-2", flexible="2+"):
    text: str | None = string(nullable="0+", default=None)
    part: Part = struct(Part)
    parts: list[Part] = array(Part)


def test_all_fields_have_the_defaults_of_the_table() -> None:
    whole = Whole()
    assert whole.text is None
    assert whole.parts == []
    assert whole.part == Part(number=-1, names=[])


def test_values_that_can_change_are_not_shared_between_instances() -> None:
    first, second = Whole(), Whole()
    first.parts.append(Part())
    first.part.names.append("x")
    first.part.number = 3
    assert second == Whole(parts=[], part=Part(number=-1, names=[]))


def test_a_shared_default_struct_refuses_to_be_changed() -> None:
    partition = PartitionData()
    assert partition.current_leader is PartitionData().current_leader
    with pytest.raises(AttributeError, match="set the field to a new one"):
        partition.current_leader.leader_id = 3
    partition.current_leader = LeaderIdAndEpoch(leader_id=3)
    assert PartitionData().current_leader == LeaderIdAndEpoch()


def test_a_field_that_is_not_in_the_table_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        Whole(nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Whole().nonsense = 1  # type: ignore[attr-defined]


def test_messages_are_equal_by_value_and_do_not_hash() -> None:
    assert Whole(text="a") == Whole(text="a")
    assert Whole(text="a") != Whole(text="b")
    assert Whole() != Part()
    assert Whole() != 1
    with pytest.raises(TypeError):
        hash(Whole())


def test_a_message_prints_as_the_call_that_makes_it() -> None:
    assert repr(Part(number=7)) == "Part(number=7, names=[])"
    assert "current_leader=LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)" in repr(PartitionData())


def test_a_class_knows_its_key_and_versions() -> None:
    assert FetchResponse.__api_key__ == 1
    assert versions_of(FetchResponse) == range(4, 19)
    assert not is_flexible(FetchResponse, 11)
    assert is_flexible(FetchResponse, 12)
    assert not is_flexible(MetadataRequest, 8)


@pytest.mark.parametrize(
    ("spec", "inside", "outside"),
    [("3+", [3, 99], [2]), ("3-5", [3, 5], [2, 6]), ("4", [4], [3, 5]), ("none", [], [0])],
)
def test_version_ranges(spec: str, inside: list[int], outside: list[int]) -> None:
    assert all(in_range(version, spec) for version in inside)
    assert not any(in_range(version, spec) for version in outside)


def test_a_version_outside_the_range_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Whole has no version 3"):
        encode(Whole(), 3)
    with pytest.raises(ProtocolError, match="no version"):
        encode(Part(), 0)


def test_an_array_of_empty_structs_is_refused_when_it_is_compiled() -> None:
    """Nothing would bound how many of them a few bytes can claim."""

    class Nothing(Struct):
        later: int = int32("1+")

    class Many(Struct, versions="0-1"):
        items: list[Nothing] = array(Nothing)

    assert encode(Many(items=[Nothing()]), 1) == bytes([0, 0, 0, 1, 0, 0, 0, 0])
    with pytest.raises(AssertionError, match="must not be empty"):
        encode(Many(), 0)
