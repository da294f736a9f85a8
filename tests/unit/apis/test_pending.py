"""A response that comes later."""

from __future__ import annotations

from klamm.apis.api import Pending
from klamm.wire.messages.k12_heartbeat import HeartbeatResponse


def test_a_response_that_is_there_is_taken_at_once() -> None:
    pending, taken = Pending(), []
    pending.set(HeartbeatResponse(error_code=1))
    pending.then(taken.append)
    assert len(taken) == 1


def test_a_response_that_comes_later_goes_to_whoever_waits() -> None:
    pending, taken = Pending(), []
    pending.then(taken.append)
    assert not taken
    pending.set(HeartbeatResponse(error_code=1))
    pending.set(HeartbeatResponse(error_code=2))
    assert taken == [HeartbeatResponse(error_code=1)]


def test_a_cancelled_one_lets_go_and_answers_nobody() -> None:
    let_go: list[bool] = []
    taken: list[object] = []
    pending = Pending(lambda: let_go.append(True))
    pending.then(taken.append)
    pending.cancel()
    pending.cancel()
    pending.set(HeartbeatResponse(error_code=1))
    assert let_go == [True] and not taken


def test_cancelling_after_the_answer_does_nothing() -> None:
    let_go: list[bool] = []
    pending = Pending()
    pending.on_cancel(lambda: let_go.append(True))
    pending.set(HeartbeatResponse(error_code=1))
    pending.cancel()
    assert not let_go
