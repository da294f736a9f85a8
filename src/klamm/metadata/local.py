"""The metadata store of a standalone broker: a log and a snapshot in one folder. The only node is the controller.

Entries are written on the loop and synced in the executor; those that arrive during a sync share the next one. An
entry counts (is replayed, and its append done) only after its sync. A failed sync ends the store for good: what the
disk then holds is known only after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from klamm.core.env import Env
from klamm.core.errors import ErrorCode
from klamm.metadata.entries import encode_entry, encode_snapshot, record_count
from klamm.metadata.image import Image
from klamm.metadata.journal import Journal, drop_logs, drop_snapshots, snapshot_path
from klamm.metadata.recovery import recover
from klamm.metadata.store import MAX_ENTRY_RECORDS, Entry, Fenced, StoreError

SNAPSHOT_ENTRIES = 2_000
SNAPSHOT_BYTES = 8 * 1024 * 1024
"""A snapshot is due when the log behind the last one has so many entries or bytes (and half as many entries as the
snapshot has records, so that the cost of snapshots stays a fraction of the cost of the changes)."""

_log = logging.getLogger(__name__)


class LocalStore:
    def __init__(
        self, env: Env, folder: str, *, snapshot_entries: int = SNAPSHOT_ENTRIES, snapshot_bytes: int = SNAPSHOT_BYTES
    ) -> None:
        self._env = env
        self._folder = folder
        self._min_snapshot_entries = snapshot_entries
        self._min_snapshot_bytes = snapshot_bytes
        self._journal: Journal | None = None
        self._replay: Callable[[Entry], None] = _nobody_follows
        self._epoch = -1  # of the last entry, then the one this node is elected with
        self._elected = False
        self._end_offset = 0
        self._committed_offset = 0  # everything below is durable
        self._waiting: list[tuple[Entry, asyncio.Future[None]]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._entries_since_snapshot = 0
        self._bytes_since_snapshot = 0
        self._snapshot_records = 0
        self._snapshotting = False
        self._closed = False
        self.failure: str | None = None
        self.on_failure: Callable[[str], None] | None = None
        """Called once, when the store has ended: the broker can serve on, but its metadata will not change again."""

    async def load(self) -> Image:
        recovered = await self._env.executor.submit(recover, self._env.files, self._folder)
        image = recovered.image
        if recovered.cut_bytes:
            _log.warning("metadata log: cut %d bytes that a crash left unfinished", recovered.cut_bytes)
        self._journal = recovered.journal
        self._epoch = image.epoch
        self._end_offset = self._committed_offset = image.offset + 1
        self._entries_since_snapshot = recovered.tail_entries
        self._bytes_since_snapshot = recovered.journal.size_bytes
        self._snapshot_records = record_count(image)
        return image

    def follow(self, replay: Callable[[Entry], None], reset: Callable[[Image], None]) -> None:
        self._replay = replay  # entries are never dropped before this node has them: `reset` is not needed

    async def elect(self, node_id: int) -> int | None:
        assert self._journal is not None, "load first"
        self._epoch += 1
        self._elected = True
        return self._epoch

    def append(self, entry: Entry) -> asyncio.Future[None]:
        journal = self._journal
        assert journal is not None and entry.base_offset == self._end_offset
        assert 0 < len(entry.records) <= MAX_ENTRY_RECORDS
        if not self._elected or entry.epoch != self._epoch:
            raise Fenced()
        if self.failure is not None or self._closed:
            raise StoreError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure or "the metadata store is closed")
        data = encode_entry(entry, committed=self._committed_offset, now_ms=self._env.clock.time_ms())
        try:
            journal.append(data)
        except OSError as error:
            if journal.failure is not None:
                self._fail(f"the metadata log cannot be written: {journal.failure}")
            message = f"the metadata log cannot be written: {error}"
            raise StoreError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        self._end_offset = entry.last_offset + 1
        self._entries_since_snapshot += 1
        self._bytes_since_snapshot += len(data)
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append((entry, future))  # as many as requests may be in flight
        if self._flusher is None:
            self._flusher = loop.create_task(self._flush())
        return future

    async def _flush(self) -> None:
        """Sync, replay and acknowledge until nothing waits."""
        journal = self._journal
        assert journal is not None
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                try:
                    await self._env.executor.submit(journal.sync, *journal.unsynced())
                except OSError as error:
                    self._fail(f"the metadata log cannot be synced: {error}", group)
                    return
                self._committed_offset = group[-1][0].last_offset + 1
                self._publish(group)
        finally:
            self._flusher = None

    def _publish(self, group: list[tuple[Entry, asyncio.Future[None]]]) -> None:
        try:
            for entry, future in group:
                self._replay(entry)
                if not future.done():  # whoever waited may have given up
                    future.set_result(None)
        except Exception as error:
            # A broken invariant: nobody may go on with an image that half of the broker has not seen.
            self._fail(f"the metadata could not be applied: {error!r}", group)
            raise

    def _fail(self, reason: str, group: list[tuple[Entry, asyncio.Future[None]]] | None = None) -> None:
        """End the store. Entries whose sync is under way may still come through; those of `group` cannot."""
        first = self.failure is None
        self.failure = self.failure or f"{reason}; restart the broker"
        for _, future in [*(group or ()), *self._waiting]:
            if not future.done():
                future.set_exception(StoreError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure))
        self._waiting.clear()
        if first:
            _log.critical("%s", self.failure)
            if self.on_failure is not None:
                self.on_failure(self.failure)

    async def register(self, node_id: int, incarnation_id: bytes, next_offset: int) -> int:
        return next_offset

    def watch_members(self, changed: Callable[[frozenset[int]], None]) -> None:
        """There is only the node itself, which knows that it is there."""

    @property
    def wants_snapshot(self) -> bool:
        if self._snapshotting or self._closed or self.failure is not None:
            return False
        return (
            self._entries_since_snapshot >= max(self._min_snapshot_entries, self._snapshot_records // 2)
            or self._bytes_since_snapshot >= self._min_snapshot_bytes
        )

    async def snapshot(self, image: Image) -> None:
        journal, files = self._journal, self._env.files
        assert journal is not None and not self._snapshotting and image.offset < self._committed_offset
        self._snapshotting = True
        self._entries_since_snapshot = self._bytes_since_snapshot = 0  # also after a failure: do not try at every entry
        try:
            journal.roll(self._end_offset)
            parts = []
            for part in encode_snapshot(image, self._env.clock.time_ms()):
                parts.append(part)
                await asyncio.sleep(0)
            path = snapshot_path(self._folder, image.offset)
            await self._env.executor.submit(files.write_atomically, path, b"".join(parts))
            self._snapshot_records = record_count(image)
            covered = journal.covered_by(image.offset)
            journal.base_offsets = journal.base_offsets[len(covered) :]
            await self._env.executor.submit(drop_logs, files, self._folder, covered)
            await self._env.executor.submit(drop_snapshots, files, self._folder, image.offset)
        except OSError as error:
            _log.warning("metadata snapshot failed, the log goes on without: %s", error)
        finally:
            self._snapshotting = False

    async def close(self) -> None:
        self._closed = True
        while (flusher := self._flusher) is not None:
            await asyncio.wait([flusher])
        if self._journal is not None:
            self._journal.close()


def _nobody_follows(entry: Entry) -> None:
    raise AssertionError("follow before you append")
