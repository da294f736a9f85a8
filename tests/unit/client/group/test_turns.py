"""What waits for the application: in order, once, and to its end."""

from __future__ import annotations

import asyncio

import pytest

from klamm.client.group.turns import Turns


class Application:
    def __init__(self) -> None:
        self.wanted = False
        self.did: list[str] = []
        self.turns = Turns(self._tell)

    def _tell(self, wanted: bool) -> None:
        self.wanted = wanted

    async def note(self, what: str) -> None:
        self.did.append(f"{what} begins")
        await asyncio.sleep(0)
        self.did.append(f"{what} ends")


async def test_work_is_done_in_the_next_turn_and_in_order() -> None:
    app = Application()
    first = asyncio.ensure_future(app.turns.ask(lambda: app.note("one")))
    second = asyncio.ensure_future(app.turns.ask(lambda: app.note("two")))
    await asyncio.sleep(0)
    assert app.wanted and not app.did
    await app.turns.run()
    assert app.did == ["one begins", "one ends", "two begins", "two ends"]
    assert not app.wanted
    await asyncio.gather(first, second)


async def test_what_is_given_up_before_its_turn_is_not_done() -> None:
    app = Application()
    asked = asyncio.ensure_future(app.turns.ask(lambda: app.note("one")))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait((asked,))
    assert not app.wanted
    await app.turns.run()
    assert not app.did


async def test_an_error_is_the_applications_and_the_background_goes_on() -> None:
    app = Application()

    async def fails() -> None:
        raise ValueError("no")

    asked = asyncio.ensure_future(app.turns.ask(fails))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="no"):
        await app.turns.run()
    await asked
    assert not app.wanted


async def test_an_application_that_goes_away_in_the_middle_finds_it_done_or_waits_for_it() -> None:
    app = Application()
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()
        await app.note("slow")

    asked = asyncio.ensure_future(app.turns.ask(slow))
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(app.turns.run(), 0.01)
    assert app.wanted, "its next turn waits for what has begun"
    again = asyncio.ensure_future(app.turns.run())
    await asyncio.sleep(0)
    assert not again.done()
    gate.set()
    await again
    await asked
    assert app.did == ["slow begins", "slow ends"]
    assert not app.wanted
