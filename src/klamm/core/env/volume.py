"""A file system as a whole: one `syncfs` in place of thousands of `fsync`s, where that can be trusted. Linux only.

Trusted means two things. A sync must reach the disk: it does not on FUSE or 9p, where nobody tells the server to. And
every write that failed must be reported: Linux does so since 5.8, to every descriptor that was open before; not through
overlayfs. So there is a list of file systems that are known to do both. All others sync file by file.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

_TRUSTED: Final = frozenset((0xEF53, 0x58465342))  # ext2 to ext4, XFS; statfs(2) has the numbers
_REPORTS_SINCE: Final = (5, 8)
_STATFS_BYTES: Final = 512  # more than it is anywhere; its first word is the type


class RealVolume:
    __slots__ = ("_device", "_fd", "_libc")

    def __init__(self, path: str) -> None:
        # Opened early and kept: what goes wrong from now on is reported here, even if somebody else has seen it too.
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._fd).st_dev
        self._libc: Any = None

    def can_sync(self) -> bool:
        if self._libc is None and self._fd >= 0 and sys.platform == "linux" and _kernel() >= _REPORTS_SINCE:
            self._libc = self._library()
        return self._libc is not None

    def _library(self) -> Any:
        """The C library, if it and the file system have what is needed."""
        import ctypes  # 4 ms that a start does not have to pay

        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "syncfs") or not hasattr(libc, "fstatfs"):
            return None
        buffer = ctypes.create_string_buffer(_STATFS_BYTES)
        if libc.fstatfs(self._fd, buffer) != 0:
            return None
        kind = ctypes.c_long.from_buffer(buffer).value
        return libc if kind in _TRUSTED else None

    def holds(self, path: str) -> bool:
        return os.stat(path).st_dev == self._device

    def sync(self) -> None:
        import ctypes

        assert self._libc is not None, "ask can_sync() first"
        if self._libc.syncfs(self._fd) != 0:  # without the interpreter's lock: others go on meanwhile
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
        self._libc = None


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)
