"""All logs of a broker: found and recovered at start, made, deleted, looked after, and closed.

After a clean stop the state file says all there is to know, and nothing is read for a log until somebody uses it: ten
thousand partitions cost one file and one listing. After any other stop every log is recovered before the broker
serves, off the loop and a few at a time. A log that fails is offline; the others go on.

Calls are made on the loop. Which topics there are is the metadata image's business: the manager gets to know it by
`topic_id_for`, which must only be asked once the image is up to date, because a folder of a topic that the image does
not have is removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from klamm.core.env import Env, Files
from klamm.core.ids import ZERO_UUID, uuid_text
from klamm.log.closing import MANY_LOGS, close_logs
from klamm.log.compaction.plan import Settings
from klamm.log.config import LogConfig
from klamm.log.folder import (
    DELETED_SUFFIX,
    STRAY_SUFFIX,
    DataFolder,
    SavedLog,
    SavedState,
    partition_name,
    read_topic_id,
    split_name,
    state_line,
    topic_id_name,
)
from klamm.log.handles import MAX_OPEN_SEGMENTS, Handles
from klamm.log.housekeeping import DEFAULT_INTERVALS, SLICE, Housekeeping, Intervals, sliced
from klamm.log.log import Log
from klamm.log.removal import Remover
from klamm.log.results import LogState

if TYPE_CHECKING:
    from klamm.log.compaction.cleaner import Cleaner

RECOVERY_THREADS: Final = 4  # logs recovered at a time
PROGRESS_SECONDS: Final = 5.0
RENAMES_PER_TURN: Final = 16  # deleted partitions set aside before the loop gets its turn: about 0.5 ms

_EMPTY: Final = LogState(0, 0, 0, 0)

ConfigFor: TypeAlias = Callable[[str], LogConfig]
TopicIdFor: TypeAlias = Callable[[str, int], bytes | None]

logger = logging.getLogger("klamm.log")


class LogManager:
    """`watermark` tells the high watermark of a log; where there is one replica that is its end.

    `offline` has the partitions whose log has failed, by topic: empty in normal times. `offline_version` grows with
    every change of it, for whoever keeps what depends on it."""

    __slots__ = (
        "_aside_task",
        "_caps",
        "_checkpoints",
        "_config_for",
        "_housekeeping",
        "_ids",
        "_logs",
        "_many_logs",
        "_moving_starts",
        "_saved",
        "_saving",
        "_setting_aside",
        "_starts",
        "_written",
        "cleaner",
        "cleaning",
        "env",
        "folder",
        "handles",
        "offline",
        "offline_version",
        "remover",
        "was_clean",
        "watermark",
    )

    def __init__(
        self,
        env: Env,
        folder: DataFolder,
        config_for: ConfigFor,
        intervals: Intervals = DEFAULT_INTERVALS,
        max_open_segments: int = MAX_OPEN_SEGMENTS,
        many_logs: int = MANY_LOGS,
    ) -> None:
        self.env = env
        self.folder = folder
        self.handles = Handles(env.files, max_open=max_open_segments, shared=True)
        self.remover = Remover(env)
        self.was_clean = False  # the last stop
        self.cleaner: Cleaner | None = None  # once there are jobs
        self.cleaning = Settings()  # how it compacts; may be replaced at any time
        self.watermark: Callable[[Log], int] = _end_offset
        self.offline: dict[str, set[int]] = {}
        self.offline_version = 0
        self._config_for = config_for
        self._housekeeping = Housekeeping(self, intervals)
        self._many_logs = many_logs
        self._logs: dict[str, Log] = {}
        self._ids: dict[str, bytes] = {}  # the topic id of each open log
        self._saved: dict[str, SavedLog] = {}  # closed cleanly, and not asked for since
        self._checkpoints: dict[str, LogState] = {}  # of logs that could not be recovered: what is known of them
        self._setting_aside: dict[str, tuple[Log | None, int]] = {}  # deleted, still under their name; delay of removal
        self._aside_task: asyncio.Task[None] | None = None
        self._caps: dict[str, int] = {}  # recovery points that must not be written higher: a truncation is under way
        self._starts: dict[Log, int] = {}  # start offsets that are written before they are in force
        self._moving_starts = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._written: list[str] | None = None  # the lines of the state file, if we wrote it

    # ---- start

    @classmethod
    async def open(
        cls,
        env: Env,
        folder: DataFolder,
        *,
        config_for: ConfigFor,
        topic_id_for: TopicIdFor,
        intervals: Intervals = DEFAULT_INTERVALS,
        threads: int = RECOVERY_THREADS,
        max_open_segments: int = MAX_OPEN_SEGMENTS,
        many_logs: int = MANY_LOGS,
    ) -> LogManager:
        """Know all logs of the folder; recover those that were not closed. Blocks nothing; raises OSError only if the
        folder itself cannot be read or written."""
        manager = cls(env, folder, config_for, intervals, max_open_segments, many_logs)
        saved, names = await env.executor.submit(_survey, folder)
        manager.was_clean = saved.clean
        pending = manager._sort_out(saved, names, topic_id_for)
        if pending:
            await manager._recover_all(pending, threads)
        return manager

    def start(self) -> None:
        """Begin with retention, flush.ms, compaction and the other jobs of the clock."""
        from klamm.log.compaction.cleaner import Cleaner  # knows of this module

        self._housekeeping.start()
        self.cleaner = Cleaner(self)
        self.cleaner.start()

    def _sort_out(
        self, saved: SavedState, names: Iterable[str], topic_id_for: TopicIdFor
    ) -> list[tuple[str, bytes, LogState | None]]:
        """Trust what was closed cleanly, set aside what belongs to no topic, and return what has to be recovered:
        (name, topic id, what is known of it)."""
        pending: list[tuple[str, bytes, LogState | None]] = []
        missing = dict(saved.logs)
        for name in names:
            if name.endswith(DELETED_SUFFIX):
                self.remover.later(self.folder.log_path(name), 0, folder=True)
                continue
            parts = split_name(name)
            if parts is None:
                logger.warning("%s is no partition's folder; it is left alone.", self.folder.log_path(name))
                continue
            log = missing.pop(name, None)
            topic_id = topic_id_for(*parts)
            if topic_id is None:
                self._set_aside_later(name, None, 0)
            elif log is None or not log.clean:
                pending.append((name, topic_id, log.state if log and log.topic_id == topic_id else None))
            elif log.topic_id == topic_id:
                self._saved[name] = log
            else:
                self._set_aside_later(name, None, 0)
        for name, log in missing.items():
            parts = split_name(name)
            if parts and log.state.recovery_point > 0 and topic_id_for(*parts) == log.topic_id:
                pending.append((name, log.topic_id, log.state))  # the folder is gone: the log will say so
        return pending

    async def _recover_all(self, pending: list[tuple[str, bytes, LogState | None]], threads: int) -> None:
        logger.info("Recovering %d logs.", len(pending))
        loop = asyncio.get_running_loop()
        begun = last = loop.time()
        queue = iter(pending)
        done = 0

        async def work() -> None:
            nonlocal done, last
            for name, topic_id, checkpoint in queue:
                await self._recover(name, topic_id, checkpoint)
                done += 1
                if loop.time() - last >= PROGRESS_SECONDS:
                    last = loop.time()
                    logger.info("Recovered %d of %d logs.", done, len(pending))

        await asyncio.gather(*(work() for _ in range(min(threads, len(pending)))))
        offline = sum(log.failure is not None for log in self._logs.values())
        logger.info("Recovered %d logs in %.1f s; %d are offline.", done - offline, loop.time() - begun, offline)

    async def _recover(self, name: str, topic_id: bytes, checkpoint: LogState | None) -> None:
        config = self._config_for(_topic_of(name))
        path = self.folder.log_path(name)
        durable = checkpoint is not None and checkpoint.recovery_point > 0
        found = await self.env.executor.submit(_topic_id_of, self.env.files, path, durable)
        if found == ZERO_UUID and not (checkpoint and checkpoint.recovery_point) and self.env.files.exists(path):
            self._put_out_of_the_way(name)
            return
        if found not in (ZERO_UUID, topic_id):
            self._set_aside_later(name, None, 0)
            return
        log = await self.env.executor.submit(partial(self._open, name, topic_id, config, None, checkpoint))
        if log.failure and checkpoint is not None:
            self._checkpoints[name] = checkpoint
        self._logs[name] = log
        self._ids[name] = topic_id
        self._note_availability(name)

    # ---- logs

    def get(self, topic: str, partition: int) -> Log | None:
        """The log if it is open."""
        return self._logs.get(partition_name(topic, partition))

    def get_or_create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """The log of a partition. Nothing is read or written for it: files appear with the first append."""
        name = partition_name(topic, partition)
        log = self._logs.get(name)
        if log is not None:
            if self._ids[name] == topic_id:
                log.config = config
                return log
            self.delete(topic, partition)
        saved = self._saved.pop(name, None)
        if saved is not None and saved.topic_id != topic_id:
            self._set_aside_later(name, None, 0)
            saved = None
        if name in self._setting_aside:
            self._set_aside(name)
        log = self._open(name, topic_id, config, saved.state if saved else _EMPTY, None)
        self._logs[name] = log
        self._ids[name] = topic_id
        return log

    def delete(self, topic: str, partition: int) -> None:
        """The partition is gone. Its files go off the loop, after `file.delete.delay.ms`."""
        name = partition_name(topic, partition)
        log = self._logs.pop(name, None)
        self._ids.pop(name, None)
        self._checkpoints.pop(name, None)
        self._note_availability(name)
        if log is not None:
            self._set_aside_later(name, log, log.config.file_delete_delay_ms)
        elif self._saved.pop(name, None) is not None:
            self._set_aside_later(name, None, self._config_for(topic).file_delete_delay_ms)

    def logs(self) -> list[Log]:
        return list(self._logs.values())

    def survey(self) -> Iterator[tuple[str, LogState, Log | None]]:
        """Every log by name, with where it stands; those too that nobody has asked for since a clean start. As of now:
        whoever takes a while to go through them may meet one that is gone."""
        opened = [(name, log.state(), log) for name, log in self._logs.items()]
        unopened = [(name, saved.state, None) for name, saved in self._saved.items()]
        yield from opened
        yield from unopened

    async def retain_unopened(self, now_ms: int) -> None:
        """Retention for logs that nobody has asked for since a clean start: they grow old too. Looked at off the loop,
        and forgotten again if there is nothing to delete."""
        await self.visit_unopened(lambda config: True, lambda log: self.delete_old_segments(log, now_ms))

    async def visit_unopened(self, wanted: Callable[[LogConfig], bool], look: Callable[[Log], bool]) -> None:
        """Have a look at logs that nobody has asked for since a clean start; those stay open of which it says so."""
        for some in sliced(list(self._saved.items()), SLICE):
            for name, saved in some:
                config = self._config_for(_topic_of(name))
                if saved.state.end_offset == saved.state.start_offset or not wanted(config):
                    continue
                log = self._open(name, saved.topic_id, config, saved.state, None)
                await self.env.executor.submit(log.load)
                if self._saved.get(name) is saved and (look(log) or log.failure):
                    del self._saved[name]
                    self._logs[name] = log
                    self._ids[name] = saved.topic_id
                    self._note_availability(name)
                else:
                    log.discard()
            await asyncio.sleep(0)

    def in_use(self, log: Log) -> bool:
        """Whether a log is still a partition's, works, and nobody is cutting it."""
        return self._logs.get(log.name) is log and log.failure is None and log.name not in self._caps

    def delete_old_segments(self, log: Log, now_ms: int) -> bool:
        """True if there were any."""
        paths = log.delete_old_segments(now_ms, self.watermark(log))
        for path in paths:
            self.remover.later(path, log.config.file_delete_delay_ms)
        return bool(paths)

    def _open(
        self, name: str, topic_id: bytes, config: LogConfig, state: LogState | None, checkpoint: LogState | None
    ) -> Log:
        return Log.open(
            self.env,
            self.folder.log_path(name),
            config,
            name=name,
            state=state,
            checkpoint=checkpoint,
            handles=self.handles,
            on_create=partial(self._created, name, topic_id),
            on_availability=self._availability_changed,
        )

    def _created(self, name: str, topic_id: bytes) -> None:
        """The first append has made the folder; its first flush makes all names in it durable."""
        self.env.files.open(f"{self.folder.log_path(name)}/{topic_id_name(topic_id)}", create=True).close()

    # ---- logs that are offline

    def _availability_changed(self, log: Log) -> None:
        """A log has failed, or is back. Off the loop nothing is noted: there logs are opened, cut and closed, and
        whoever had that done looks afterwards. A log that is not, or no longer, a partition's does not count."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._logs.get(log.name) is log:
            self._note_availability(log.name)

    def _note_availability(self, name: str) -> None:
        log = self._logs.get(name)
        failed = log is not None and log.failure is not None
        if not failed and not self.offline:
            return
        parts = split_name(name)
        assert parts is not None
        topic, index = parts
        indexes = self.offline.get(topic, set())
        if failed == (index in indexes):
            return
        self.offline_version += 1
        if failed:
            self.offline[topic] = indexes | {index}
        elif len(indexes) > 1:
            self.offline[topic] = indexes - {index}
        else:
            del self.offline[topic]

    # ---- deleted folders

    def _set_aside_later(self, name: str, log: Log | None, delay_ms: int) -> None:
        """Renaming takes some 20 us, and a flush that runs has to end first; so it is done in slices, and a crash in
        between is mended at the next start, when the image does not have the topic. A new partition of the same name
        cannot wait and has its predecessor renamed at once."""
        self._setting_aside[name] = (log, delay_ms)
        if self._aside_task is None:
            self._aside_task = asyncio.get_running_loop().create_task(self._set_all_aside())

    async def _set_all_aside(self) -> None:
        done = 0
        while self._setting_aside:
            name, entry = next(iter(self._setting_aside.items()))
            try:
                if entry[0] is not None:
                    await entry[0].settle()
            except Exception:
                logger.exception("The deleted log %s did not come to rest; it is removed nevertheless.", name)
            if self._setting_aside.get(name) is entry:
                self._set_aside(name)
            done += 1
            if done % RENAMES_PER_TURN == 0:
                await asyncio.sleep(0)
        self._aside_task = None

    def _set_aside(self, name: str) -> None:
        log, delay_ms = self._setting_aside.pop(name)
        if log is not None:
            log.discard()
        aside = self.folder.log_path(self.env.uuid().hex() + DELETED_SUFFIX)
        try:
            self.env.files.rename(self.folder.log_path(name), aside)
        except FileNotFoundError:
            return  # nothing was ever written to it
        except OSError as error:
            logger.error("The deleted partition %s cannot be renamed, the next start tries again: %s", name, error)
            return
        self.remover.later(aside, delay_ms, folder=True)

    def _put_out_of_the_way(self, name: str) -> None:
        """A folder that does not say which topic it is for. A log writes that down before anything in it counts as
        durable, so nothing that was promised is in there; but it may be what a deleted topic of the same name left
        when the power went, and must not be served. Somebody may have damaged it by hand, so it is not removed."""
        stray = self.folder.log_path(self.env.uuid().hex() + STRAY_SUFFIX)
        logger.warning("The folder of %s has no legible topic id; it is now %s and is not used.", name, stray)
        self.env.files.rename(self.folder.log_path(name), stray)

    # ---- truncation

    async def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Cut a follower's log. The recovery point on disk goes down first: were it above the end of the log after
        a crash, that would look like lost data."""
        log = self._logs[partition_name(topic, partition)]
        start = log.batch_start(offset)  # the batch that holds the offset goes as a whole
        await self._lowered(topic, partition, min(offset, start), lambda log: log.truncate_to(offset))

    async def restart_at(self, topic: str, partition: int, offset: int) -> None:
        """Throw the log's content away and let it go on at another offset."""
        await self._lowered(topic, partition, 0, lambda log: log.truncate_and_restart_at(offset))

    async def _lowered(self, topic: str, partition: int, cap: int, cut: Callable[[Log], object]) -> None:
        name = partition_name(topic, partition)
        log = self._logs[name]
        await log.settle()
        self._caps[name] = cap
        try:
            await self.save_state()
            await self.env.executor.submit(cut, log)
        finally:
            del self._caps[name]
            self._note_availability(name)

    # ---- deleting records

    async def move_starts(self, targets: Sequence[tuple[Log, int]]) -> None:
        """Records below these offsets are gone: the state file says so before anybody can see it. What lies below must
        be durable by then, else the log could end below its own start. OSError if it cannot be written down, and
        nothing has moved; a log that has failed meanwhile does not move either."""
        async with self._moving_starts:
            self._starts = dict(targets)  # not by name: a new topic may have it by the time they are written
            try:
                await self.save_state()
            finally:
                self._starts = {}
            for log, offset in targets:
                log.advance_start_offset(offset)

    # ---- the state file, and the end

    async def save_state(self) -> None:
        """Write what a recovery can rely on. Not a clean state: logs are in use."""
        async with self._saving:
            lines: list[str] = []
            texts: dict[bytes, str] = {}  # topic ids: most logs share theirs with others
            for names in sliced(list(self._logs), SLICE):
                lines += [self._line(name, texts) for name in names if name in self._logs]
                await asyncio.sleep(0)
            for saved in sliced(list(self._saved.items()), SLICE):
                lines += [state_line(name, log._replace(clean=False)) for name, log in saved]
                await asyncio.sleep(0)
            if lines != self._written:
                await self.env.executor.submit(partial(self.folder.write_state, lines, clean=False))
                self._written = lines

    def _line(self, name: str, texts: dict[bytes, str], closed: LogState | None = None) -> str:
        """A line of the state file; clean if the log is `closed`."""
        log = self._logs[name]
        topic_id = self._ids[name]
        text = texts.get(topic_id)
        if text is None:
            text = texts[topic_id] = uuid_text(topic_id)
        start, end, recovery_point, watermark, clean_offset = closed or self._checkpoints.get(name) or log.state()
        if closed is not None or log.failure is None:
            watermark = self.watermark(log)
        start = max(start, self._starts.get(log, start))
        if name in self._caps:
            recovery_point = min(recovery_point, self._caps[name])
            clean_offset = min(clean_offset, self._caps[name])
        state = LogState(start, end, recovery_point, watermark, clean_offset)
        return state_line(name, SavedLog(topic_id, state, closed is not None), text)

    async def close(self, clean: bool = True) -> None:
        """Flush and close every log and say so in the state file. Not `clean`: only stop what runs."""
        if self.cleaner is not None:
            await self.cleaner.stop()
        await self._housekeeping.stop()
        if self._aside_task is not None:
            await self._aside_task
        await self.remover.stop()
        if not clean:
            return
        lines: list[str] = [state_line(name, saved) for name, saved in self._saved.items()]
        states = await close_logs(self.env, self.folder.volume, self.logs(), self._many_logs)
        texts: dict[bytes, str] = {}
        lines += [self._line(name, texts, state) for name, state in zip(self._logs, states, strict=True)]
        try:
            async with self._saving:
                await self.env.executor.submit(partial(self.folder.write_state, lines, clean=True))
        except OSError as error:
            logger.error("The clean stop cannot be noted, the next start recovers all logs: %s", error)


def _survey(folder: DataFolder) -> tuple[SavedState, list[str]]:
    """Blocks. What recovery finds counts as durable from then on, the names of the folders included."""
    saved = folder.take_state()
    if not saved.clean:
        folder.files.sync_dir(folder.topics_path)
    return saved, folder.files.list(folder.topics_path)


def _topic_id_of(files: Files, path: str, durable: bool) -> bytes:
    """Blocks. The topic id that a folder says it is for; on disk for good, if it was not known to be."""
    topic_id = read_topic_id(files, path)
    if topic_id != ZERO_UUID and not durable:
        files.sync_dir(path)
    return topic_id


def _topic_of(name: str) -> str:
    return name.rpartition("-")[0]


def _end_offset(log: Log) -> int:
    return log.end_offset
