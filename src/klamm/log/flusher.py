"""Making a log durable: what a flush syncs and writes, run in the executor, one at a time for each log.

A flush covers the data of the segments since the recovery point, the indexes and producer snapshots of those that were
finished in between, the leader epochs if they changed, and the names of new files. The recovery point moves only after
all of that: below it, nothing is looked at again after a crash. A sync that failed is never tried again: the kernel may
have dropped the pages and would report success.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from klamm.core.env import Env, File, Files
from klamm.core.errors import ErrorCode
from klamm.log.epochs import CHECKPOINT_NAME
from klamm.log.results import Rejected
from klamm.log.segment import PASSING, Segment, write_file


class Finished(NamedTuple):
    """A segment that was rolled, and the producers' state at its end."""

    segment: Segment
    file: File
    indexes: tuple[bytes, bytes]
    snapshot_path: str
    snapshot: bytes


class Names(NamedTuple):
    """Changes of names that a sync makes durable: how many there were when it was decided on, and in which folders."""

    made: int
    folders: list[str]


class Plan(NamedTuple):
    """What one flush does; made on the loop, so that the job touches nothing that changes meanwhile."""

    target: int  # the recovery point afterwards
    folder: str
    finished: list[Finished]
    active: tuple[Segment, File] | None
    epochs: bytes | None
    names: Names

    def run(self, files: Files, stopped: Callable[[], bool]) -> OSError | None:
        """Blocks. What is returned says that there is no room for the small files; they can be written later. OSError
        for everything worse. Once it is stopped, nothing is written by name: names may be somebody else's by then."""
        synced = [(done.segment, done.file) for done in self.finished]
        if self.active is not None:
            synced.append(self.active)
        for segment, file in synced:
            file.sync()
            if segment.txns is not None:
                segment.txns.sync()
        try:
            for segment, _, indexes, snapshot_path, snapshot in self.finished:
                if stopped():
                    return None
                segment.write_indexes(files, indexes)
                write_file(files, snapshot_path, snapshot)
            if stopped():
                return None
            if self.epochs is not None:
                files.write_atomically(f"{self.folder}/{CHECKPOINT_NAME}", self.epochs)
        except OSError as error:
            if error.errno in PASSING:
                return error
            raise
        for folder in self.names.folders:
            files.sync_dir(folder)
        return None

    def pinned(self) -> list[File]:
        pins = [finished.file for finished in self.finished]
        if self.active is not None:
            pins.append(self.active[1])
        return pins


class Flusher:
    """Runs plans one after another; requests that come during one share the next. All calls on the loop.

    `plan(whole)` makes the next plan: all that is written, or without the active segment's data. `done` is called with
    each that was carried out, `postponed` with one for which there was no room, `failed` when there is no hope."""

    __slots__ = ("_done", "_env", "_failed", "_job", "_plan", "_postponed", "_waiting", "_wanted", "_whole", "stopped")

    def __init__(
        self,
        env: Env,
        *,
        plan: Callable[[bool], Plan | None],
        done: Callable[[Plan], None],
        postponed: Callable[[Plan], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._env = env
        self._plan = plan
        self._done = done
        self._postponed = postponed
        self._failed = failed
        self._job: asyncio.Future[tuple[OSError | None, OSError | None]] | None = None
        self._waiting: list[asyncio.Future[Rejected | None]] = []
        self._wanted = False
        self._whole = False
        self.stopped = False  # the log is going away: what runs shall end soon, nothing new starts

    @property
    def idle(self) -> bool:
        return self._job is None

    async def wait(self) -> None:
        """Until the running flush is done."""
        if self._job is not None:
            await asyncio.wait([self._job])

    def request(self, *, whole: bool) -> None:
        """Flush soon, nobody waits for it."""
        self._wanted = True
        self._whole |= whole
        if self._job is None:
            self._start()

    def flush(self) -> asyncio.Future[Rejected | None]:
        """Done when everything that is written now is durable."""
        future: asyncio.Future[Rejected | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.request(whole=True)
        return future

    def _start(self) -> None:
        waiting, self._waiting = self._waiting, []
        whole, self._whole, self._wanted = self._whole, False, False
        try:
            plan = self._plan(whole)
        except OSError as error:
            if error.errno not in PASSING:  # else the next request tries again
                self._failed(error)
            _settle(waiting, error)
            return
        if plan is None:
            _settle(waiting, None)
            return
        pinned = plan.pinned()
        for file in pinned:
            file.pin()
        self._job = self._env.executor.submit(_run, plan, self._env.files, lambda: self.stopped)
        self._job.add_done_callback(lambda job: self._finished(job, plan, pinned, waiting))

    def _finished(
        self,
        job: asyncio.Future[tuple[OSError | None, OSError | None]],
        plan: Plan,
        pinned: list[File],
        waiting: list[asyncio.Future[Rejected | None]],
    ) -> None:
        self._job = None
        for file in pinned:
            file.unpin()
        if job.cancelled():
            return  # the loop is going down
        fatal, no_room = job.result()
        if fatal is not None:
            self._failed(fatal)
        elif no_room is not None:
            self._postponed(plan)
        else:
            self._done(plan)
        error = fatal or no_room
        _settle(waiting, error)
        if error is not None:
            waiting, self._waiting = self._waiting, []
            _settle(waiting, error)
            self._wanted = self._whole = False
        elif self._wanted:
            self._start()


def _run(plan: Plan, files: Files, stopped: Callable[[], bool]) -> tuple[OSError | None, OSError | None]:
    """What went wrong for good, and what did for want of room."""
    try:
        return None, plan.run(files, stopped)
    except OSError as error:
        return error, None


def _settle(waiting: list[asyncio.Future[Rejected | None]], error: OSError | None) -> None:
    answer = None if error is None else Rejected(ErrorCode.KAFKA_STORAGE_ERROR, f"flush failed: {error}")
    for future in waiting:
        if not future.done():
            future.set_result(answer)
