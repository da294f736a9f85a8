from __future__ import annotations

import asyncio

from klamm.core.slices import Sliced, at_once, in_slices


def work(slices: int) -> Sliced[str]:
    for _ in range(slices):
        yield
    return "done"


def test_work_can_be_done_at_once() -> None:
    assert at_once(work(0)) == at_once(work(3)) == "done"


async def test_others_have_a_turn_at_every_yield() -> None:
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await in_slices(work(0)) == "done" and not turns
    assert await in_slices(work(3)) == "done" and len(turns) == 3
    task.cancel()
