"""How a running pipeline is doing: figures of each of its queries, in a file that others read.

The process that runs a pipeline writes the file, whole and at once, beside the checkpoints; it is the only one that
does. How far a query is behind is not in it: that is told by its group's offsets, also when nobody runs the pipeline.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from klamm.core.env import Files
from klamm.spark.pipelines.model import Pipeline

State: TypeAlias = Literal["starting", "running", "done", "stopped", "failed", "dead"]

FILE: Final = "status.json"
WINDOW_S: Final = 10.0
"""Rates are of so many seconds."""
STALE_MS: Final = 30_000
"""A status that is older, and says that it runs, is of a process that has died or hangs."""
_VERSION: Final = 1
_ALIVE: Final[tuple[State, ...]] = ("starting", "running")


@dataclass(frozen=True)
class QueryStatus:
    name: str
    """Of the flow; of the input, if these are its dead letters."""
    group: str
    """That has the offsets up to which it has read."""
    is_dead_letters: bool = False
    state: State = "starting"
    error: str | None = None
    batch: int | None = None
    """The number of the last one that is done."""
    batch_ms: int | None = None
    batch_rows: int | None = None
    rows_in: int = 0
    """Since the process began."""
    rows_out: int = 0
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    state_rows: int | None = None
    """What it remembers; null for a query without state."""
    watermark: str | None = None


@dataclass(frozen=True)
class Status:
    pipeline: str
    bootstrap: str
    host: str
    pid: int
    started_ms: int
    at_ms: int
    state: State
    queries: tuple[QueryStatus, ...] = ()

    def to_bytes(self) -> bytes:
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Status:
        found = json.loads(data)
        found.pop("version")
        queries = tuple(QueryStatus(**one) for one in found.pop("queries"))
        return cls(queries=queries, **found)

    def seen(self, now_ms: int, host: str, is_there: Callable[[int], bool]) -> Status:
        """As somebody finds it who looks now, on this host: a process that has died has not written so."""
        is_dead = host == self.host and not is_there(self.pid)
        if self.state not in _ALIVE or not (is_dead or now_ms - self.at_ms > STALE_MS):
            return self
        queries = tuple(replace(one, state="dead") if one.state in _ALIVE else one for one in self.queries)
        return replace(self, state="dead", queries=queries)


def path_of(pipeline: Pipeline) -> str:
    """In the folder of the checkpoints, or where that would be if they are elsewhere."""
    folder = pipeline.checkpoints if is_local(pipeline.checkpoints) else os.path.join(pipeline.folder, ".checkpoints")
    return os.path.join(folder.removeprefix("file://"), FILE)


def is_local(folder: str) -> bool:
    return "://" not in folder or folder.startswith("file://")


def read(files: Files, pipeline: Pipeline) -> Status | None:
    """None: it has never run here, or was run by a Klamm that wrote something else."""
    try:
        return Status.from_bytes(files.read(path_of(pipeline)))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


@dataclass
class Meter:
    """The figures of one query, as its batches end. Bounded by the batches that end within the window. One thread tells
    of batches while another asks for figures."""

    name: str
    group: str
    is_dead_letters: bool = False
    state: State = "starting"
    error: str | None = None
    rows_in: int = 0
    rows_out: int = 0
    _last: Mapping[str, Any] = field(default_factory=dict)
    _began_s: float | None = None
    _recent: deque[tuple[float, int, int]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, now_s: float, rows_in: int, rows_out: int, last: Mapping[str, Any]) -> None:
        """A batch has ended; `last` has the fields of QueryStatus that are of the last batch."""
        with self._lock:
            if self._began_s is None:
                self._began_s = now_s
            self.rows_in += rows_in
            self.rows_out += rows_out
            self._last = last
            self._recent.append((now_s, rows_in, rows_out))
            self._forget(now_s)
        self.is_up()

    def is_up(self) -> None:
        """It has read what there is, be it nothing."""
        if self.state == "starting":
            self.state = "running"

    def _forget(self, now_s: float) -> None:
        while self._recent and self._recent[0][0] <= now_s - WINDOW_S:
            self._recent.popleft()

    def figures(self, now_s: float) -> QueryStatus:
        with self._lock:
            return self._figures(now_s)

    def _figures(self, now_s: float) -> QueryStatus:
        self._forget(now_s)
        span_s = WINDOW_S if self._began_s is None else min(WINDOW_S, max(1.0, now_s - self._began_s))
        return QueryStatus(
            self.name,
            self.group,
            self.is_dead_letters,
            self.state,
            self.error,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            rows_in_per_s=round(sum(one[1] for one in self._recent) / span_s, 1),
            rows_out_per_s=round(sum(one[2] for one in self._recent) / span_s, 1),
            **self._last,
        )
