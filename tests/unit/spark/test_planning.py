"""What a batch reads, and what can be known to be lost before it runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.core.ids import TopicPartition
from klamm.spark.offsets import Position, Range
from klamm.spark.planning import Found, Plan, behind, missing, of_now, plan, receded, to_ask

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
places = st.sampled_from([A0, A1, B0])


def test_a_batch_reads_from_where_the_query_was() -> None:
    start, end = Position({A0: 3, A1: 5}), Position({A0: 9, A1: 5})
    assert to_ask(start, end) == []
    assert plan(start, end, {}) == Plan([Range(A0, 3, 9)], [])


def test_a_new_partition_is_read_from_its_first_record_on() -> None:
    start, end = Position({A0: 3}), Position({A0: 3, A1: 8})
    assert to_ask(start, end) == [A1]
    assert plan(start, end, {A1: 0}) == Plan([Range(A1, 0, 8)], [])
    planned = plan(start, end, {A1: 2})
    assert planned.ranges == [Range(A1, 2, 8)]
    assert planned.losses == ["a-1 is new and begins at offset 2: what was before is lost."]


def test_a_new_partition_that_is_gone_again_is_not_read() -> None:
    assert plan(Position({A0: 3}), Position({A0: 3, A1: 8}), {}).ranges == []


def test_a_topic_with_another_id_is_another_topic_and_read_from_its_beginning() -> None:
    start, end = Position({A0: 100, B0: 1}, {"a": "old", "b": "b"}), Position({A0: 7, B0: 2}, {"a": "new", "b": "b"})
    assert to_ask(start, end) == [A0]
    planned = plan(start, end, {A0: 0})
    assert planned.ranges == [Range(A0, 0, 7), Range(B0, 1, 2)]
    assert planned.losses == ["Topic a was deleted and made anew: what was not read of the former one is lost."]
    assert plan(start, end, {A0: 2}).losses == planned.losses  # which says it all


def test_partitions_that_are_gone_are_a_loss_with_the_offset_they_were_read_up_to() -> None:
    assert plan(Position({A0: 3, B0: 4}), Position({B0: 4}), {}) == Plan(
        [], ["a-0 is gone: what was not read of it, from offset 3 on, is lost."]
    )


def test_a_partition_that_ends_before_it_was_read_up_to_is_a_loss() -> None:
    planned = plan(Position({A0: 9}), Position({A0: 4}), {})
    assert planned.ranges == []
    assert planned.losses == [
        "a-0 ends at offset 4, and the query stands at 9: the cluster has lost records, "
        "or the query was told to start behind the end."
    ]


def test_a_batch_of_before_a_restart_is_not_read_from_a_topic_that_was_made_since() -> None:
    end = Position({A0: 9, B0: 5}, {"a": "old", "b": "b"})
    planned = plan(Position({A0: 3, B0: 0}, {"a": "old", "b": "b"}), end, {})
    assert of_now(planned, end, Found(frozenset({A0, B0}), {"a": "old", "b": "b"})) == planned
    anew = of_now(planned, end, Found(frozenset({A0, B0}), {"a": "new", "b": "b"}))
    assert anew.ranges == [Range(B0, 0, 5)]
    assert anew.losses == ["Topic a was deleted and made anew: of a-0, what was from offset 3 on is lost."]
    gone = of_now(planned, end, Found(frozenset({A0}), {"a": "old"}))
    assert (gone.ranges, gone.losses) == ([Range(A0, 3, 9)], ["b-0 is gone: what was from offset 0 on is lost."])
    assert of_now(Plan([], ["before"]), end, Found(frozenset(), {})).losses == ["before"]


@given(
    st.dictionaries(places, st.integers(0, 50)),
    st.dictionaries(places, st.integers(0, 50)),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
)
def test_without_a_loss_everything_between_start_and_end_is_read_once(
    at: dict, until: dict, ids: dict, new_ids: dict
) -> None:
    start, end = Position(at, ids), Position(until, new_ids)
    planned = plan(start, end, dict.fromkeys(to_ask(start, end), 0))
    if not planned.losses:
        assert {one.place: (one.start, one.end) for one in planned.ranges} == {
            place: (at.get(place, 0), offset) for place, offset in until.items() if offset > at.get(place, 0)
        }
        assert at.keys() <= until.keys()
    assert all(one.size > 0 for one in planned.ranges)
    assert len({one.place for one in planned.ranges}) == len(planned.ranges)


def test_only_partitions_of_the_same_topic_can_recede() -> None:
    start = Position({A0: 9, B0: 9}, {"a": "x", "b": "x"})
    assert receded(start, {A0: 8, A1: 0, B0: 3}, {"a": "x", "b": "y"}) == [A0]
    assert receded(Position({A0: 9}), {A0: 8}, {"a": "x"}) == [A0]


def test_counting_what_is_behind_and_what_is_missing() -> None:
    assert behind({A0: 3, A1: 7}, {A0: 5, A1: 6, B0: 4}) == 6
    assert missing(["b", "a"], [A0]) == ["b"]
