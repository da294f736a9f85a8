"""Where log lines go, what they look like, and how many a misbehaving peer may cause.

One human-readable line per event on stderr or in a file, or one JSON object per line for machines. The rest of the
broker uses the standard library's loggers, named after their modules, and never configures anything.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from klamm.core.env import Clock

LEVELS = ("debug", "info", "warning", "error")

_LINES = 10
_PER_S = 10.0


def configure(
    level: str = "info", *, file: str | None = None, json_lines: bool = False, stream: TextIO | None = None
) -> None:
    """Set up logging for this process; a second call replaces the first. ValueError for a level that is none,
    OSError if the file cannot be opened."""
    if level not in LEVELS:
        raise ValueError(f"no log level: {level!r} (there are {', '.join(LEVELS)})")
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(stream or sys.stderr)
    else:
        from logging.handlers import WatchedFileHandler  # costs a few ms, and most brokers log to stderr

        handler = WatchedFileHandler(file, encoding="utf-8")  # opens anew when logrotate has moved the file away
    if json_lines:
        from klamm.server.json_lines import JsonFormatter

        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())


class LineFormatter(logging.Formatter):
    """`2026-11-05 14:03:27.512 WARNING server.connection: ...`, a traceback below where there is one."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(short_name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        record.short_name = record.name.removeprefix("klamm.")
        # What a peer sent may be in the message: it must not be able to forge a line.
        record.message = record.message.replace("\r", "\\r").replace("\n", "\\n")
        return super().formatMessage(record)


class LimitedLog:
    """A logger for what peers can cause: at most a few lines in a while, then only how many there would have been."""

    __slots__ = ("_clock", "_dropped", "_lines", "_logger", "_window_start")

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._window_start = clock.monotonic()
        self._lines = 0
        self._dropped = 0

    def warning(self, message: str, *args: object) -> None:
        self._write(logging.WARNING, message, *args)

    def error(self, message: str, *args: object, failure: BaseException | None = None) -> None:
        self._write(logging.ERROR, message, *args, failure=failure)

    def _write(self, level: int, message: str, *args: object, failure: BaseException | None = None) -> None:
        now = self._clock.monotonic()
        if now - self._window_start >= _PER_S:
            if self._dropped:
                self._logger.warning("%d more lines like the last ones were not written", self._dropped)
            self._window_start = now
            self._lines = self._dropped = 0
        if self._lines >= _LINES:
            self._dropped += 1
            return
        self._lines += 1
        self._logger.log(level, message, *args, exc_info=failure)
