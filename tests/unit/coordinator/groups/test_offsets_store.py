"""The store of committed and pending offsets."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from klamm.coordinator.groups.offsets_store import OffsetStore
from klamm.wire.messages.coordinator import OffsetCommitKey, OffsetCommitValue


def key(group: str = "g", topic: str = "t", partition: int = 0) -> OffsetCommitKey:
    return OffsetCommitKey(group=group, topic=topic, partition=partition)


def value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, commit_timestamp=1)


def committed(offsets: OffsetStore, group: str = "g", topic: str = "t", partition: int = 0) -> int | None:
    found = offsets.get(group, (topic, partition))
    return None if found is None else found.offset


def test_a_commit_is_there_at_once_and_the_next_one_takes_its_place() -> None:
    offsets = OffsetStore()
    offsets.replay(key(), value(1), None)
    offsets.replay(key(), value(5), None)
    assert committed(offsets) == 5
    assert list(offsets.of_group("g")) == [("t", 0)]


def test_a_tombstone_leaves_nothing_of_a_group_without_other_offsets() -> None:
    offsets = OffsetStore()
    offsets.replay(key(), value(1), None)
    offsets.replay(key(), None, None)
    assert list(offsets.groups()) == []
    assert offsets.durable() == OffsetStore().durable()


def test_offsets_of_a_transaction_are_pending_until_it_commits() -> None:
    offsets = OffsetStore()
    offsets.replay(key(), value(7), 40)
    assert committed(offsets) is None
    assert offsets.is_pending("g", ("t", 0))
    assert list(offsets.groups()) == ["g"]
    offsets.replay_end(40, True)
    assert committed(offsets) == 7
    assert not offsets.is_pending("g", ("t", 0))


def test_an_aborted_transaction_leaves_what_was_committed_before() -> None:
    offsets = OffsetStore()
    offsets.replay(key(), value(3), None)
    offsets.replay(key(), value(7), 40)
    offsets.replay_end(40, False)
    assert committed(offsets) == 3
    assert not offsets.pending_places("g")


def test_a_plain_commit_after_a_pending_one_counts_even_if_the_transaction_commits_later() -> None:
    offsets = OffsetStore()
    offsets.replay(key(), value(7), 40)
    offsets.replay(key(), value(9), None)
    assert offsets.is_pending("g", ("t", 0)), "the transaction is open all the same"
    offsets.replay_end(40, True)
    assert committed(offsets) == 9


def test_of_two_transactions_the_one_that_wrote_last_counts_whichever_ends_last() -> None:
    for first, second in ((40, 41), (41, 40)):
        offsets = OffsetStore()
        offsets.replay(key(), value(7), 40)
        offsets.replay(key(), value(9), 41)
        offsets.replay_end(first, True)
        offsets.replay_end(second, True)
        assert committed(offsets) == 9


def test_a_tombstone_takes_pending_offsets_with_it() -> None:
    offsets = OffsetStore()
    offsets.replay(key(), value(7), 40)
    offsets.replay(key(partition=1), value(8), 40)
    offsets.replay(key(), None, None)
    offsets.replay_end(40, True)
    assert committed(offsets) is None
    assert committed(offsets, partition=1) == 8


def test_the_end_of_a_transaction_without_offsets_changes_nothing() -> None:
    offsets = OffsetStore()
    offsets.replay_end(40, True)
    assert offsets.durable() == OffsetStore().durable()


class ByRecordOffset:
    """Kafka's rule, written down plainly: each commit knows its place in the log, and the later place wins."""

    def __init__(self) -> None:
        self.at = 0
        self.committed: dict[Any, tuple[int, int]] = {}
        self.pending: dict[int, dict[Any, tuple[int, int]]] = {}

    def write(self, place: Any, offset: int | None, producer: int | None) -> None:
        self.at += 1
        if offset is None:
            self.committed.pop(place, None)
            for places in self.pending.values():
                places.pop(place, None)
        elif producer is None:
            self.committed[place] = self.at, offset
        else:
            self.pending.setdefault(producer, {})[place] = self.at, offset

    def end(self, producer: int, commit: bool) -> None:
        for place, entry in self.pending.pop(producer, {}).items():
            if commit and entry > self.committed.get(place, (0, 0)):
                self.committed[place] = entry


PLACES = st.tuples(st.sampled_from("gh"), st.sampled_from("tu"), st.integers(0, 1))
WRITE = st.tuples(st.just("write"), PLACES, st.none() | st.integers(0, 99), st.none() | st.integers(1, 3))
END = st.tuples(st.just("end"), st.integers(1, 3), st.booleans())


@given(st.lists(WRITE | END, max_size=40))
def test_any_history_ends_as_the_order_in_the_log_says(history: list[Any]) -> None:
    offsets, model = OffsetStore(), ByRecordOffset()
    for event in history:
        if event[0] == "end":
            offsets.replay_end(event[1], event[2])
            model.end(event[1], event[2])
        else:
            _, place, offset, producer = event
            producer = None if offset is None else producer
            offsets.replay(key(*place), None if offset is None else value(offset), producer)
            model.write(place, offset, producer)
        found = {(g, *p): v.offset for g in offsets.groups() for p, v in offsets.of_group(g).items()}
        assert found == {place: offset for place, (_, offset) in model.committed.items()}
        pending = {(g, *p) for g in offsets.groups() for p in offsets.pending_places(g)}
        assert pending == {place for places in model.pending.values() for place in places}
