"""What a log knows of itself, how it opens, and how it fails. The rest is in layers above, one for each direction:

durable.py     to the disk: rolling, flushing, queued writes, closing
appending.py   in
log.py         out, and what time and truncation do to it

A log that was closed cleanly opens without touching the disk and loads at its first use. One that was not is recovered
before it opens (`recovery.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from klamm.core.env import Env
from klamm.core.errors import ErrorCode
from klamm.log.config import LogConfig
from klamm.log.epochs import LeaderEpochs
from klamm.log.flusher import Flusher
from klamm.log.handles import Handles
from klamm.log.producer_state import ProducerStates
from klamm.log.reader import Reader
from klamm.log.recovery import LogDamaged, load_segments, recover
from klamm.log.replay import load_epochs, producers_at
from klamm.log.results import LogState, Rejected
from klamm.log.segment import PASSING, Segment, remove_if_there
from klamm.log.segments import Segments
from klamm.log.writer import Writer
from klamm.records.batch import CorruptBatch

FRESH: Final = LogState(0, 0, 0, 0)

_logger = logging.getLogger("klamm.log")


class LogBase:
    __slots__ = (
        "_active",
        "_before_cut",
        "_clock",
        "_cut_for",
        "_cutting",
        "_epoch",
        "_epochs",
        "_epochs_dirty",
        "_flusher",
        "_folder_is_new",
        "_names_made",
        "_names_synced",
        "_next_offset",
        "_on_create",
        "_position",
        "_producers",
        "_reader",
        "_rolled",
        "_segments",
        "_writer",
        "clean_offset",
        "config",
        "dirty_since_ms",
        "end_offset",
        "env",
        "failure",
        "handles",
        "high_watermark",
        "listener",
        "name",
        "on_availability",
        "path",
        "recovery_point",
        "start_offset",
        "swapping",
    )

    def __init__(
        self,
        env: Env,
        path: str,
        config: LogConfig,
        name: str,
        handles: Handles,
        state: LogState,
        on_create: Callable[[], None] | None,
        on_availability: Callable[[Any], None] | None = None,
    ) -> None:
        self.env = env
        self.path = path
        self.config = config  # may be replaced at any time
        self.name = name
        self.handles = handles
        self.start_offset = state.start_offset
        self.end_offset = state.end_offset  # written and visible
        self.recovery_point = state.recovery_point  # all below is durable
        self.high_watermark = state.high_watermark  # kept here for the replica layer, saved with the state
        self.clean_offset = state.clean_offset  # all below is compacted
        self.failure: str | None = None  # why this log is offline
        self.listener: Callable[[Any], None] | None = None  # called with the log: `end_offset` moved, or it failed
        self.on_availability = on_availability  # called with the log: it went offline, or is back; on the loop or not
        self.dirty_since_ms = -1  # since when something waits for a flush
        self.swapping: asyncio.Future[None] | None = None  # compaction is about to change names in the folder
        self._on_create = on_create
        self._clock = env.clock
        self._next_offset = state.end_offset  # ahead of end_offset while writes are queued
        self._position = 0  # in the active segment, where the next batch goes
        self._epoch = -1  # the leader epoch of the last append
        self._segments: Segments | None = None  # None: not loaded
        self._active: Segment | None = None
        self._reader: Reader | None = None
        self._producers: ProducerStates | None = None
        self._epochs: LeaderEpochs | None = None
        self._epochs_dirty = False
        self._folder_is_new = False
        self._names_made = 0  # changes of names in the folder
        self._names_synced = 0  # how many of them are durable
        self._rolled: list[tuple[Segment, bytes]] = []  # finished, not flushed; with the producers' state at its end
        self._writer: Writer | None = None  # None: writes go inline
        self._flusher: Flusher | None = None
        self._cutting: asyncio.Future[None] | None = None
        self._before_cut: ProducerStates | None = None  # the producers with the batches that are being cut off
        self._cut_for: str | None = None  # the failure that ends when the log is cut back

    # ---- state

    def state(self) -> LogState:
        return LogState(self.start_offset, self.end_offset, self.recovery_point, self.high_watermark, self.clean_offset)

    @property
    def touched(self) -> bool:
        """Whether anything was read or written since a clean start."""
        return self._segments is not None

    @property
    def next_offset(self) -> int:
        """What the next record gets: ahead of `end_offset` while writes are queued."""
        return self._next_offset

    @property
    def is_behind(self) -> bool:
        """Whether its writes queue up for a thread, because the disk is slow or each has to be synced."""
        return self._writer is not None

    @property
    def size_bytes(self) -> int:
        return self._loaded().size_bytes

    @property
    def producers(self) -> ProducerStates:
        if self._producers is None:  # `is`: a state without producers counts as false
            try:
                segments = self._loaded()
                self._producers = producers_at(self.env.files, segments, self.end_offset, self._clock.time_ms())
            except (OSError, CorruptBatch) as error:
                if passes(error):
                    raise
                self._fail(f"the state of its producers cannot be read: {error}")
                return ProducerStates()
        return self._producers

    @property
    def epochs(self) -> LeaderEpochs:
        if self._epochs is None:
            try:
                self._epochs, rebuilt = load_epochs(self.env.files, self.path, self._loaded().items)
            except (OSError, CorruptBatch) as error:
                if passes(error):
                    raise
                self._fail(f"its leader epochs cannot be read: {error}")
                return LeaderEpochs()
            self._epochs_dirty |= rebuilt
        return self._epochs

    # ---- opening

    def load(self) -> None:
        """Look at the folder of a log that was closed cleanly. Done at first use; may be run in the executor before.

        OSError where the trouble may pass, as with too many open files: whoever comes next tries again."""
        if self._segments is not None or self.failure is not None:
            return
        try:
            segments, leftovers = load_segments(self.env, self.path, self.config, self.state())
        except (LogDamaged, CorruptBatch):
            self._recover(self.state())  # somebody has changed the files since the clean stop
            return
        except OSError as error:
            if passes(error):
                raise
            self._fail(f"cannot be opened: {error}")
            return
        self._adopt(segments)
        if leftovers:
            self._remove_later(leftovers)

    def _loaded(self) -> Segments:
        if self._segments is None:
            self.load()
        return self._segments or Segments(self.handles, self.path)

    def _adopt(self, segments: Segments) -> None:
        segments.use(self.handles)
        self._segments = segments
        self._reader = Reader(segments)
        self._active = segments.items[-1] if segments.items else None
        self._position = self._active.size if self._active is not None else 0
        if self._active is not None:
            self._active.jitter_ms = self._jitter_ms()

    def _jitter_ms(self) -> int:
        """How much earlier than `segment.ms` a segment ends. Chosen once for each, as by Kafka."""
        most = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self.env.rng.randrange(most) if most > 0 else 0

    def _recover(self, checkpoint: LogState) -> None:
        """Blocks. Sets `failure` where something below the recovery point is damaged."""
        try:
            found = recover(self.env, self.path, self.config, checkpoint)
        except (LogDamaged, OSError) as damage:
            if isinstance(damage, LogDamaged):
                self._fail(f"{damage}; stop the broker and run: klamm log repair {self.path}")
            else:
                self._fail(f"cannot be recovered: {damage}")
            self.start_offset, self.end_offset, self.recovery_point, self.high_watermark, self.clean_offset = checkpoint
            return
        self.start_offset = found.start_offset
        self.end_offset = self._next_offset = found.end_offset
        self.recovery_point = found.end_offset if found.durable else min(checkpoint.recovery_point, found.end_offset)
        self._epochs_dirty = not found.durable
        self._names_made += not found.durable
        self.high_watermark = min(max(checkpoint.high_watermark, found.start_offset), found.end_offset)
        self.clean_offset = min(checkpoint.clean_offset, found.end_offset)
        self._producers = found.producers
        self._epochs = found.epochs
        self._epoch = found.epochs.latest
        self._adopt(found.segments)

    def _remove_later(self, paths: list[str]) -> None:
        """Off the loop: removing a large file can take long."""
        files = self.env.files

        def remove() -> None:
            for path in paths:
                try:
                    remove_if_there(files, path)
                except OSError:
                    pass  # tried again at the next start

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            remove()
        else:
            self.env.executor.submit(remove)

    # ---- failing

    def fail(self, reason: str) -> None:
        """Somebody who works on the log's files has left them in a state that nobody may go on with."""
        self._fail(reason)
        self._tell()

    def _offline(self) -> Rejected:
        return Rejected(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline: {self.failure}")

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            _logger.error("The log %s is offline: %s", self.name, reason)
        self.failure = reason
        self._availability_changed()

    def _availability_changed(self) -> None:
        if self.on_availability is not None:
            self.on_availability(self)

    def _tell(self) -> None:
        if self.listener is not None:
            self.listener(self)


def passes(error: Exception) -> bool:
    """Whether what failed may well work the next time."""
    return isinstance(error, OSError) and error.errno in PASSING
