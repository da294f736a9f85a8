"""What `klamm top` knows: samples of a cluster go in, rates come out. Pure: no clock, no I/O, no terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.cli.cluster import led_by, problems
from klamm.cli.topic_view import notes

if TYPE_CHECKING:
    from klamm.cli.scrape import Page
    from klamm.client.metadata import Metadata

Place = tuple[str, int]
HISTORY: Final = 60
"""How many rates are kept for the small graphs."""


class Sample(NamedTuple):
    """A cluster at one moment. Offsets and sizes by partition; pages of those brokers that have one."""

    at: float
    metadata: Metadata
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    sizes: Mapping[Place, int]
    pages: Mapping[int, Page]


class TopicRow(NamedTuple):
    """None: not known (yet)."""

    name: str
    partitions: int
    records_s: float | None
    written_s: float | None
    read_s: float | None
    records: int | None
    size: int | None
    notes: str


class BrokerRow(NamedTuple):
    id: int
    address: str
    leads: int
    replicas: int
    connections: int | None
    requests_s: float | None
    received_s: float | None
    sent_s: float | None
    errors_s: float | None
    cpu: float | None
    memory: float | None
    notes: str


SORTS: Final[dict[str, Callable[[TopicRow], Any]]] = {
    "rate": lambda row: (-(row.records_s or 0), row.name),
    "name": lambda row: row.name,
    "records": lambda row: (-(row.records or 0), row.name),
    "size": lambda row: (-(row.size or 0), row.name),
}


class Model:
    """The last two samples, and a history of rates."""

    def __init__(self) -> None:
        self.now: Sample | None = None
        self.before: Sample | None = None
        self.total_history: deque[float] = deque(maxlen=HISTORY)
        self._histories: dict[str, deque[float]] = {}

    def add(self, sample: Sample) -> None:
        self.before, self.now = self.now, sample
        rates = {row.name: row.records_s for row in self.topics() if row.records_s is not None}
        if rates:
            self.total_history.append(sum(rates.values()))
        self._histories = {
            name: self._histories.get(name, deque(maxlen=HISTORY)) for name in sample.metadata.topics
        }  # those of deleted topics go
        for name, rate in rates.items():
            self._histories[name].append(rate)

    def history(self, topic: str) -> Sequence[float]:
        return self._histories.get(topic, ())

    @property
    def problems(self) -> list[str]:
        return [] if self.now is None else problems(self.now.metadata)

    def totals(self) -> tuple[float | None, float | None, float | None]:
        """Records and bytes written, bytes read, a second, in the whole cluster."""
        rows = self.topics(internal=True)
        return _total(r.records_s for r in rows), _total(r.written_s for r in rows), _total(r.read_s for r in rows)

    def topics(self, sort: str = "rate", *, internal: bool = True) -> list[TopicRow]:
        now = self.now
        if now is None:
            return []
        rows = []
        for topic in now.metadata.topics.values():
            if topic.internal and not internal:
                continue
            places = [(topic.name, index) for index in topic.partitions]
            spans = [
                now.ends[place] - now.starts[place] for place in places if place in now.ends and place in now.starts
            ]
            sizes = [now.sizes[place] for place in places if place in now.sizes]
            rows.append(
                TopicRow(
                    topic.name,
                    len(places),
                    self._growth(places, lambda sample: sample.ends),
                    self._growth(places, lambda sample: sample.sizes),
                    self._read_rate(topic.name),
                    sum(spans) if spans else None,
                    sum(sizes) if sizes else None,
                    notes(topic),
                )
            )
        return sorted(rows, key=SORTS[sort])

    def _growth(self, places: Sequence[Place], of: Callable[[Sample], Mapping[Place, int]]) -> float | None:
        """By how much a second these grew. What shrank (retention, a topic made anew) counts as nothing."""
        if self.now is None or self.before is None:
            return None
        old, new = of(self.before), of(self.now)
        grown = [max(0, new[place] - old[place]) for place in places if place in new and place in old]
        return sum(grown) / self._seconds() if grown else None

    def _read_rate(self, topic: str) -> float | None:
        now, before = self.now, self.before
        if now is None or before is None:
            return None
        grown = [
            max(0.0, page.topic_sent[topic] - before.pages[node].topic_sent.get(topic, 0.0))
            for node, page in now.pages.items()
            if node in before.pages and topic in page.topic_sent
        ]
        return sum(grown) / self._seconds() if grown else None

    def _seconds(self) -> float:
        assert self.now is not None and self.before is not None
        return max(self.now.at - self.before.at, 0.001)

    def brokers(self) -> list[BrokerRow]:
        if self.now is None:
            return []
        metadata = self.now.metadata
        counts = led_by(metadata)
        rows = []
        for broker in sorted(metadata.brokers.values(), key=lambda broker: broker.id):
            page = self.now.pages.get(broker.id)
            rows.append(
                BrokerRow(
                    broker.id,
                    str(broker),
                    *counts.get(broker.id, (0, 0)),
                    None if page is None else int(page.connections),
                    self._page_rate(broker.id, "requests"),
                    self._page_rate(broker.id, "received_bytes"),
                    self._page_rate(broker.id, "sent_bytes"),
                    self._page_rate(broker.id, "errors"),
                    self._page_rate(broker.id, "cpu_s"),
                    None if page is None else page.memory_bytes,
                    "controller" if broker.id == metadata.controller_id else "",
                )
            )
        return rows

    def _page_rate(self, broker: int, field: str) -> float | None:
        if self.now is None or self.before is None:
            return None
        new, old = self.now.pages.get(broker), self.before.pages.get(broker)
        if new is None or old is None:
            return None
        growth: float = getattr(new, field) - getattr(old, field)
        return max(0.0, growth) / self._seconds()  # less than before: the broker was started anew


def _total(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
