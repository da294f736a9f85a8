"""Several answers in one."""

from __future__ import annotations

from typing import Any

from klamm.apis.api import Pending
from klamm.apis.gather import gathered
from klamm.wire.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsResponse


def part(name: str) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name)])


def merged(parts: Any) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[result for one in parts for result in one.results])


def names(response: Any) -> list[str]:
    return [result.group_id for result in response.results]


def test_what_is_there_is_answered_at_once() -> None:
    assert names(gathered([part("a"), part("b")], merged)) == ["a", "b"]
    assert names(gathered([], merged)) == []


def test_the_last_one_to_come_completes_the_answer_whatever_the_order() -> None:
    first, second = Pending(), Pending()
    whole = gathered([first, part("b"), second], merged)
    assert isinstance(whole, Pending)
    told: list[Any] = []
    whole.then(told.append)
    second.set(part("c"))
    assert told == []
    first.set(part("a"))
    assert [names(response) for response in told] == [["a", "b", "c"]]


def test_parts_that_were_set_before_they_were_gathered_count() -> None:
    early = Pending()
    early.set(part("a"))
    whole = gathered([early], merged)
    assert isinstance(whole, Pending) and whole.done


def test_whoever_does_not_wait_any_more_waits_for_none_of_them() -> None:
    cancelled: list[str] = []
    parts = [Pending(lambda name=name: cancelled.append(name)) for name in "ab"]  # type: ignore[misc]
    whole = gathered(parts, merged)
    assert isinstance(whole, Pending)
    whole.cancel()
    assert cancelled == ["a", "b"]
