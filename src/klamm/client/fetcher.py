"""Reading partitions from given offsets on, from whichever broker leads them: a consumer without its comforts.

    async with cluster.fetcher({("topic", 0): 0}) as fetcher:
        async for chunk in fetcher:
            for record in chunk.records: ...

With end offsets it comes to an end by itself. Nothing is reset: an offset that is not there, or a log that was cut, is
an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final

from klamm.client.cursor import Cursor
from klamm.client.errors import BrokerSaid, ClientError
from klamm.client.reading import Chunk, Reading
from klamm.client.reset import ResetPolicy, ResetTo
from klamm.client.subscription import Subscriptions
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster

GONE_AFTER_S: Final = 5.0
"""How long metadata may lack a topic before it counts as deleted: a broker that has just started may be behind."""
_LOOKS: Final = 5
"""How often in this time it is looked at."""
_ALL: Final = 1 << 31


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        start: Mapping[tuple[str, int], int],
        *,
        end: Mapping[tuple[str, int], int] | None = None,
        on_trouble: Callable[[ClientError], None] | None = None,
    ) -> None:
        """`start` has the offsets to begin with; `end`, for some or all, the offsets to stop before. `on_trouble` hears
        of what goes wrong and is being tried again."""
        self._cluster = cluster
        self._subscriptions = Subscriptions(ResetPolicy(ResetTo.NOTHING))
        self._subscriptions.assign(start)
        self._ends = {TopicPartition(*place): offset for place, offset in (end or {}).items()}
        for place, offset in start.items():
            self._subscriptions.seek(place, offset)
            self._stop_at_end(TopicPartition(*place))
        self._gone: dict[str, float] = {}  # topics that the cluster does not list, and since when
        self._reading = Reading(self._subscriptions)
        self._reading.start(cluster, None, on_trouble=on_trouble, create=False)

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._reading.close()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        while (chunk := await self.next()) is not None:
            yield chunk

    async def next(self) -> Chunk | None:
        """The next records of some partition, in order within each; None when every partition is at its end. There may
        be no records in it: then only `next_offset` has moved."""
        while not all(self._is_at_end(place) for place in self._subscriptions.partitions):
            chunk = await self._reading.take(self._take, GONE_AFTER_S / _LOOKS)
            if chunk is not None:
                return chunk
            self._check_gone()
        return None

    def positions(self) -> dict[TopicPartition, int]:
        """Where the next fetch of each partition begins: behind what waits to be taken."""
        return {place: state.next_offset for place, state in self._subscriptions.partitions.items()}

    def _take(self, cursor: Cursor) -> Chunk:
        records = cursor.take(_ALL)
        state = cursor.state
        end = self._ends.get(state.place)
        if end is not None and state.offset > end:
            records = [record for record in records if record.offset < end]
        self._stop_at_end(state.place)
        return Chunk(*state.place, records, state.offset, cursor.answer.high_watermark)

    def _is_at_end(self, place: TopicPartition) -> bool:
        end = self._ends.get(place)
        return end is not None and self._subscriptions.partitions[place].offset >= end

    def _stop_at_end(self, place: TopicPartition) -> None:
        if self._is_at_end(place):
            self._subscriptions.pause((place,))

    def _check_gone(self) -> None:
        """A topic that stays away ends the reading: it was deleted."""
        now = self._cluster.env.clock.monotonic()
        for topic in {place.topic for place in self._subscriptions.partitions}:
            if topic in self._cluster.known.topics:
                self._gone.pop(topic, None)
            elif now - self._gone.setdefault(topic, now) > GONE_AFTER_S:
                raise BrokerSaid(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic, "the topic was deleted")
