"""The temporary folder of an embedded broker, and how it goes away whatever happens.

Three look after it, one behind the other. The test's process removes it when it is done with the broker. If that
process dies, the broker does. If both are killed at once, the next start finds a folder that nobody holds a lock on.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time

PREFIX = "klamm-test-"
ABANDONED_S = 60
"""A folder without a lock is left alone for so long: its maker may be just about to take the lock."""
MAX_SWEPT = 100
"""Abandoned folders that one start removes."""


class Folder:
    """Made empty and locked. The lock belongs to the open descriptor: a child that inherits it holds it too."""

    def __init__(self) -> None:
        _sweep(tempfile.gettempdir())
        self.path = tempfile.mkdtemp(prefix=PREFIX)
        self.lock_fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self.lock_fd, fcntl.LOCK_SH)
        except OSError:  # some network file systems lock no folders; then none there is ever taken for abandoned
            pass

    def remove(self) -> None:
        remove(self.path)
        if self.lock_fd >= 0:
            fd, self.lock_fd = self.lock_fd, -1
            os.close(fd)


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
