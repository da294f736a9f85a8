from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.log.epochs import UNDEFINED, CheckpointError, LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


def test_an_epoch_is_news_only_once() -> None:
    made = LeaderEpochs()
    assert made.assign(2, 10)
    assert not made.assign(2, 11)
    assert not made.assign(2, 10)
    assert made.assign(3, 20)
    assert made.entries() == [(2, 10), (3, 20)]
    assert made.latest == 3


def test_an_epoch_that_wrote_nothing_is_replaced() -> None:
    assert epochs((1, 0), (2, 10), (3, 10)).entries() == [(1, 0), (3, 10)]


def test_what_contradicts_a_new_entry_goes() -> None:
    assert epochs((1, 0), (4, 10), (6, 20), (5, 15)).entries() == [(1, 0), (4, 10), (5, 15)]
    assert epochs((1, 5), (1, 3)).entries() == [(1, 3)]


def test_the_end_of_the_latest_epoch_is_the_end_of_the_log() -> None:
    assert epochs((1, 0), (3, 10)).end_offset_for(3, 25) == (3, 25)


def test_an_epoch_ends_where_the_next_one_starts() -> None:
    assert epochs((1, 0), (3, 10), (7, 20)).end_offset_for(3, 25) == (3, 20)


def test_an_epoch_that_is_not_known_is_answered_with_the_one_before_it() -> None:
    assert epochs((1, 0), (3, 10), (7, 20)).end_offset_for(5, 25) == (3, 20)


def test_an_epoch_before_all_known_ones_ends_where_the_log_starts() -> None:
    assert epochs((4, 100), (5, 120)).end_offset_for(2, 130) == (2, 100)


def test_what_cannot_be_answered_is_undefined() -> None:
    assert epochs((1, 0)).end_offset_for(-1, 5) == UNDEFINED
    assert epochs((1, 0)).end_offset_for(2, 5) == UNDEFINED
    assert LeaderEpochs().end_offset_for(0, 5) == UNDEFINED


def test_an_offset_belongs_to_the_epoch_that_wrote_it() -> None:
    made = epochs((1, 5), (3, 10))
    assert [made.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]


def test_cutting_the_end_forgets_epochs_that_start_there() -> None:
    made = epochs((1, 0), (3, 10), (7, 20))
    assert not made.truncate_from_end(21)
    assert made.truncate_from_end(10)
    assert made.entries() == [(1, 0)]


def test_cutting_the_start_moves_the_epoch_that_holds_it() -> None:
    made = epochs((1, 0), (3, 10), (7, 20))
    assert not made.truncate_from_start(0)
    assert made.truncate_from_start(15)
    assert made.entries() == [(3, 15), (7, 20)]
    assert made.truncate_from_start(20)
    assert made.entries() == [(7, 20)]
    assert not made.truncate_from_start(3)


def test_the_checkpoint_has_kafkas_text_format() -> None:
    made = epochs((1, 0), (3, 10))
    assert made.dump() == b"0\n2\n1 0\n3 10\n"
    assert LeaderEpochs.load(b"0\n2\n1 0\n3 10\n").entries() == [(1, 0), (3, 10)]
    assert LeaderEpochs.load(b"0\n0\n").entries() == []


@pytest.mark.parametrize(
    "text",
    [b"", b"0", b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\nx y\n", b"0\n2\n3 10\n1 20\n", b"0\n2\n1 10\n2 10\n", b"\xff\xfe",
     b"0\n1\n1\n", b"0\n1\n-1 0\n", b"0\n1\n1 2 3\n"],
)  # fmt: skip
def test_a_damaged_checkpoint_is_refused(text: bytes) -> None:
    with pytest.raises(CheckpointError):
        LeaderEpochs.load(text)


LOGS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12)
"""How a sound log grows: the epoch rises by so much, then so many records are written."""


@settings(max_examples=150, deadline=None)
@given(LOGS, st.integers(0, 30), st.integers(0, 30), st.integers(-1, 26))
def test_every_answer_is_the_one_a_list_of_all_offsets_gives(
    log: list[tuple[int, int]], start: int, end: int, asked: int
) -> None:
    made = LeaderEpochs()
    written: list[int] = []  # the epoch of each offset
    epoch = 0
    for rise, count in log:
        epoch += rise
        if count:
            made.assign(epoch, len(written))
            written += [epoch] * count
    end = min(end, len(written))
    start = min(start, end)
    made.truncate_from_end(end)
    if start < end:
        made.truncate_from_start(start)
    else:
        made.clear()
    made = LeaderEpochs.load(made.dump())

    held = {offset: written[offset] for offset in range(start, end)}
    assert [made.epoch_for_offset(offset) for offset in held] == list(held.values())
    assert made.latest == max(held.values(), default=-1)
    if asked < 0 or asked > made.latest:
        assert made.end_offset_for(asked, end) == UNDEFINED
    else:
        later = [offset for offset, e in held.items() if e > asked]
        known = [e for e in held.values() if e <= asked]
        assert made.end_offset_for(asked, end) == (max(known, default=asked), min(later, default=end))
