"""A loop in a thread of its own, without any client."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator

import pytest

from klamm.blocking.background import Background, in_caller
from klamm.errors import ClientError, Closed


@pytest.fixture
def closed() -> list[str]:
    return []


@pytest.fixture
def background(closed: list[str]) -> Iterator[Background]:
    async def close() -> None:
        closed.append(threading.current_thread().name)

    started = Background("client", close)
    yield started
    started.end()


def test_a_call_gives_what_the_coroutine_gives_and_raises_what_it_raises(background: Background) -> None:
    async def name() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ValueError("no")

    assert background.call(name) == "klamm-client"
    with pytest.raises(ValueError, match="no"):
        background.call(fail)


def test_a_callback_runs_in_the_thread_that_waits_and_may_wait_itself(background: Background) -> None:
    async def three() -> int:
        return 3

    async def work() -> tuple[str, int]:
        where = await in_caller(lambda: threading.current_thread().name)
        return where, await in_caller(lambda: background.call(three) + 1)

    assert background.call(work) == (threading.current_thread().name, 4)


def test_what_a_callback_raises_comes_out_of_the_call(background: Background) -> None:
    async def work() -> None:
        await in_caller(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        background.call(work)


def test_a_callback_for_nobody_runs_in_a_thread_that_may_wait(background: Background) -> None:
    found: list[int] = []
    told = threading.Event()

    async def three() -> int:
        return 3

    async def later() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        found.append(await in_caller(lambda: background.call(three)))
        told.set()

    tasks = []

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(later()))

    background.call(begin)
    assert told.wait(10) and found == [3]


def test_ctrl_c_cancels_what_is_waited_for(background: Background) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)  # it is waited for, whatever it still does
            cancelled.set()

    def press() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        background.call(work)
    assert cancelled.is_set()


def test_ctrl_c_in_a_callback_does_not_hurt_the_loop(background: Background) -> None:
    async def work() -> None:
        await in_caller(lambda: os.kill(os.getpid(), signal.SIGINT) or threading.Event().wait(10))

    async def three() -> int:
        return 3

    with pytest.raises(KeyboardInterrupt):
        background.call(work)
    assert background.call(three) == 3


def test_ctrl_c_in_a_callback_is_told_to_whoever_asked_for_it(background: Background) -> None:
    """Also if that is not the task that the thread waited for, which is cancelled."""
    asking: list[asyncio.Future[object]] = []

    async def work() -> None:
        asking.append(asyncio.ensure_future(in_caller(lambda: signal.raise_signal(signal.SIGINT))))
        await asyncio.Event().wait()

    async def outcome() -> object:
        return await asyncio.wait_for(asking[0], 60)

    with pytest.raises(KeyboardInterrupt):
        background.call(work)
    with pytest.raises(ClientError, match="its thread was interrupted"):
        background.call(outcome)


def test_whoever_waits_when_the_loop_ends_hears_of_it(background: Background) -> None:
    begun = threading.Event()
    outcomes: list[BaseException] = []

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            background.call(work)
        except Closed as error:
            outcomes.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    background.end()
    thread.join(10)
    assert len(outcomes) == 1
    with pytest.raises(Closed):
        background.call(work)


def test_the_loop_cannot_wait_for_itself(background: Background) -> None:
    async def three() -> int:
        return 3

    async def work() -> None:
        background.call(three)

    with pytest.raises(ClientError, match="cannot wait"):
        background.call(work)


def test_one_that_is_dropped_is_closed_and_ends(background: Background, closed: list[str]) -> None:
    background.end_soon()
    background._thread.join(10)
    assert closed == ["klamm-client"] and not background._thread.is_alive()


def test_a_close_that_never_ends_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("klamm.blocking.background.EXIT_LIMIT_S", 0.01)

    async def close() -> None:
        await asyncio.Event().wait()

    background = Background("client", close)
    background.end_soon()
    background._thread.join(60)
    assert not background._thread.is_alive()
    assert caplog.messages == ["A client could not be closed properly within 0.01 s."]


def test_what_a_call_gave_is_freed_with_the_last_who_has_it(background: Background) -> None:
    """And not when garbage is next collected: it may be a record batch of many megabytes."""

    class Large:
        pass

    async def make() -> Large:
        return Large()

    gc.disable()
    try:
        found = background.call(make)
        background.call(lambda: asyncio.sleep(0))  # so that the loop has let go of the task
        gone = weakref.ref(found)
        del found
        assert gone() is None
    finally:
        gc.enable()
