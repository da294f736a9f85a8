"""A line on the terminal that says how far something is. Nothing at all where standard error is no terminal, or where
it is done before anybody would look."""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

from klamm.cli.units import show_count, show_size

_SILENT_S: Final = 1.0
_EVERY_S: Final = 0.2
_WIDTH: Final = 24


class Progress:
    """`total_bytes` 0: not known, so there is no bar, only figures."""

    def __init__(self, total_bytes: int = 0, *, out: TextIO | None = None, wanted: bool | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._wanted = self._out.isatty() if wanted is None else wanted
        self._total = total_bytes
        self._began = time.monotonic()
        self._next = self._began + _SILENT_S
        self._width = 0

    def show(self, done_bytes: int, records: int) -> None:
        """Cheap enough to be called for every record."""
        if not self._wanted or (now := time.monotonic()) < self._next:
            return
        self._next = now + _EVERY_S
        line = text(done_bytes, self._total, records, now - self._began)
        self._out.write("\r" + line.ljust(self._width))
        self._out.flush()
        self._width = len(line)

    def clear(self) -> None:
        if self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._out.flush()
            self._width = 0


def text(done_bytes: int, total_bytes: int, records: int, seconds: float) -> str:
    rate = f"{show_count(records / seconds)}/s, {show_size(done_bytes / seconds)}/s" if seconds > 0 else ""
    figures = f"{show_count(records)} records, {rate}"
    if not total_bytes:
        return f"{show_size(done_bytes)}  {figures}"
    share = min(1.0, done_bytes / total_bytes)
    filled = int(share * _WIDTH)
    left = f", {seconds / share - seconds:.0f} s left" if 0 < share < 1 else ""
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}  {figures}{left}"
