"""The terminal as a canvas, for verbs that show something live."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

_ENTER: Final = "\x1b[?1049h\x1b[?25l"  # the other screen, without a cursor
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_TO_LINE_END: Final = "\x1b[K"


def draw(lines: Sequence[str]) -> None:
    """From the first line on; lines below the last are as before."""
    sys.stdout.write(_HOME + "\r\n".join(line + _TO_LINE_END for line in lines))
    sys.stdout.flush()


@asynccontextmanager
async def terminal(on_key: Callable[[str], None], on_resize: Callable[[], None]) -> AsyncIterator[None]:
    """Keys come one by one; all is as before when this ends, however it ends."""
    loop = asyncio.get_running_loop()
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def read_keys() -> None:
        typed = os.read(fd, 64).decode(errors="replace")
        on_key(typed if typed else "q")  # an arrow key comes as several characters, and means nothing here

    tty.setcbreak(fd)
    sys.stdout.write(_ENTER)
    loop.add_reader(fd, read_keys)
    loop.add_signal_handler(signal.SIGWINCH, on_resize)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
