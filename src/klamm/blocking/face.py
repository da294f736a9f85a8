"""What the blocking clients share: opening and closing, and methods that wait for those of the asyncio client."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from klamm.blocking.background import Background, in_time
from klamm.client.errors import ClientError, Closed

P = ParamSpec("P")
T = TypeVar("T")


class Client(Protocol):
    """What is behind a face, and lives on the loop."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Client)
F = TypeVar("F", bound="Face[Any]")


class Face(Generic[C]):
    """Safe to use from any number of threads. Nothing on the loop refers to it: one that is dropped unclosed is noticed
    and closed in the background."""

    what: ClassVar[str] = "client"

    def __init__(self, client: C) -> None:
        self._client = client
        self._background: Background | None = None
        self._was_open = False
        self._opening = threading.RLock()
        self._is_closing = False

    def __enter__(self: F) -> F:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(self._client.close, kind)

    def start(self) -> None:
        """Connect. `NotReachable` if no broker is to be found."""
        with self._opening:
            if self._background is not None:
                raise ClientError(f"This {self.what} is open already.")
            background = Background(self.what, self._client.close)
            try:
                background.call(self._client.start)
            except BaseException:
                background.end()
                raise
            self._background = background
            self._was_open = True
            self._forsaken = weakref.finalize(self, _forsaken, background, self.what)
            self._forsaken.atexit = False  # the background sees to that itself

    def close(self) -> None:
        """Do what is still to be done, and end. Closing twice is fine."""
        self._close(self._client.close)

    def _leave(self, close: Callable[[], Awaitable[None]], kind: type[BaseException] | None) -> None:
        """The end of a `with` block. Who presses Ctrl-C does not want to wait for a broker that does not answer."""
        interrupted = kind is not None and not issubclass(kind, Exception)
        self._close(partial(in_time, close, self.what) if interrupted else close)

    def _close(self, work: Callable[[], Awaitable[None]]) -> None:
        with self._opening:
            if self._background is None or self._is_closing:  # or: a callback of the consumer that is being closed
                return
            if self._background.is_of_parent:
                return  # theirs, with all that is still to be done
            self._is_closing = True
            try:
                self._background.call(work)
            finally:
                self._forsaken.detach()
                self._background.end()
                self._background = None
                self._is_closing = False

    def _open(self) -> Background:
        background = self._background
        if background is None:
            if self._was_open:
                raise Closed(f"This {self.what} is closed.")
            raise Closed(f"This {self.what} is not open.", "Use it in a `with` block, or call `start` first.")
        background.check()  # before any lock is taken: after a fork it may be held by a thread that is not here
        return background

    def _wait(self, work: Callable[[], Awaitable[T]]) -> T:
        return self._open().call(work)

    def _do(self, function: Callable[[], T]) -> T:
        """Call this where the client lives; before it does, here."""
        background = self._background
        if background is None:
            return function()

        async def work() -> T:
            return function()

        return background.call(work)


def _forsaken(background: Background, what: str) -> None:
    warnings.warn(f"A {what} was not closed.", ResourceWarning, stacklevel=2)
    background.end_soon()


def waits(method: Callable[Concatenate[Any, P], Awaitable[T]]) -> Callable[Concatenate[Any, P], T]:
    """A coroutine method of the client, as a method of its face."""

    @wraps(method)
    def wait(self: Face[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(partial(method, self._client, *args, **kwargs))

    return wait


def does(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The same of an ordinary one."""

    @wraps(method)
    def do(self: Face[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._do(partial(method, self._client, *args, **kwargs))

    return do
