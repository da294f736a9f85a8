"""A response that comes later."""

from __future__ import annotations

from klamm.apis.api import Encoded, Pending


def test_a_response_that_is_there_is_taken_at_once() -> None:
    pending, taken = Pending(), []
    pending.set(Encoded(b"x"))
    pending.then(taken.append)
    assert len(taken) == 1


def test_a_response_that_comes_later_goes_to_whoever_waits() -> None:
    pending, taken = Pending(), []
    pending.then(taken.append)
    assert not taken
    pending.set(Encoded(b"x"))
    pending.set(Encoded(b"y"))
    assert [t.body for t in taken] == [b"x"]


def test_a_cancelled_one_lets_go_and_answers_nobody() -> None:
    let_go: list[bool] = []
    taken: list[object] = []
    pending = Pending(lambda: let_go.append(True))
    pending.then(taken.append)
    pending.cancel()
    pending.cancel()
    pending.set(Encoded(b"x"))
    assert let_go == [True] and not taken


def test_cancelling_after_the_answer_does_nothing() -> None:
    let_go: list[bool] = []
    pending = Pending()
    pending.on_cancel(lambda: let_go.append(True))
    pending.set(Encoded(b"x"))
    pending.cancel()
    assert not let_go
