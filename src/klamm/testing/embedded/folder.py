"""The temporary folder of an embedded broker, and how it goes away whatever happens.

The test's process thinks of a name; the broker makes the folder, so there is none without a process that looks after
it: it removes the folder when its parent hangs up or dies. If it was killed itself, the parent removes the folder; if
both were killed, the next start does, because it finds a folder that nobody holds a lock on.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time

PREFIX = "klamm-test-"
LOG_NAME = "broker.log"
ABANDONED_S = 60
"""A folder without a lock is left alone for so long: its maker may be just about to take the lock."""
MAX_SWEPT = 100
"""Abandoned folders that one start removes."""


class Folder:
    """The parent's side: a name, and a lock from the moment that the folder is there."""

    def __init__(self) -> None:
        where = tempfile.gettempdir()
        _sweep(where)
        self.path = os.path.join(where, PREFIX + os.urandom(8).hex())
        self._lock_fd = -1

    def hold(self) -> None:
        """The broker has made it."""
        if self._lock_fd < 0:
            self._lock_fd = _lock(self.path)

    def remove(self) -> None:
        remove(self.path)
        if self._lock_fd >= 0:
            fd, self._lock_fd = self._lock_fd, -1
            os.close(fd)


def make(path: str) -> int:
    """The broker's side: make the folder, or take it over after a restart. The descriptor is a lock on it that lasts
    as long as this process."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if os.lstat(path).st_uid != os.getuid():
            raise
    return _lock(path)


def _lock(path: str) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
    except OSError:  # some network file systems lock no folders; then none there is ever taken for abandoned
        pass
    return fd


def remove(path: str) -> None:
    """Remove a folder under the hands of whoever still writes to it: by another name first, where nobody finds it."""
    gone = f"{path}.gone"
    try:
        os.rename(path, gone)
    except OSError:
        gone = path
    shutil.rmtree(gone, ignore_errors=True)


def _sweep(where: str) -> None:
    """Remove what brokers left behind that were killed together with their tests."""
    now = time.time()
    try:
        with os.scandir(where) as entries:
            found = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return
    for path in found[:MAX_SWEPT]:
        try:
            if now - os.lstat(path).st_mtime > ABANDONED_S and _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)
        except OSError:  # another sweep was faster, or it is somebody else's
            pass


def _is_abandoned(path: str) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
