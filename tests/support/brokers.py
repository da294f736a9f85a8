"""Whether processes have ended and folders are gone: waited for, not polled."""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
from pathlib import Path

from klamm.testing.embedded.folder import PREFIX

LIMIT_S = 60


class Watched:
    """A process that is not ours to wait for, by a descriptor that cannot mean another one."""

    def __init__(self, pid: int) -> None:
        assert sys.platform == "linux"
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def has_ended(self, limit_s: float = LIMIT_S) -> bool:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(limit_s * 1000))

    def kill(self) -> None:
        assert sys.platform == "linux"
        signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def close(self) -> None:
        os.close(self._fd)


def folders_in(where: str | Path | None = None) -> set[str]:
    return {name for name in os.listdir(where or tempfile.gettempdir()) if name.startswith(PREFIX)}


def processes_with(text: str) -> list[int]:
    """Processes that have this in their environment, but for this one. Linux only."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if text.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
            except OSError:  # it has just ended, or is somebody else's
                pass
    return found
