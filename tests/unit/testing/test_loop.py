from __future__ import annotations

import asyncio
import gc

import pytest

from klamm.testing.sim.incarnation import Incarnation, Killed
from klamm.testing.sim.loop import Deadlock, OutOfTime, SimLoop


def run(main, seed=0, **options):
    loop = SimLoop(seed)
    try:
        return loop.run(main(loop), **options)
    finally:
        loop.close()
        loop.outside.bury()


def test_a_year_passes_in_no_time():
    async def main(loop):
        start = loop.time()
        for _ in range(365):
            await asyncio.sleep(86400)
        return loop.time() - start

    assert run(main, limit_s=1e9) == pytest.approx(365 * 86400, rel=1e-6)


def test_timers_fire_in_their_order():
    async def main(loop):
        seen = []
        for delay in (3, 1, 2):
            loop.call_later(delay, seen.append, delay)
        await asyncio.sleep(5)
        return seen

    assert run(main) == [1, 2, 3]


def test_waiting_for_what_nobody_does_is_a_deadlock():
    async def main(loop):
        await loop.create_future()

    with pytest.raises(Deadlock):
        run(main)


def test_a_run_that_goes_on_and_on_is_stopped():
    async def main(loop):
        while True:
            await asyncio.sleep(60)

    with pytest.raises(OutOfTime):
        run(main, limit_s=3600)


def test_timeouts_work_in_virtual_time():
    async def main(loop):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 30)
        return loop.time()

    assert run(main) == pytest.approx(1030, abs=0.1)


def test_an_exception_that_nobody_handles_is_kept():
    async def main(loop):
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)
        return loop.failures

    assert isinstance(run(main)[0]["exception"], ZeroDivisionError)


def test_a_dead_process_does_nothing_more_and_its_finally_blocks_do_not_run():
    seen = []

    async def process(loop):
        loop.call_later(1, seen.append, "callback before")
        loop.call_later(3, seen.append, "callback after")
        try:
            while True:
                await asyncio.sleep(0.9)
                seen.append("tick")
        finally:
            seen.append("finally")

    async def main(loop):
        incarnation = Incarnation("broker")
        incarnation.spawn(process(loop))
        await asyncio.sleep(2)
        incarnation.die()
        gc.collect()
        await asyncio.sleep(10)
        gc.collect()
        return list(seen)

    assert run(main) == ["tick", "callback before", "tick"]


def test_what_a_process_starts_belongs_to_it():
    seen = []

    async def child():
        await asyncio.sleep(5)
        seen.append("child")

    async def process():
        tasks = [asyncio.create_task(child()), asyncio.ensure_future(child())]
        await asyncio.gather(*tasks)

    async def main(loop):
        incarnation = Incarnation("broker")
        incarnation.spawn(process())
        await asyncio.sleep(1)
        incarnation.die()
        await asyncio.sleep(10)

    run(main)
    assert seen == []


def test_those_who_wait_for_a_process_hear_of_its_death():
    async def forever(loop):
        await loop.create_future()

    async def main(loop):
        incarnation = Incarnation("broker")
        loop.call_later(1, incarnation.die)
        with pytest.raises(Killed):
            await incarnation.run(forever(loop))
        with pytest.raises(Killed):
            await incarnation.run(forever(loop))

    run(main)


def test_results_and_errors_of_a_process_come_out():
    async def good():
        await asyncio.sleep(1)
        return 7

    async def bad():
        raise ValueError("no")

    async def main(loop):
        incarnation = Incarnation("broker")
        with pytest.raises(ValueError):
            await incarnation.run(bad())
        return await incarnation.run(good())

    assert run(main) == 7


def interleaving(seed):
    async def main(loop):
        seen = []
        for name in "ab":
            context = Incarnation(name).context()
            for i in range(5):
                loop.call_soon(seen.append, f"{name}{i}", context=context)
        await asyncio.sleep(1)
        return seen

    return run(main, seed)


def test_callbacks_of_one_process_keep_their_order_and_those_of_two_may_not():
    for seed in range(50):
        seen = interleaving(seed)
        assert [x for x in seen if x[0] == "a"] == [f"a{i}" for i in range(5)]
        assert [x for x in seen if x[0] == "b"] == [f"b{i}" for i in range(5)]
    assert len({tuple(interleaving(seed)) for seed in range(50)}) > 20
    assert interleaving(3) == interleaving(3)
