"""Clock, randomness and threads of the real environment."""

from __future__ import annotations

import asyncio
import threading

import pytest

from klamm.core.env.real import RealClock, ThreadExecutor, real_env
from klamm.core.ids import uuid_from_text, uuid_text


def test_the_clocks_go_forward():
    clock = RealClock()
    first, wall = clock.monotonic(), clock.time_ms()
    assert clock.monotonic() >= first
    assert wall > 1_700_000_000_000


def test_a_seed_makes_ids_repeatable_and_they_are_version_4():
    one, two = real_env(seed=1), real_env(seed=1)
    ids = [one.uuid() for _ in range(5)]
    assert ids == [two.uuid() for _ in range(5)]
    assert len(set(ids)) == 5
    for raw in ids:
        assert len(raw) == 16 and raw[6] >> 4 == 4 and raw[8] >> 6 == 2
        assert uuid_from_text(uuid_text(raw)) == raw


def test_without_a_seed_ids_differ():
    assert real_env().uuid() != real_env().uuid()


async def test_a_job_runs_in_another_thread_and_its_result_comes_back():
    executor = ThreadExecutor(2)
    thread, value = await executor.submit(lambda x: (threading.get_ident(), x), 5)
    assert value == 5
    assert thread != threading.get_ident()
    executor.close()


async def test_what_a_job_raises_comes_back():
    executor = ThreadExecutor(1)

    def fail():
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await executor.submit(fail)
    executor.close()


async def test_closing_waits_for_what_was_submitted_and_may_be_repeated():
    executor = ThreadExecutor(2)
    gate, done = threading.Event(), []

    def job():
        gate.wait(20)
        done.append(1)

    futures = [executor.submit(job) for _ in range(3)]
    gate.set()
    executor.close()
    executor.close()
    await asyncio.gather(*futures)
    assert done == [1, 1, 1]


def test_an_executor_that_was_never_used_has_no_threads():
    before = threading.active_count()
    executor = ThreadExecutor(4)
    assert threading.active_count() == before
    executor.close()
