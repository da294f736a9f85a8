"""Spark's part in the life of a sink, without Spark: processes that write as tasks do, or commit as a driver does.

Each can be told to stop at one of its next requests, before it is sent or when its answer is there. One that has
stopped can be killed, which is a `kill -9` at that very moment, or can go on much later, as a zombie does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

LIMIT_S = 90

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["support.sink_actors", "klamm.spark.sink.writer", "pyarrow", "klamm.blocking"])


@dataclass(frozen=True)
class Stopped:
    """At a request; `go_on` or `kill` it."""


@dataclass(frozen=True)
class Failed:
    text: str
    kind: str


class Actor:
    """A process. It does one thing at a time: `start` it, then `outcome` waits for what comes of it."""

    def __init__(self, options: dict[str, str]) -> None:
        self._talk, theirs = _context.Pipe()
        self._notices, their_notices = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(theirs, their_notices, options), daemon=True)
        self._process.start()
        theirs.close()
        their_notices.close()
        self.is_busy = False
        self.is_stopped = False

    def start(self, what: str, *args: Any, stop_at: tuple[int, bool] | None = None) -> None:
        """`write(job, rows)`, `commit(job, written)`, `abort(job, written)` or `give up(job, [])`. `stop_at`: at the
        how manieth request, and whether after its answer."""
        assert not self.is_busy
        self.is_busy = True
        self._talk.send((what, args, stop_at))

    def outcome(self) -> Any:
        """What was returned, or `Failed`, or `Stopped`."""
        ready = wait([self._talk, self._notices, self._process.sentinel], LIMIT_S)
        assert ready, "nothing was heard of an actor"
        if self._notices in ready:
            self._notices.recv()
            self.is_stopped = True
            return Stopped()
        assert self._talk in ready, f"an actor has died by itself: {self._process.exitcode}"
        self.is_busy = False
        return self._talk.recv()

    def go_on(self) -> None:
        assert self.is_stopped
        self.is_stopped = False
        self._notices.send(None)

    def kill(self) -> None:
        self._process.kill()
        self._process.join(LIMIT_S)
        self._talk.close()
        self._notices.close()


# In the process.


class _Stops:
    """Counts requests, and stops at one."""

    def __init__(self, notices: Connection) -> None:
        self._notices = notices
        self.left: int | None = None
        self.after = False

    def count(self, *, after: bool) -> None:
        if self.left is not None and after is self.after:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                self._notices.send(None)
                self._notices.recv()


def _serve(talk: Connection, notices: Connection, given: dict[str, str]) -> None:
    from klamm.client.connection import Connection as BrokerConnection
    from klamm.spark.options import SinkOptions
    from klamm.spark.sink.driver import give_up
    from klamm.spark.sink.task import write
    from klamm.spark.sink.writer import Message, _Writes

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stops = _Stops(notices)
    put, answered = BrokerConnection._put, BrokerConnection._answered

    def stop_before(self: Any, *args: Any) -> None:
        stops.count(after=False)
        put(self, *args)

    def stop_after(self: Any, *args: Any) -> None:
        stops.count(after=True)
        answered(self, *args)

    BrokerConnection._put = stop_before  # type: ignore
    BrokerConnection._answered = stop_after  # type: ignore

    class Driver(_Writes):
        options = SinkOptions.parse(given)

    def act(what: str, job: Any, things: Sequence[Any]) -> Any:
        if what == "give up":
            return give_up(Driver.options.client, job.sink, job.run, are_at_work=False)
        if what == "write":
            return write(_batches(things), Driver.options, job)
        messages = [None if one is None else Message(one) for one in things]
        return Driver()._commit(job, messages) if what == "commit" else Driver()._abort(job, messages)

    while True:
        try:
            what, args, stop_at = talk.recv()
        except EOFError:
            os._exit(0)
        stops.left, stops.after = stop_at or (None, False)
        try:
            result = act(what, *args)
        except Exception as error:
            result = Failed(str(error), type(error).__name__)
        stops.left = None
        talk.send(result)


def _batches(rows: Sequence[tuple[bytes, bytes]], size: int = 4) -> Any:
    import pyarrow as pa

    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        columns = {"key": [key for key, _ in part], "value": [value for _, value in part]}
        yield pa.RecordBatch.from_pydict(columns, pa.schema({"key": pa.binary(), "value": pa.binary()}))
