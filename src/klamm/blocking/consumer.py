"""Reading records, for programs without asyncio.

    with Consumer("greetings", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
        for record in consumer:
            print(record.topic, record.partition, record.offset, record.value)

Threads may share one: each record goes to one of them. Callbacks of rebalances run in the thread that waits for
records (after `unsubscribe`, when none may be waiting, in one of their own), and may call the consumer. Deserializers
run in the background: they must not.
"""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from klamm.blocking.face import Face, does, waits
from klamm.blocking.lending import Lending
from klamm.client.consumer import Consumer as AioConsumer
from klamm.client.errors import Closed

if TYPE_CHECKING:
    import pyarrow

    from klamm.client.cursor import Rest
    from klamm.client.deserializing import AnyDeserializer
    from klamm.client.membership import GroupMetadata, Offset
    from klamm.client.metadata import Partition, Topic
    from klamm.client.offsets import OffsetFound
    from klamm.client.reading import Chunk
    from klamm.client.subscription import Callback
    from klamm.core.ids import TopicPartition
    from klamm.records.consuming import ConsumerRecord


class Consumer(Face[Lending]):
    """Options are Kafka's, as keyword arguments with underscores, or with dots in `config`."""

    what: ClassVar[str] = "consumer"

    def __init__(
        self,
        *topics: str,
        config: Mapping[str, object] | None = None,
        key_deserializer: AnyDeserializer | None = None,
        value_deserializer: AnyDeserializer | None = None,
        **options: Any,
    ) -> None:
        """As `klamm.aio.Consumer`."""
        consumer = AioConsumer(
            *topics,
            config=config,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **options,
        )
        super().__init__(Lending(consumer))
        self.config = consumer.config
        self._aio = consumer
        self._reader = threading.RLock()  # one thread reads at a time

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Whoever breaks off in the middle of its work has not done what it was given last: that comes again.
        failed = kind is not None and issubclass(kind, Exception)
        self._leave(partial(self._client.close, commit=not failed), kind)

    def close(self, timeout_ms: int | None = None) -> None:
        """Leave the group, and end. Positions are committed first if that is automatic. Brokers are waited for no
        longer than `timeout_ms`, by default 10 s in all. (At the end of a `with` block that an exception has left,
        nothing is committed.)"""
        self._close(partial(self._client.close, timeout_ms))

    # What is read.

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Share these topics with the other members of the group, in place of what was subscribed to before. Callbacks
        get lists of partitions."""
        callbacks = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        self._do(partial(self._client.subscribe, topics, pattern, callbacks))

    assign = does(Lending.assign)
    unsubscribe = does(Lending.unsubscribe)
    pause = does(Lending.pause)

    def resume(self, *partitions: tuple[str, int]) -> None:
        self._do(partial(self._aio.resume, *partitions))

    def paused(self) -> set[TopicPartition]:
        return self._do(self._aio.paused)

    def assignment(self) -> set[TopicPartition]:
        return self._do(self._aio.assignment)

    # Records.

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> ConsumerRecord:
        """Ends when the consumer is closed, by another thread for instance."""
        try:
            return self.getone()
        except Closed:
            if self._was_open and (self._background is None or self._is_closing):
                raise StopIteration from None
            raise

    def getone(self) -> ConsumerRecord:
        """The next record, of whichever partition; waits until there is one."""
        with self._reader:
            while (record := self._client.one()) is None:
                self._fill(self.config.max_poll_records, None)
            return record

    def getmany(
        self, max_records: int | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What there is, up to `max_records` (by default `max_poll_records`). If there is nothing it waits: until there
        is something, or for as long as `timeout_ms` says; then the answer is empty."""
        limit = self.config.max_poll_records if max_records is None else max_records
        with self._reading_for(timeout_ms) as is_mine:
            if not is_mine:
                return {}
            found = self._client.many(limit)
            if not found:
                self._fill(limit, timeout_ms)
                found = self._client.many(limit)
            return found

    def batches(self, max_records: int | None = None) -> Iterator[Chunk]:
        """Records in lists, each of one partition, as they come: `for batch in consumer.batches()`."""
        limit = self.config.max_poll_records if max_records is None else max_records
        while True:
            with self._reader:
                while (chunk := self._client.some(limit)) is None:
                    self._fill(limit, None)
            yield chunk

    def undecoded(self) -> Iterator[Rest]:
        """What brokers sent, batch by batch, for those who decode it in their own way. Taking it moves the position."""
        return self._each(self._aio.undecoded())

    def arrow(
        self,
        *,
        max_rows: int | None = None,
        headers: bool = False,
        timeout_ms: int | None = None,
        until: Mapping[tuple[str, int], int] | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Records as columns, `max_rows` at a time at most: `for batch in consumer.arrow()`. See `klamm.arrow`.

        Each record batch holds what has come, of one partition or several. With `timeout_ms` it ends when nothing came
        for so long; with `until`, when the positions of these partitions are at these offsets or beyond, at once also
        where there are no records in front of them. (The last record batch may have records beyond.)"""
        found = self._aio.arrow(max_rows=max_rows, headers=headers, timeout_ms=timeout_ms, until=until)
        return self._each(found)

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            with self._reader:
                item = self._wait(partial(self._client.step, items.__anext__))
            if item is None:
                return
            yield item

    def _fill(self, limit: int, timeout_ms: int | None) -> None:
        self._wait(partial(self._client.fill, limit, timeout_ms))

    @contextmanager
    def _reading_for(self, timeout_ms: int | None) -> Iterator[bool]:
        """Whether it is this thread's turn to read, in time."""
        is_mine = self._reader.acquire(timeout=-1 if timeout_ms is None else timeout_ms / 1000)
        try:
            yield is_mine
        finally:
            if is_mine:
                self._reader.release()

    # Where.

    seek = does(Lending.seek)
    seek_to_beginning = does(Lending.seek_to_beginning)
    seek_to_end = does(Lending.seek_to_end)
    position = waits(Lending.position)
    lag = does(Lending.lag)

    def offsets_for_times(self, times_ms: Mapping[tuple[str, int], int]) -> dict[TopicPartition, OffsetFound | None]:
        """For each partition the first record at or after a time; None where there is none."""
        return self._wait(partial(self._aio.offsets_for_times, times_ms))

    def beginning_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        return self._wait(partial(self._aio.beginning_offsets, *partitions))

    def end_offsets(self, *partitions: tuple[str, int]) -> dict[TopicPartition, int]:
        """The offsets behind the last records; with read_committed, behind the last that can be read."""
        return self._wait(partial(self._aio.end_offsets, *partitions))

    # The cluster.

    def partitions_for(self, topic: str) -> Mapping[int, Partition]:
        """The topic's partitions, with their leaders and replicas. `BrokerSaid` if there is no such topic."""
        return self._wait(partial(self._aio.partitions_for, topic))

    def topics(self) -> dict[str, Topic]:
        """All topics that this client may see, the brokers' own left out."""
        return self._wait(self._aio.topics)

    def metrics(self) -> dict[str, float]:
        """Totals and gauges by the names that Java's consumer has for them."""
        self._open()
        return self._do(self._aio.metrics)

    # Commits.

    def commit(self, offsets: Mapping[tuple[str, int], int | Offset] | None = None) -> None:
        """Commit these offsets (of the next records to read), or all positions, and wait for it."""
        self._wait(partial(self._client.commit, offsets))

    def commit_soon(self, offsets: Mapping[tuple[str, int], int | Offset] | None = None) -> None:
        """The same without waiting; a failure is logged only."""
        self._open()
        self._do(partial(self._client.commit_soon, offsets))

    def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, Offset | None]:
        """What the group has committed of these, or of all that are assigned."""
        return self._wait(partial(self._aio.committed, *partitions))

    def group_metadata(self) -> GroupMetadata:
        """For `Producer.send_offsets`."""
        self._open()
        return self._do(self._aio.group_metadata)
