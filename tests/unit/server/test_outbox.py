from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from klamm.core.env import FileRange, Part
from klamm.server.limits import InFlight
from klamm.server.outbox import Outbox


class FakeSender:
    def __init__(self) -> None:
        self.sends: list[list[Part]] = []
        self.queued_bytes = 0

    def send(self, parts: Sequence[Part]) -> None:
        self.sends.append(list(parts))

    def close(self) -> None: ...


class FakeFile:
    def __init__(self) -> None:
        self.pins = 0

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1
        assert self.pins >= 0


class Box:
    def __init__(self) -> None:
        self.sender = FakeSender()
        self.in_flight = InFlight()
        self.room = 0
        self.outbox = Outbox(self.sender, self.in_flight, self._on_room)

    def _on_room(self) -> None:
        self.room += 1


@pytest.fixture
def box() -> Box:
    return Box()


def range_of(file: Any, size: int = 10) -> FileRange:
    return FileRange(file, 0, size)


def test_an_answer_leaves_at_once_when_nothing_is_before_it(box: Box) -> None:
    box.outbox.answer([b"a"])
    assert box.sender.sends == [[b"a"]]
    assert box.in_flight.requests == 0


def test_an_answer_waits_for_those_before_it_and_all_leave_in_one_send(box: Box) -> None:
    first = box.outbox.reserve(10)
    second = box.outbox.reserve(20)
    box.outbox.answer([b"3"])
    assert (box.in_flight.requests, box.in_flight.bytes, box.outbox.in_flight_bytes) == (3, 30, 30)
    second.fill([b"2"])
    assert box.sender.sends == []
    assert box.outbox.held_bytes == 2
    first.fill([b"1"])
    assert box.sender.sends == [[b"1", b"2", b"3"]]
    assert (box.in_flight.requests, box.in_flight.bytes, box.outbox.in_flight_bytes) == (0, 0, 0)
    assert box.outbox.held_bytes == 0
    assert box.room == 1


def test_an_answer_that_is_nothing_only_frees_its_place(box: Box) -> None:
    first = box.outbox.reserve(1)
    box.outbox.answer([b"2"])
    first.fill([])
    assert box.sender.sends == [[b"2"]]
    box.outbox.reserve(1).fill([])
    assert box.sender.sends == [[b"2"]]


def test_files_of_an_answer_that_waits_are_pinned_until_it_was_handed_on(box: Box) -> None:
    file = FakeFile()
    first = box.outbox.reserve(1)
    box.outbox.answer([b"head", range_of(file), range_of(file, 0)])
    assert file.pins == 2
    first.fill([b"1", range_of(file)])
    assert file.pins == 0
    assert box.sender.sends == [[b"1", range_of(file), b"head", range_of(file), range_of(file, 0)]]


def test_small_answers_between_cork_and_uncork_leave_together(box: Box) -> None:
    box.outbox.cork()
    box.outbox.answer([b"1"])
    box.outbox.answer([b"2"])
    assert box.sender.sends == []
    box.outbox.uncork()
    assert box.sender.sends == [[b"1", b"2"]]
    box.outbox.answer([b"3"])
    assert box.sender.sends[1:] == [[b"3"]]


def test_a_file_does_not_wait_for_the_uncork(box: Box) -> None:
    file = FakeFile()
    box.outbox.cork()
    box.outbox.answer([b"1"])
    box.outbox.answer([b"2", range_of(file)])
    box.outbox.answer([range_of(file)])
    box.outbox.answer([b"3"])
    box.outbox.uncork()
    assert box.sender.sends == [[b"1", b"2", range_of(file)], [range_of(file)], [b"3"]]


def test_large_answers_do_not_pile_up_between_cork_and_uncork(box: Box) -> None:
    box.outbox.cork()
    for _ in range(10):
        box.outbox.answer([bytes(30_000)])
    assert len(box.sender.sends) == 3
    box.outbox.uncork()
    assert sum(len(part) for parts in box.sender.sends for part in parts) == 300_000


def test_the_order_holds_when_a_slot_is_filled_while_corked(box: Box) -> None:
    box.outbox.cork()
    box.outbox.answer([b"1"])
    slot = box.outbox.reserve(1)
    box.outbox.answer([b"3"])
    slot.fill([b"2"])
    box.outbox.answer([b"4"])
    box.outbox.uncork()
    assert [part for parts in box.sender.sends for part in parts] == [b"1", b"2", b"3", b"4"]


def test_closing_cancels_what_was_not_filled_and_lets_go_of_the_files(box: Box) -> None:
    file = FakeFile()
    cancelled: list[str] = []
    first = box.outbox.reserve(5)
    first.cancel = lambda: cancelled.append("first")
    box.outbox.answer([range_of(file)])
    third = box.outbox.reserve(5)
    third.cancel = lambda: cancelled.append("third")
    box.outbox.close()
    assert cancelled == ["first", "third"]
    assert file.pins == 0
    assert (box.in_flight.requests, box.in_flight.bytes) == (0, 0)
    first.fill([b"too late"])
    assert box.sender.sends == []


def test_an_answer_given_twice_is_a_broken_invariant(box: Box) -> None:
    box.outbox.reserve(1)
    second = box.outbox.reserve(1)
    second.fill([b"2"])
    with pytest.raises(AssertionError):
        second.fill([b"2"])
