"""What can go wrong on the simulated disk, on demand. Plain state: `SimDisk` asks it before every operation."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

READ: Final = "read"
WRITE: Final = "write"
SYNC: Final = "sync"
NAME: Final = "name"  # create, rename, remove, sync of a folder


class _Failure:
    __slots__ = ("code", "kind", "path", "skip", "times")

    def __init__(self, kind: str, skip: int, times: int, code: int, path: str) -> None:
        self.kind = kind
        self.skip = skip
        self.times = times
        self.code = code
        self.path = path


class DiskFaults:
    """All of them are off until somebody sets them."""

    __slots__ = ("_crash", "_crash_in_ops", "_failures", "cold_read_s", "lying_sync", "sync_s", "write_s")

    def __init__(self) -> None:
        self.write_s = 0.0  # the clock jumps by this at every write: a synchronous call cannot let others run
        self.sync_s = 0.0
        self.cold_read_s = 0.010  # a seek; paid by every read of a page that is not in the cache
        self.lying_sync = False  # syncs return and do nothing: a checker that does not notice is no checker
        self._failures: list[_Failure] = []
        self._crash_in_ops = 0
        self._crash: Callable[[], None] | None = None

    def fail(self, kind: str, *, after: int = 0, times: int = 1, code: int = errno.EIO, path: str = "") -> None:
        """Let operations of this kind, on paths that contain `path`, fail after so many good ones."""
        self._failures.append(_Failure(kind, after, times, code, path))

    def crash(self, in_ops: int, action: Callable[[], None]) -> None:
        """Call `action` (a kill, a power loss) in the middle of the so-manieth change of the disk from now."""
        self._crash_in_ops = in_ops
        self._crash = action

    def check(self, kind: str, path: str) -> None:
        """Raise the error that is due, if one is."""
        for failure in self._failures:
            if failure.kind != kind or failure.path not in path:
                continue
            if failure.skip:
                failure.skip -= 1
                continue
            failure.times -= 1
            if not failure.times:
                self._failures.remove(failure)
            raise OSError(failure.code, os.strerror(failure.code), path)

    def crash_now(self) -> Callable[[], None] | None:
        """To be asked at every change of the disk: the crash that happens during this one."""
        if self._crash is None:
            return None
        self._crash_in_ops -= 1
        if self._crash_in_ops > 0:
            return None
        action, self._crash = self._crash, None
        return action
