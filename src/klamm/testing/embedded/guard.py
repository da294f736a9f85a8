"""Inside the broker's process: end it when its parent is gone, and take the folder along.

A thread, so that it does its work even if the loop hangs. It waits for two things at once. The channel hangs up when
the parent's end is closed; but a process that the parent has forked may hold a copy of that end. Where the system can
tell (Linux), the death of the parent itself counts too.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from klamm.testing.embedded.channel import Order
from klamm.testing.embedded.folder import remove

STOP_S = 10.0
"""How long a broker whose data is kept may take to stop cleanly."""


class Guard:
    """`stop` asks the broker to stop cleanly; it is called from the guard's thread.

    Whoever makes folders holds `making` while at it. The guard takes it before it removes the folder and never gives it
    back, so that no other thread makes the folder again by making one below it.
    """

    def __init__(self, order: Order, channel_fd: int, stop: Callable[[], None]) -> None:
        self._order = order
        self._channel_fd = os.dup(channel_fd)  # the loop may close its own, and another file get the number
        self._parent_fd = -1
        self._stop = stop
        self._stopped = threading.Event()
        self.making = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="klamm-guard", daemon=True)
        if not self._find_parent():
            remove(order.folder)
            os._exit(0)
        self._thread.start()

    def _find_parent(self) -> bool:
        """False if it is dead already."""
        if sys.platform == "linux":
            try:
                self._parent_fd = os.pidfd_open(self._order.parent)
            except ProcessLookupError:
                return False
            except OSError:  # an old kernel, or a sandbox that forbids it: the channel will do
                pass
        return True

    def _is_orphan(self, timeout_ms: int | None) -> bool:
        poll = select.poll()
        poll.register(self._channel_fd, 0)  # hang-ups are always told
        if self._parent_fd >= 0:
            poll.register(self._parent_fd, select.POLLIN)
        return bool(poll.poll(timeout_ms))

    def _watch(self) -> None:
        self._is_orphan(None)
        if self._order.keep:
            self._stop()
            self._stopped.wait(STOP_S)
        self.making.acquire()
        remove(self._order.folder)
        os._exit(0)

    def exit(self, code: int) -> NoReturn:
        """The broker has stopped: end the process, unless that is the guard's business. No clean-up of the
        interpreter: a child of the nursery would do the nursery's."""
        self._stopped.set()
        if self._is_orphan(0):
            self._thread.join()
        os._exit(code)
