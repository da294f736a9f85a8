"""Starting a process and ending it, in the two ways there are: spawned by us, or forked by the nursery.

The interpreter of a child is told our `sys.path` instead of finding its own, so it imports what we would import, and
skips what `site` does. It never gets a terminal's signals: the channel tells it when to end.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import Protocol

import klamm

_PROGRAM = "import sys; sys.path[:] = {path!r}; from klamm.testing.embedded.{module} import main; main({fd})"


class Process(Protocol):
    """A child that can be ended."""

    def kill(self) -> None:
        """SIGKILL; nothing if it has ended."""

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended."""


class Spawned:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float) -> bool:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True


class Forked:
    """The nursery's child, not ours: known by a descriptor, because its number may be another's by now. Linux only."""

    def __init__(self, pid_fd: int) -> None:
        self._fd = pid_fd

    def kill(self) -> None:
        if sys.platform == "linux" and self._fd >= 0:
            try:
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait(self, timeout_s: float) -> bool:
        if self._fd >= 0:
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return False
            os.close(self._fd)
            self._fd = -1
        return True


def spawn(module: str, fd: int) -> Spawned:
    """Run `main(fd)` of a module of this package in a new interpreter. Until it has a log, it writes to our standard
    error: that something cannot be imported is for whoever runs the tests."""
    if not sys.executable:
        raise RuntimeError(
            "this Python does not know its own interpreter (sys.executable), so it cannot start a broker"
        )
    program = _PROGRAM.format(path=_import_path(), module=module, fd=fd)
    command = [sys.executable, "-I", "-S"]
    if sys.pycache_prefix:
        command += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return Spawned(
        subprocess.Popen(
            [*command, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(fd,),
            start_new_session=True,
        )
    )


def _import_path() -> list[str]:
    """Our `sys.path`, absolute, and where this package was found, which an import hook may have known."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(klamm.__file__)))
    path = [os.path.abspath(entry) for entry in sys.path]
    return path if root in path else [*path, root]
