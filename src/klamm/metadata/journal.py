"""The files of the local metadata log: `<offset>.log` with the entries from that offset on, `<offset>.snapshot` with
the image up to and including it.

Not a `klamm.log.Log`: nobody seeks in it, every entry is synced before it counts, and what recovery must decide is
another question than for a partition (see `recovery`). It is appended to on the loop, synced in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

from klamm.core.env import Buffer, File, Files

LOG_SUFFIX = ".log"
SNAPSHOT_SUFFIX = ".snapshot"


def log_path(folder: str, base_offset: int) -> str:
    return os.path.join(folder, f"{base_offset:020d}{LOG_SUFFIX}")


def snapshot_path(folder: str, offset: int) -> str:
    return os.path.join(folder, f"{offset:020d}{SNAPSHOT_SUFFIX}")


def offsets_of(names: Sequence[str], suffix: str) -> list[int]:
    """The offsets in the names of the files of one kind, ascending."""
    return sorted(
        int(stem) for name in names if name.endswith(suffix) and (stem := name.removesuffix(suffix)).isdecimal()
    )


class Journal:
    """The log's files, oldest first; entries go to the last one."""

    def __init__(self, files: Files, folder: str, base_offsets: Sequence[int]) -> None:
        """Open for appending. The files have been through recovery; a new one is made if there is none."""
        self._files = files
        self._folder = folder
        self.base_offsets = list(base_offsets)
        self._file = files.open(log_path(folder, self.base_offsets[-1]), create=True)
        self._size = self._file.size()
        self._unsynced: list[File] = []
        self._new_name = False
        self.failure: OSError | None = None

    def append(self, data: Buffer) -> None:
        """Write at the end, or nothing at all: OSError. If not even that could be made sure, `failure` is set."""
        if not self._unsynced or self._unsynced[-1] is not self._file:
            self._unsynced.append(self._file)
        try:
            self._file.append(data)
        except OSError:
            try:
                self._file.truncate(self._size)  # a part may have been written
            except OSError as error:
                self.failure = error
            raise
        self._size += len(data)

    @property
    def size_bytes(self) -> int:
        """Of the last file."""
        return self._size

    def unsynced(self) -> tuple[list[tuple[File, bool]], bool]:
        """What `sync` must take to make all that was appended so far durable: on the loop, before the thread.
        Files with whether they are done with, and whether there is a new name."""
        taken = [(file, file is not self._file) for file in self._unsynced], self._new_name
        self._unsynced, self._new_name = [], False
        return taken

    def sync(self, files: Sequence[tuple[File, bool]], new_name: bool) -> None:
        """Blocks. In the order in which they were written: an entry never becomes durable before its predecessor."""
        for file, done in files:
            file.sync()
            if done:
                file.close()
        if new_name:
            self._files.sync_dir(self._folder)

    def roll(self, base_offset: int) -> None:
        """Go on in a new file that begins with `base_offset`."""
        if self.base_offsets[-1] == base_offset:
            return
        file = self._files.open(log_path(self._folder, base_offset), create=True)
        if self._file not in self._unsynced:
            self._unsynced.append(self._file)  # to be closed after one more sync
        self._file = file
        self._size = 0
        self._new_name = True
        self.base_offsets.append(base_offset)

    def covered_by(self, snapshot_offset: int) -> list[int]:
        """The files whose entries are all in a snapshot of this offset: each ends where the next begins."""
        bases = self.base_offsets
        return [base for base, following in pairwise(bases) if following <= snapshot_offset + 1]

    def close(self) -> None:
        for file in self._unsynced:
            file.close()
        self._file.close()


def drop_logs(files: Files, folder: str, base_offsets: Sequence[int]) -> None:
    """Blocks. Oldest first, so that what is left is always without gaps."""
    for base in base_offsets:
        _remove(files, log_path(folder, base))


def drop_snapshots(files: Files, folder: str, keep_offset: int) -> None:
    """Blocks. Snapshots older than the one to keep."""
    for offset in offsets_of(files.list(folder), SNAPSHOT_SUFFIX):
        if offset < keep_offset:
            _remove(files, snapshot_path(folder, offset))


def _remove(files: Files, path: str) -> None:
    try:
        files.remove(path)
    except FileNotFoundError:
        pass  # a removal that a power loss has undone is done again at the next start
