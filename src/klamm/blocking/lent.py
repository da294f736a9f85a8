"""Records that were taken from the consumer and not yet by the application.

To go to the loop and back for every record would cost more than the record. So they are brought many at a time and wait
here; but the application has not had them, and nothing may be committed as if it had. `positions` says where it is.

Filled on the loop, emptied by the thread that reads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping

from klamm.client.membership import Offset
from klamm.core.ids import TopicPartition
from klamm.records.consuming import ConsumerRecord


class _Part:
    """What there is of one partition: `records` from `at` on."""

    __slots__ = ("at", "place", "records")

    def __init__(self, place: TopicPartition, records: list[ConsumerRecord]) -> None:
        self.place = place
        self.records = records
        self.at = 0

    @property
    def position(self) -> Offset:
        at = self.at
        return Offset(self.records[at].offset, self.records[at - 1].leader_epoch if at else -1)


class Lent:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: deque[_Part] = deque()  # one for each partition, none empty
        self._since = 0.0

    def fill(self, found: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """Only when nothing is here."""
        with self._lock:
            assert not self._parts
            self._parts.extend(_Part(place, records) for place, records in found.items() if records)
            self._since = time.monotonic()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def age_s(self) -> float:
        """For how long they have been here."""
        return time.monotonic() - self._since

    def one(self) -> ConsumerRecord | None:
        with self._lock:
            if not self._parts:
                return None
            part = self._parts[0]
            record = part.records[part.at]
            part.at += 1
            if part.at == len(part.records):
                self._parts.popleft()
            return record

    def some(self, limit: int) -> tuple[TopicPartition, list[ConsumerRecord]] | None:
        """Up to `limit` records of one partition."""
        with self._lock:
            if not self._parts:
                return None
            part = self._parts[0]
            end = part.at + limit
            records = part.records[part.at : end] if part.at or end < len(part.records) else part.records
            part.at += len(records)
            if part.at == len(part.records):
                self._parts.popleft()
            return part.place, records

    def many(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        while limit > 0 and (some := self.some(limit)) is not None:
            place, records = some
            found[place] = records
            limit -= len(records)
        return found

    def positions(self) -> dict[TopicPartition, Offset]:
        """Where the application goes on in each partition of which something is here."""
        with self._lock:
            return {part.place: part.position for part in self._parts}

    def drop(self, places: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, Offset]:
        """Forget what is here of these partitions, or of all; gives the positions there were."""
        wanted = None if places is None else set(places)
        with self._lock:
            dropped = [part for part in self._parts if wanted is None or part.place in wanted]
            for part in dropped:
                self._parts.remove(part)
            return {part.place: part.position for part in dropped}
