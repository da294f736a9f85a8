"""The consumer on its loop, with the records that it has lent to the application.

Everything that looks at positions, or changes them, comes through here: a position is where the application is, not how
far records were brought to it. What it has not had when it turns elsewhere is given back, and comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from klamm.blocking.background import in_caller
from klamm.blocking.lent import Lent
from klamm.client.consumer import Consumer as AioConsumer
from klamm.client.membership import Offset
from klamm.client.reading import Chunk
from klamm.client.subscription import Callback
from klamm.core.ids import TopicPartition
from klamm.records.consuming import ConsumerRecord

PATIENCE_S: Final = 1.0
"""While the group waits, an application finishes what it was lent less than this ago; else it is given back."""


class Lending:
    def __init__(self, client: AioConsumer) -> None:
        self.client = client
        self.lent = Lent()

    async def start(self) -> None:
        await self.client.start()

    async def close(self, timeout_ms: int | None = None, *, commit: bool = True) -> None:
        self._give_back()
        await self.client._end(timeout_ms, commit=commit)

    # Records. These three are for the thread that reads.

    def one(self) -> ConsumerRecord | None:
        """The next of those that are here."""
        client = self.client
        group = client._group
        if group is not None and group.wants_turn and self.is_due:
            return None
        client.subscriptions.polls += 1  # a sign of life for the group: no harm if it meets one from the loop
        return self.lent.one()

    def many(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        return {} if self.is_due else self.lent.many(limit)

    def some(self, limit: int) -> Chunk | None:
        some = None if self.is_due else self.lent.some(limit)
        if some is None:
            return None
        place, records = some
        state = self.client.subscriptions.partitions.get(place)
        return Chunk(*place, records, records[-1].offset + 1, -1 if state is None else state.high_watermark)

    @property
    def is_due(self) -> bool:
        """The group has waited long enough for the application to come back."""
        group = self.client._group
        return group is not None and group.wants_turn and bool(self.lent) and self.lent.age_s() > PATIENCE_S

    async def fill(self, limit: int, timeout_ms: int | None) -> None:
        """The group gets its turn, and records are brought. Not to whoever asked: that one may be gone by now."""
        self._give_back()
        self.lent.fill(await self.client.getmany(limit, timeout_ms))

    # Positions.

    def _give_back(self, places: Iterable[tuple[str, int]] | None = None) -> None:
        for place, at in self.lent.drop(places).items():
            if place in self.client.subscriptions.partitions:
                self.client.seek(place, at)

    def seek(self, partition: tuple[str, int], offset: int | Offset) -> None:
        """Go on from this offset. With the leader epoch that belongs to it (`committed` has it) it is noticed if the
        log was cut there since."""
        self.client.seek(partition, offset)
        self.lent.drop([partition])

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Of these partitions, or of all. The offset is looked up in the background."""
        self.client.seek_to_beginning(*partitions)
        self.lent.drop(partitions or None)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Of these partitions, or of all: only what comes from now on."""
        self.client.seek_to_end(*partitions)
        self.lent.drop(partitions or None)

    async def position(self, partition: tuple[str, int]) -> int:
        """The offset of the next record that the application gets; waits until it is known where that is."""
        at = self.lent.positions().get(TopicPartition(*partition))
        return await self.client.position(partition) if at is None else at.offset

    def lag(self, partition: tuple[str, int]) -> int | None:
        """How many offsets there are behind the position; None until something was fetched."""
        lag = self.client.lag(partition)
        at = self.lent.positions().get(TopicPartition(*partition))
        if lag is None or at is None:
            return lag
        return lag + self.client.subscriptions.state(partition).offset - at.offset

    async def commit(self, offsets: Mapping[tuple[str, int], int | Offset] | None = None) -> None:
        await self.client.commit(self._to_commit(offsets))

    def commit_soon(self, offsets: Mapping[tuple[str, int], int | Offset] | None = None) -> None:
        self.client.commit_soon(self._to_commit(offsets))

    def _to_commit(self, offsets: Mapping[tuple[str, int], int | Offset] | None) -> Mapping[Any, int | Offset]:
        if offsets is not None:
            return offsets
        here = self.lent.positions()
        return {place: here.get(place) or Offset(*at) for place, at in self.client.subscriptions.consumed().items()}

    # What is read.

    def subscribe(self, topics: str | Iterable[str], pattern: Any, callbacks: Mapping[str, Callback | None]) -> None:
        self._give_back()
        ours = {name: _in_caller(callback) for name, callback in callbacks.items()}
        self.client.subscribe(topics, pattern=pattern, **ours)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions, and only these, without sharing them with anybody."""
        self._give_back()
        self.client.assign(partitions)

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group."""
        self._give_back()
        self.client.unsubscribe()

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give out nothing of these until `resume`; positions stay."""
        self.client.pause(*partitions)
        self._give_back(partitions)

    # Whole batches, past what is lent.

    async def step(self, take: Callable[[], Any]) -> Any:
        """The next item of an asynchronous iterator over what the consumer reads; None at its end."""
        self._give_back()
        try:
            return await take()
        except StopAsyncIteration:
            return None


def _in_caller(callback: Callback | None) -> Callback | None:
    """The callback runs in the thread of the application that waits for records."""
    if callback is None:
        return None
    given = callback
    return lambda places: in_caller(partial(given, places))
