"""Visitors of a website, made up: who looks at which page, when, and from where they came. Pure: the same seed gives
the same visits, and time is what the caller says it is.

They come as visitors do: many once, some again and again, to a few popular pages mostly; one link leads to the next,
then they leave. Now and then a page of the blog gets into the news, and one in a thousand records is broken.
"""

from __future__ import annotations

import csv
import heapq
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

PAGES: Final = tuple(csv.reader((Path(__file__).parent / "pages.csv").read_text().splitlines()[1:]))
REFERRERS: Final = {"search": 45, "direct": 30, "newsletter": 10, "social": 10, "partner": 5}
VIEWS_PER_SESSION: Final = 5
"""On average."""
PAUSE_S: Final = 4.0
"""Between two views of a session, on average."""
NEWS_S: Final = 40.0
"""How long a page is in the news, and how long until the next one is."""
BROKEN: Final = (
    b'{"user": "u17", "page": "/pricing", "at":',
    b"GET /index.html HTTP/1.1",
    b'{"user": "u23", "session": "s0", "page": "/docs", "referrer": "direct", "at": "yesterday"}',
)


@dataclass(frozen=True)
class Event:
    at_s: float
    key: bytes
    value: bytes
    """JSON, unless it is one of those that nobody can read."""


@dataclass(order=True)
class Session:
    next_s: float
    number: int
    user: str = field(compare=False)
    referrer: str = field(compare=False)
    page: str = field(compare=False)


class Visitors:
    def __init__(self, start_s: float, *, rate: float, seed: int = 1, broken_every: int = 1000) -> None:
        """About `rate` views a second, the first at `start_s`."""
        self._random = random.Random(seed)
        self._arrivals_per_s = rate / VIEWS_PER_SESSION
        self._next_arrival_s = start_s
        self._news_until_s = start_s
        self._news: str | None = None
        self._sessions: list[Session] = []
        self._number = 0
        self._broken_every = broken_every

    def until(self, now_s: float) -> Iterator[Event]:
        """What happened since the last time, in order."""
        while True:
            waiting_s = self._sessions[0].next_s if self._sessions else self._next_arrival_s
            if min(waiting_s, self._next_arrival_s) > now_s:
                return
            if self._next_arrival_s <= waiting_s:
                self._arrive()
            else:
                yield from self._view(heapq.heappop(self._sessions))

    def _arrive(self) -> None:
        at_s = self._next_arrival_s
        self._next_arrival_s += self._random.expovariate(self._arrivals_per_s)
        self._number += 1
        user = f"u{int(50 * self._random.paretovariate(0.6)) % 5000}"  # some come often
        (referrer,) = self._random.choices(list(REFERRERS), list(REFERRERS.values()))
        heapq.heappush(self._sessions, Session(at_s, self._number, user, referrer, self._landing(at_s)))

    def _landing(self, at_s: float) -> str:
        if at_s >= self._news_until_s:
            self._news_until_s = at_s + NEWS_S
            blog = [page for page, _, section in PAGES if section == "blog" and page != "/blog"]
            self._news = None if self._news else self._random.choice(blog)
        if self._news and self._random.random() < 0.6:
            return self._news
        return self._popular()

    def _popular(self) -> str:
        """Some pages are popular, most are not."""
        page, _, _ = PAGES[min(int(self._random.expovariate(0.25)), len(PAGES) - 1)]
        return page

    def _view(self, session: Session) -> Iterator[Event]:
        at = datetime.fromtimestamp(session.next_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        view = {
            "user": session.user,
            "session": f"s{session.number}",
            "page": session.page,
            "referrer": session.referrer,
            "at": at,
        }
        yield Event(session.next_s, session.user.encode(), json.dumps(view).encode())
        if self._random.random() * self._broken_every < 1:
            yield Event(session.next_s, session.user.encode(), self._random.choice(BROKEN))
        if self._random.random() * VIEWS_PER_SESSION >= 1:
            session.referrer = session.page  # the link that was followed
            session.page = self._popular()
            session.next_s += self._random.expovariate(1 / PAUSE_S)
            heapq.heappush(self._sessions, session)
