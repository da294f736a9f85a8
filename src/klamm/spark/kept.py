"""Clients that outlive a task. Spark's Python workers serve one task after another, and to connect anew for each would
cost more than most tasks do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closes)

_Key = tuple[tuple[str, str], ...]


class Kept(Generic[C]):
    """One spare client at most for each configuration, and the `limit` last used of them. A client is lent to one task
    at a time; one in whose hands something went wrong is closed and not kept. They end with the process. It is for one
    thread, as a worker is."""

    def __init__(self, open_: Callable[[Mapping[str, str]], C], limit: int | None = None) -> None:
        self._open = open_
        self._limit = limit
        self._spare: dict[_Key, C] = {}
        self._pid = os.getpid()

    @contextmanager
    def lend(self, config: Mapping[str, str]) -> Iterator[C]:
        key = tuple(sorted(config.items()))
        client = self._take(key) or self._open(config)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        before, self._spare[key] = self._spare.get(key), client
        if before is not None:
            before.close()
        while self._limit is not None and len(self._spare) > self._limit:
            self._spare.pop(next(iter(self._spare))).close()

    def _take(self, key: _Key) -> C | None:
        if self._pid != os.getpid():  # those of a parent process are not ours
            self._spare.clear()
            self._pid = os.getpid()
        return self._spare.pop(key, None)
