"""The offsets that groups have committed, and those of transactions that are still open.

This is a store and nothing else: it changes by `replay` and `replay_end` alone, both called with what is in the log.
Who may commit is decided in `offsets`, what is too old in `offsets_sweep`.

A value is kept as the record that came with it. While a transaction is open, its offsets are pending; for one partition
they stand in the order in which they were written, because the newest commit counts, not the one whose transaction ends
last: a commit makes nothing of all pending ones before it. (Kafka compares record offsets for that. Order alone says
the same, and keeps saying it after compaction.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from klamm.wire.messages.coordinator import OffsetCommitKey, OffsetCommitValue

Place: TypeAlias = "tuple[str, int]"
"""Topic and partition."""

_NOTHING: Mapping[Place, OffsetCommitValue] = {}


class _Pending(NamedTuple):
    """Where a producer's open transaction has offsets."""

    group: str
    place: Place


class OffsetStore:
    """Of the groups of one shard. Bounded by what clients may commit to: partitions that exist, for groups that do."""

    __slots__ = ("_by_producer", "_committed", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[Place, OffsetCommitValue]] = {}
        self._pending: dict[str, dict[Place, dict[int, OffsetCommitValue | None]]] = {}
        """By group, place and producer id, oldest first. None: a later commit has overtaken it."""
        self._by_producer: dict[int, dict[_Pending, None]] = {}

    def get(self, group: str, place: Place) -> OffsetCommitValue | None:
        return self._committed.get(group, _NOTHING).get(place)

    def of_group(self, group: str) -> Mapping[Place, OffsetCommitValue]:
        """What is committed; to be read before the next event."""
        return self._committed.get(group, _NOTHING)

    def groups(self) -> Iterator[str]:
        """Groups that have anything here."""
        yield from self._committed
        yield from (group for group in self._pending if group not in self._committed)

    def has(self, group: str, place: Place) -> bool:
        """Committed or pending."""
        return place in self._committed.get(group, _NOTHING) or self.is_pending(group, place)

    def places(self, group: str) -> list[Place]:
        """Where a group has an offset, committed or pending."""
        return list({**dict.fromkeys(self._committed.get(group, ())), **dict.fromkeys(self._pending.get(group, ()))})

    def pending_places(self, group: str) -> Mapping[Place, object]:
        """Where open transactions have offsets of the group."""
        return self._pending.get(group, {})

    def is_pending(self, group: str, place: Place) -> bool:
        pending = self._pending.get(group)
        return pending is not None and place in pending

    def pending_values(self, group: str, place: Place) -> Iterator[OffsetCommitValue]:
        values = self._pending.get(group, {}).get(place, {}).values()
        return (value for value in values if value is not None)

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int | None) -> None:
        """A commit that is in the log, or a tombstone; with a producer id it is part of an open transaction."""
        place = key.topic, key.partition
        if value is None:
            self._forget(key.group, place)
        elif producer_id is not None:
            self._keep_pending(key.group, place, producer_id, value)
        else:
            self._put(key.group, place, value)
            if (pending := self._pending.get(key.group)) is not None and place in pending:
                pending[place] = dict.fromkeys(pending[place])

    def replay_end(self, producer_id: int, committed: bool) -> None:
        for group, place in self._by_producer.pop(producer_id, ()):
            producers = self._pending[group][place]
            value = producers[producer_id]
            if committed and value is not None:
                self._put(group, place, value)
                _overtake(producers, producer_id)
            del producers[producer_id]
            if not producers:
                self._drop_pending(group, place)

    def _put(self, group: str, place: Place, value: OffsetCommitValue) -> None:
        offsets = self._committed.get(group)
        if offsets is None:
            offsets = self._committed[group] = {}
        offsets[place] = value

    def _keep_pending(self, group: str, place: Place, producer_id: int, value: OffsetCommitValue) -> None:
        producers = self._pending.setdefault(group, {}).setdefault(place, {})
        producers.pop(producer_id, None)  # so that it becomes the newest
        producers[producer_id] = value
        self._by_producer.setdefault(producer_id, {})[_Pending(group, place)] = None

    def _forget(self, group: str, place: Place) -> None:
        offsets = self._committed.get(group)
        if offsets is not None and offsets.pop(place, None) is not None and not offsets:
            del self._committed[group]
        for producer_id in self._pending.get(group, {}).get(place, ()):
            places = self._by_producer[producer_id]
            del places[_Pending(group, place)]
            if not places:
                del self._by_producer[producer_id]
        if self.is_pending(group, place):
            self._drop_pending(group, place)

    def _drop_pending(self, group: str, place: Place) -> None:
        places = self._pending[group]
        del places[place]
        if not places:
            del self._pending[group]

    def durable(self) -> object:
        """Everything, for comparing with what a replay of the log gives."""
        pending = {
            group: {place: list(producers.items()) for place, producers in places.items()}
            for group, places in self._pending.items()
        }
        return self._committed, pending, {producer: set(places) for producer, places in self._by_producer.items()}


def _overtake(producers: dict[int, OffsetCommitValue | None], producer_id: int) -> None:
    """This producer's commit counts: nothing that was written before it does any more."""
    for older in producers:
        if older == producer_id:
            return
        producers[older] = None
