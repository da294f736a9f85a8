"""A process that has imported the broker once and forks one whenever it is asked: a start takes a tenth of the time.

For suites that want a fresh broker in each test; the pytest plugin keeps one for the session. Linux only: forking is
not safe on macOS, and a forked broker is known by a pidfd. Elsewhere brokers are spawned one by one.

A fork is requested with one byte, which carries the descriptor that the broker is born with, its channel. The nursery
answers nothing; the broker speaks for itself.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import sys
import threading
from typing import NoReturn

from klamm.testing.embedded.process import Spawned, spawn

_BROKER = ("klamm.testing.embedded.child", "klamm.testing.embedded.control", "klamm.core.env.unsynced")
_WAIT_S = 5.0


def is_available() -> bool:
    if sys.platform == "linux":
        try:
            os.close(os.pidfd_open(os.getpid()))
            return True
        except (OSError, AttributeError):  # an old kernel, a sandbox, a C library without it
            pass
    return False


class Nursery:
    """Hand one to `klamm.testing.broker(nursery=...)`; close it (or use `with`) after the last of its brokers started.

    Its process is started by the first broker that needs it, and again if somebody has killed it. It ends with ours.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._process: Spawned | None = None

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def fork(self, channel_fd: int) -> None:
        """A broker is on its way; it tells its process id on the channel."""
        with self._lock:
            if self._sock is not None:
                try:
                    socket.send_fds(self._sock, [b"f"], [channel_fd])
                    return
                except OSError:  # somebody has killed it
                    self._close()
            self._sock = self._start()
            socket.send_fds(self._sock, [b"f"], [channel_fd])

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = spawn("nursery", theirs.fileno())
        ours.sendall(b"%d\n" % os.getpid())
        return ours

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._process is not None and os.getpid() == self._owner:  # not in a process forked from ours
            self._process.kill()
            self._process.wait(_WAIT_S)
            self._process = None


def main(fd: int) -> NoReturn:
    """The nursery itself: import, then fork until the parent is gone."""
    import gc

    from klamm.apis import registry

    for name in _BROKER + tuple(f"klamm.apis.{name}" for name in registry.module_names()):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    os.dup2(1, 2)  # to nowhere: whoever reads our parent's standard error must not have to wait for us
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies: nobody here waits for a broker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=fd)
    parent = int(_first_line(sock))
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    timeout_ms: int | None = None
    if sys.platform == "linux":
        try:
            poll.register(os.pidfd_open(parent), select.POLLIN)
        except ProcessLookupError:  # it is dead already
            timeout_ms = 0
    while True:
        # A request that waits is served even if the parent is dead: the broker will see that, and clean up after it.
        if fd not in (ready for ready, _ in poll.poll(timeout_ms)):
            os._exit(0)
        message, fds, _, _ = socket.recv_fds(sock, 1, 1)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            _become_broker(sock, fds[0])
        os.close(fds[0])


def _first_line(sock: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte:
            os._exit(0)
        line += byte
    return line


def _become_broker(sock: socket.socket, channel_fd: int) -> NoReturn:
    from klamm.testing.embedded import child

    sock.close()
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        child.main(channel_fd)
    finally:  # what went wrong is for the log, and must never get back into the nursery's loop
        sys.excepthook(*sys.exc_info())
        os._exit(1)
