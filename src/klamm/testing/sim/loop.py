"""An asyncio loop in virtual time.

Nothing waits: when no callback is ready the clock jumps to the next timer. When there is no timer either, everybody
waits for somebody, and that is an error. Callbacks of a dead incarnation are dropped. The order of what is ready at
one moment is asyncio's within a process (FIFO, which programs rely on) and random between processes (where nobody
may). There is no file descriptor behind this loop and it must never get one.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random  # noqa: TID251 - made from the seed alone
from typing import Any, TypeVar

from klamm.testing.sim.incarnation import Incarnation, current

T = TypeVar("T")

START_S = 1_000.0
MAX_TICK_S = 20e-6  # how much time a round of callbacks takes at most: time must pass, or races between timers hide
MAX_ROUNDS = 20_000_000


class Deadlock(Exception):
    """Nothing is scheduled, and what we wait for has not happened."""


class OutOfTime(Exception):
    """The run took more virtual time, or more rounds of callbacks, than it was given."""


class _Jump:
    """Where a selector would sleep, the clock jumps."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.next_round(timeout)
        return []

    def close(self) -> None:
        pass


class SimLoop(asyncio.BaseEventLoop):
    # What BaseEventLoop has and its stubs do not say. These names are the same in Python 3.8 to 3.14.
    _ready: Any
    _selector: Any
    _clock_resolution: float

    def __init__(self, rng: Random | int = 0) -> None:
        super().__init__()
        self._rng = rng if isinstance(rng, Random) else Random(rng)
        self._now = START_S
        self._selector = _Jump(self)
        self._clock_resolution = 1e-9
        self._rounds_left = MAX_ROUNDS
        self.end_of_time = float("inf")
        self.outside = Incarnation("outside")  # keeps the tasks that belong to no process; never dies
        self.failures: list[dict[str, Any]] = []  # what nobody handled: a test looks at it when the run is over
        self.set_task_factory(_make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass in the middle of a callback, as a blocking call or a stopped process does."""
        assert seconds >= 0
        self._now += seconds

    def run(self, main: Coroutine[Any, Any, T], *, limit_s: float = 24 * 3600.0) -> T:
        self.end_of_time = self._now + limit_s
        return self.run_until_complete(main)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """For the end of the world: what is closed now may still schedule something, as its `finally` blocks do, and
        none of it will happen. A loop that is closed would raise instead, in the middle of code that died long ago."""
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(running)

    def next_round(self, timeout: float | None) -> None:
        if timeout is None:
            raise Deadlock("nothing is scheduled: every task waits for something that nobody is going to do")
        self._now += timeout + self._rng.random() * MAX_TICK_S
        self._rounds_left -= 1
        if self._rounds_left < 0:
            raise OutOfTime("too many rounds of callbacks: a loop that never waits?")
        if self._now > self.end_of_time:
            raise OutOfTime(f"virtual time went past {self.end_of_time:.3f} s")
        if len(self._ready) > 1:
            self._interleave()

    def _interleave(self) -> None:
        """Shuffle what is ready, but leave the callbacks of one process in their order."""
        owners = [handle._args[0] if handle._args else None for handle in self._ready]
        if all(owner is owners[0] for owner in owners):
            return
        queues: dict[int, list[Any]] = {}
        for owner, handle in zip(owners, self._ready, strict=True):
            queues.setdefault(id(owner), []).append(handle)
        order = [id(owner) for owner in owners]
        self._rng.shuffle(order)
        turns = {owner: iter(queue) for owner, queue in queues.items()}
        self._ready.clear()
        self._ready.extend(next(turns[owner]) for owner in order)

    # --- every way to schedule something goes through the guard ---

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        return super().call_soon(self._guard, context.get(current), callback, args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        return super().call_at(when, self._guard, context.get(current), callback, args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def _guard(self, owner: Incarnation | None, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if owner is not None and not owner.alive:
            return
        try:
            callback(*args)
        except Exception:
            if owner is None or owner.alive:
                raise
            # Its process died in the middle of it: nobody is there to see what it raised.

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        owner = current.get()
        if owner is None or owner.alive:
            self.failures.append(context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        raise AssertionError("threads come from env.executor")

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _make_task(loop: SimLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    context = options.get("context")
    owner = current.get() if context is None else context.get(current)
    (owner or loop.outside).adopt(task)
    return task
