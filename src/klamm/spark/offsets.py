"""Where a query has got to: an offset for each partition, and how that is written into a checkpoint. Pure.

In a checkpoint it is what Spark's own Kafka source writes, `{"clicks": {"0": 17, "1": 4}}`, with two additions under
names that no topic can have. `@ids` has the ids of the topics: one that was deleted and made anew has another.
`@from` is in the first offset of a query: where its first batch begins. Spark keeps only where batches end, and asks
again where to begin if a query dies in its first batch; "latest" would mean something else by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Any, Final

from klamm.core.ids import TopicPartition

Places = Mapping[TopicPartition, int]

_IDS: Final = "@ids"
_FROM: Final = "@from"


@dataclass(frozen=True)
class Position:
    at: Places = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    """The topics' ids, as Kafka's tools print them; nothing for brokers that have none."""
    first: Places | None = None
    """Where the batch that ends here begins, if it is the query's first."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Position:
        topics = {name: value for name, value in data.items() if not name.startswith("@")}
        first = data.get(_FROM)
        return cls(_places(topics), dict(data.get(_IDS, {})), None if first is None else _places(first))

    def to_json(self) -> dict[str, Any]:
        data = nested(self.at)
        if self.ids:
            data[_IDS] = dict(sorted(self.ids.items()))
        if self.first is not None:
            data[_FROM] = nested(self.first)
        return data


def nested(places: Places) -> dict[str, Any]:
    """By topic and partition, sorted: Spark compares the text of it."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(places.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return dict(topics)


def _places(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in topics.items()
        for partition, offset in partitions.items()
    }


@dataclass(frozen=True)
class Range:
    """Records of one partition: from `start` on, before `end`."""

    place: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many records it can have at most: compaction and transactions leave gaps."""
        return self.end - self.start


def spread(limit: int, start: Places, end: Places) -> dict[TopicPartition, int]:
    """Where to end so that about `limit` records are read: of each partition in proportion to what it has, and of each
    that has something at least one."""
    sizes = {place: end[place] - start[place] for place in end if place in start and end[place] > start[place]}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    return {
        place: min(offset, start[place] + max(1, limit * sizes[place] // total)) if place in sizes else offset
        for place, offset in end.items()
    }


def divide(ranges: Iterable[Range], min_tasks: int | None, max_records: int | None) -> list[Range]:
    """What each task reads. A task for each partition, unless there are to be more of them (`minPartitions`) or smaller
    ones (`maxRecordsPerPartition`): then large partitions are cut into equal parts. How many tasks there are in the end
    is only about what was asked for."""
    found = [one for one in ranges if one.size > 0]
    if max_records is not None:
        found = [part for one in found for part in _cut(one, -(-one.size // max_records))]
    if min_tasks is None or len(found) >= min_tasks:
        return found
    total = sum(one.size for one in found)
    alone = {one.place for one in found if _share(one.size, total, min_tasks) == 1}
    small = [one for one in found if _share(one.size, total, min_tasks) == 1]
    rest = total - sum(one.size for one in small)
    tasks = max(min_tasks - len(small), 1)
    return [part for one in found for part in _cut(one, 1 if one.place in alone else _share(one.size, rest, tasks))]


def _share(size: int, total: int, tasks: int) -> int:
    """Halves count as a whole, as in Java's `round` and not in Python's."""
    return max(floor(size / total * tasks + 0.5), 1)


def _cut(one: Range, parts: int) -> list[Range]:
    found = []
    start = one.start
    for left in range(parts, 0, -1):
        end = start + (one.end - start) // left
        if end > start:
            found.append(Range(one.place, start, end))
        start = end
    return found
