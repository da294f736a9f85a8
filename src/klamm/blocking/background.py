"""An event loop in a thread of its own, and how other threads have something done on it.

A thread that waits is not idle: a coroutine that works for it may ask it to call something meanwhile (`in_caller`). So
callbacks of a consumer run where the application called it, and may call it themselves.

Ctrl-C in a thread that waits cancels what it waits for. At the end of the interpreter the loop closes what it was given
to close. After a fork the child has no such thread: every call says so, and nothing is touched, since the sockets and
the poll object belong to the parent, too.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, NamedTuple, TypeVar

from klamm.client.errors import ClientError, Closed

T = TypeVar("T")

EXIT_LIMIT_S: Final = 10.0
"""How long a program that ends waits for a client to close."""
LOOK_S: Final = 0.5
"""A Ctrl-C in the moment before a thread begins to wait does not wake it: so it looks now and then."""

log = logging.getLogger("klamm.client")


class _Step(NamedTuple):
    """Something that the waiting thread should call."""

    function: Callable[[], Any]
    answer: asyncio.Future[Any]

    def run(self) -> None:
        try:
            result = self.function()
        except Exception as error:  # noqa: BLE001 - it goes on in the coroutine that asked
            self._tell(self.answer.set_exception, error)
        except BaseException:  # Ctrl-C: for the thread itself
            self.refuse()
            raise
        else:
            self._tell(self.answer.set_result, result)

    def refuse(self) -> None:
        self._tell(self.answer.set_exception, ClientError("A callback was not run: its thread was interrupted."))

    def _tell(self, tell: Callable[[Any], None], what: Any) -> None:
        def unless_given_up() -> None:
            if not self.answer.done():
                tell(what)

        try:
            self.answer.get_loop().call_soon_threadsafe(unless_given_up)
        except RuntimeError:
            pass  # the loop has ended, and with it whoever asked


class _Call(Generic[T]):
    """What one thread waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps: SimpleQueue[_Step | None] = SimpleQueue()
        self._task: asyncio.Task[T] | None = None
        self.is_over = False
        """Nobody is there for another step."""

    # On the loop.

    def begin(self, work: Callable[[], Awaitable[T]]) -> None:
        assert not self.is_over
        self._task = self._loop.create_task(self._run(work))
        self._task.add_done_callback(self._finished)  # also told of a task that never got to run

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        _CALL.set(self)
        return await work()

    def _finished(self, task: asyncio.Task[T]) -> None:
        self.is_over = True
        if not task.cancelled():
            task.exception()  # has been seen, also if the thread is gone by now
        self._steps.put(None)

    async def ask(self, function: Callable[[], Any]) -> Any:
        step = _Step(function, self._loop.create_future())
        self._steps.put(step)
        return await step.answer

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        self.is_over = True
        if self._task is None:  # the thread did not even get to ask for it
            self._steps.put(None)
        else:
            self._task.cancel()

    # In the thread.

    def wait(self) -> T:
        while (step := self._next()) is not None:
            step.run()
        # The task has its result, which may be large, and by its context this call: a ring that only a collector of
        # garbage would find, and after a hundred of them.
        task, self._task = self._task, None
        assert task is not None
        try:
            return task.result()
        except asyncio.CancelledError:
            raise Closed("The client was closed meanwhile.") from None

    def settle(self) -> None:
        """Wait until what was abandoned has ended."""
        while (step := self._next()) is not None:
            step.refuse()

    def _next(self) -> _Step | None:
        while True:
            try:
                return self._steps.get(timeout=LOOK_S)
            except Empty:
                pass


_CALL: ContextVar[_Call[Any] | None] = ContextVar("klamm_call", default=None)


async def in_caller(function: Callable[[], Any]) -> Any:
    """Call this in the thread that waits for the present task; if there is none, in a thread that may wait itself."""
    call = _CALL.get()
    if call is None or call.is_over:
        return await asyncio.get_running_loop().run_in_executor(None, function)
    return await call.ask(function)


class Background:
    """`close` is what has to be done before the loop ends, if nobody has done it before."""

    def __init__(self, what: str, close: Callable[[], Awaitable[None]]) -> None:
        self._what = what
        self._close = close
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._is_ending = False
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Event
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"klamm-{what}", daemon=True)
        self._thread.start()
        self._begun.wait()
        atexit.register(self._exit)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        finally:
            atexit.unregister(self._exit)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._begun.set()
        await self._ended.wait()

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have this done on the loop, and wait for it."""
        self.check()
        if threading.get_ident() == self._thread.ident:
            raise ClientError(
                f"A callback that the {self._what} runs in the background cannot wait for it.",
                "Let another thread do that.",
            )
        call: _Call[T] = _Call(self._loop)
        try:
            self.soon(call.begin, work)
            return call.wait()
        except Exception:
            raise
        except BaseException:  # Ctrl-C, at any moment
            self._give_up(call)
            raise

    def _give_up(self, call: _Call[Any]) -> None:
        if not call.is_over:
            try:
                self.soon(call.abandon)
            except Closed:
                return  # all that is there is being cancelled anyway
            call.settle()

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have this called on the loop, in the order of these calls."""
        self.check()
        with self._lock:  # what is queued before the end is still begun, and then hears of it
            if self._is_ending:
                raise Closed(f"This {self._what} is closed.")
            self._loop.call_soon_threadsafe(function, *arguments)

    @property
    def is_of_parent(self) -> bool:
        """There was a fork since, and this is the child: the thread is not here."""
        return os.getpid() != self._process

    def check(self) -> None:
        if self.is_of_parent:
            raise ClientError(
                f"This {self._what} was opened before the process forked, and belongs to the parent.",
                f"Open a {self._what} of its own in the child.",
            )

    def end(self) -> None:
        """End the loop with everything that is still going on there."""
        if self.is_of_parent:
            return
        with self._lock:
            if not self._is_ending:
                self._is_ending = True
                self._loop.call_soon_threadsafe(self._ended.set)
        if threading.get_ident() != self._thread.ident:
            self._thread.join()

    def end_soon(self) -> None:
        """The same, after closing, and without waiting: nobody has a use for the client any more."""
        try:
            self.soon(self._begin_closing)
        except ClientError:
            pass  # it ends already, or is somebody else's

    def _begin_closing(self) -> None:
        self._closing = asyncio.ensure_future(self._close_in_time())  # kept: a loop does not hold on to its tasks

    async def _close_in_time(self) -> None:
        try:
            await in_time(self._close, self._what)
        except ClientError as error:
            log.warning("Closing a %s: %s", self._what, error)
        finally:
            with self._lock:
                self._is_ending = True
            self._ended.set()

    def _exit(self) -> None:
        """The interpreter ends."""
        if not self.is_of_parent:
            self.end_soon()
            self._thread.join(EXIT_LIMIT_S + 1)


async def in_time(close: Callable[[], Awaitable[None]], what: str) -> None:
    """Close, but not for ever: the program is about to end."""
    try:
        async with asyncio.timeout(EXIT_LIMIT_S):
            await close()
    except TimeoutError:
        log.warning("A %s could not be closed properly within %g s.", what, EXIT_LIMIT_S)
