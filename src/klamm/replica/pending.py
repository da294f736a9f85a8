"""An answer that comes later: whoever works on a request sets it, whoever has to send it takes it.

Everything happens on the loop, at once, and without a task. This module must never know what the answer is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klamm.wire.schema import Response


class Pending:
    """A response that comes later. The handler sets it once; the server takes it with `then`, on the loop.

    `cancel` is the server's: the connection is gone, nobody will read the answer, whatever was held for it can go.
    `alone`: until it is answered, the connection's next requests are left unread.
    """

    __slots__ = ("_callback", "_on_cancel", "_response", "alone", "done")

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self.done = False
        self.alone = False
        self._response: Response | None = None
        self._callback: Callable[[Response], None] | None = None
        self._on_cancel = on_cancel

    def set(self, response: Response) -> None:
        """Answer. After a cancel it goes nowhere."""
        if self.done:
            return
        self.done = True
        self._on_cancel = None
        callback, self._callback = self._callback, None
        if callback is None:
            self._response = response
        else:
            callback(response)

    def then(self, callback: Callable[[Response], None]) -> None:
        """Call `callback` with the response: at once if it is there, else from within `set`. Only one taker."""
        assert self._callback is None, "a pending response has one taker"
        if self._response is not None:
            response, self._response = self._response, None
            callback(response)
        elif not self.done:
            self._callback = callback

    async def wait(self) -> Response:
        """The response, for a coroutine that has to wait for it: the one taker."""
        arrived: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.then(lambda response: None if arrived.done() else arrived.set_result(response))
        try:
            return await arrived
        finally:
            self.cancel()  # of no effect if it is there

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """What to let go of when the answer is not wanted any more."""
        self._on_cancel = callback

    def cancel(self) -> None:
        if self.done:
            return
        self.done = True
        self._callback = None
        on_cancel, self._on_cancel = self._on_cancel, None
        if on_cancel is not None:
            on_cancel()
