"""What takes the answer to a request in place of a future."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from klamm.client.errors import ClientError


class Reply:
    """Takes it at once, without another turn of the loop. Only an error has a turn of its own, because it may be
    noticed in the middle of sending something else."""

    __slots__ = ("_done", "_take")

    def __init__(self, take: Callable[[Any, ClientError | None], None]) -> None:
        self._take = take
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, answer: Any) -> None:
        self._done = True
        self._take(answer, None)

    def set_exception(self, error: ClientError) -> None:
        self._done = True
        asyncio.get_running_loop().call_soon(self._take, None, error)

    def exception(self) -> None:
        """A future has to be told that somebody cares."""
