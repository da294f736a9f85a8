"""The live view: the top pages of the last minute, in a terminal or, without one, as lines. Plain ANSI, no library."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TextIO

from klamm import ConsumerRecord

TOP_PAGES: Final = "top-pages"
SESSIONS: Final = "sessions"
DEAD_LETTERS: Final = "page-views.dead"
LINE_EVERY_S: Final = 2.0
"""Without a terminal, at most so often, and only if there is something new."""
_NAME: Final = 28
_CLEAR, _HOME, _REST_OF_LINE, _REST = "\x1b[2J", "\x1b[H", "\x1b[K\n", "\x1b[J"
_BOLD, _DIM, _COLOUR, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m"


@dataclass
class Board:
    """What has come out of the pipeline so far."""

    minute: dict[str, Any] = field(default_factory=dict)
    """The last one of `top-pages` that is (almost) over."""
    sessions: int = 0
    last_session: dict[str, Any] = field(default_factory=dict)
    dead_letters: int = 0
    last_reason: str = ""

    def take(self, record: ConsumerRecord) -> None:
        if record.topic == DEAD_LETTERS:
            self.dead_letters += 1
            self.last_reason = reason(record)
            return
        value = json.loads(record.value or b"{}")
        if record.topic == SESSIONS:
            self.sessions += 1
            self.last_session = value
        elif record.topic == TOP_PAGES and self._is_newer(value):
            self.minute = value

    def _is_newer(self, minute: dict[str, Any]) -> bool:
        """A view belongs to six minutes, which begin ten seconds apart. Of those that have just been counted, the one
        that ends first is the most complete."""
        if not self.minute:
            return True
        now = self.minute
        return (minute["seen_to"], now["minute_end"]) > (now["seen_to"], minute["minute_end"])

    def screen(self, width: int, rate: float) -> list[str]:
        minute = self.minute
        top = minute["top"]
        most = max((page["views"] for page in top), default=1)
        room = max(min(width - _NAME - 16, 50), 5)
        title = f"{_BOLD}Top pages, {span(minute)}{_PLAIN}"
        bars = [
            f"{place:>3}  {page['title'][:_NAME]:<{_NAME}} {_COLOUR}{bar(page['views'] / most, room):<{room}}{_PLAIN} "
            f"{page['views']:>6,}"
            for place, page in enumerate(top, 1)
        ]
        return [title, "", *bars, "", *self.below(rate)]

    def below(self, rate: float) -> list[str]:
        minute, last = self.minute, self.last_session
        found = [f"{minute['views']:,} views of {minute['visitors']:,} visitors; {rate:,.0f} views a second now"]
        if last:
            found.append(
                f"{self.sessions:,} visits are over; the last one: {last['views']} views, "
                f"from {last['came_from']} to {last['left_at']}"
            )
        if self.dead_letters:
            found.append(f"{self.dead_letters:,} records were no page views: {self.last_reason}"[:160])
        return found

    def line(self, rate: float) -> str:
        pages = ", ".join(f"{page['title']} {page['views']}" for page in self.minute["top"][:5])
        return (
            f"{span(self.minute)}: {pages} ({self.minute['views']} views, {rate:,.0f} a second; "
            f"{self.sessions} visits over, {self.dead_letters} dead letters)"
        )


def span(minute: dict[str, Any]) -> str:
    start, end = (datetime.fromisoformat(minute[name]).astimezone() for name in ("minute_start", "minute_end"))
    return f"{start:%H:%M:%S} to {end:%H:%M:%S}"


def bar(part: float, room: int) -> str:
    eighths = round(part * room * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def reason(record: ConsumerRecord) -> str:
    for name, value in record.headers:
        if name.endswith("reason") and value is not None:
            return value.decode(errors="replace")
    return "nobody says why"


class View:
    def __init__(self, out: TextIO = sys.stdout, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._is_terminal = out.isatty()
        self._next_s = 0.0
        self._clear = _CLEAR
        self._shown: dict[str, Any] = {}

    def show(self, board: Board, rate: float, hint: str) -> None:
        if self._clock() < self._next_s:
            return
        if self._is_terminal:
            self._next_s = self._clock() + 0.2
            rows = [*board.screen(shutil.get_terminal_size().columns, rate), "", f"{_DIM}{hint}{_PLAIN}"]
            clear, self._clear = self._clear, ""
            self._out.write(clear + _HOME + "".join(row + _REST_OF_LINE for row in rows) + _REST)
        elif board.minute != self._shown:
            self._next_s = self._clock() + LINE_EVERY_S
            self._shown = board.minute
            self._out.write(board.line(rate) + "\n")
        self._out.flush()
