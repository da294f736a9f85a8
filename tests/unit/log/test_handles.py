from __future__ import annotations

import asyncio
from typing import Any

from klamm.log.handles import Handles


class Holder:
    def __init__(self, name: str, closed: list[str]) -> None:
        self.name = name
        self.closed = closed
        self.file: Any = self
        self.file_used = False
        self.maps_used = False

    def close(self) -> None:
        self.closed.append(self.name)

    def drop_maps(self) -> None:
        self.closed.append(f"maps of {self.name}")


def test_the_oldest_goes_first_unless_it_was_used() -> None:
    closed: list[str] = []
    handles = Handles(None, max_open=3)  # type: ignore[arg-type]
    a, b, c, d, e = (Holder(name, closed) for name in "abcde")
    for holder in (a, b, c):
        handles.opened(holder)
    a.file_used = True
    handles.opened(d)
    assert closed == ["b"] and b.file is None and handles.open_count == 3
    handles.opened(e)
    assert closed == ["b", "c"]
    b.file = b
    handles.opened(b)
    assert closed == ["b", "c", "a"]  # its second chance is used up


def test_maps_have_a_limit_of_their_own() -> None:
    closed: list[str] = []
    handles = Handles(None, max_mapped=2)  # type: ignore[arg-type]
    a, b, c = (Holder(name, closed) for name in "abc")
    for holder in (a, b):
        handles.opened(holder)
        handles.mapped(holder)
    a.maps_used = True
    handles.mapped(c)
    assert closed == ["maps of b"] and handles.mapped_count == 2


def test_forgetting_closes_everything_once() -> None:
    closed: list[str] = []
    handles = Handles(None)  # type: ignore[arg-type]
    a = Holder("a", closed)
    handles.opened(a)
    handles.mapped(a)
    handles.forget(a)
    handles.forget(a)
    assert closed == ["a", "maps of a"] and handles.open_count == handles.mapped_count == 0


def test_all_used_still_finds_one_to_close() -> None:
    closed: list[str] = []
    handles = Handles(None, max_open=2)  # type: ignore[arg-type]
    holders = [Holder(str(i), closed) for i in range(5)]
    for holder in holders:
        handles.opened(holder)
        holder.file_used = True
    assert len(closed) == 3 and handles.open_count == 2


async def test_shared_ones_stay_open_until_the_turn_is_over() -> None:
    closed: list[str] = []
    handles = Handles(None, shared=True)  # type: ignore[arg-type]
    handles.opened(holder := Holder("a", closed))
    handles.forget(holder)
    assert closed == []
    await asyncio.sleep(0)
    assert closed == ["a"]
