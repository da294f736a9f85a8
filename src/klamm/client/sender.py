"""Producing: records go into batches (`accumulator`, `batches`), batches to the leaders of their partitions.

    async with cluster.sender() as sender:
        delivery = await sender.put("topic", b"value", key=b"key")   # waits for room only
        print((await delivery).offset)

`put` is cheap: what it returns is looked at only by those who want to know. `flush`, or leaving the block, waits until
all is written. Memory is bounded by buffer.memory (what waits or is on the way), requests by
max.in.flight.requests.per.connection for each broker.

How they are sent is the business of `sending`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final

from klamm.client.accumulator import Columns
from klamm.client.batches import Batch, Identity
from klamm.client.delivery import Delivery
from klamm.client.errors import BrokerSaid, ClientError, Closed, TimedOut
from klamm.client.outcomes import OnBatch as OnBatch
from klamm.client.partitioner import Choice, checked
from klamm.client.retrying import Retrying
from klamm.client.sending import Sending
from klamm.core.env import Buffer
from klamm.records.record import Headers

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.metadata import Topic

CREATION_WAIT_MS: Final = 5_000
"""How long a topic that should make itself may take to be there."""
PARTITION_WAIT_MS: Final = 1_000
"""How long a partition that was just added may take to be seen."""


class Sender(Sending):
    """See the module. `on_batch` is called once for each batch, with its result or error, in order for a partition."""

    def __init__(
        self, cluster: Cluster, *, on_batch: OnBatch | None = None, choice: str | Choice | None = None
    ) -> None:
        super().__init__(cluster, on_batch, choice)

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(abort=kind is not None)

    # For callers.

    def offer(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery | None:
        """Queue one record if that can be done without waiting; None if not (see `ready`)."""
        if self._closed:
            raise Closed("This producer is closed.")
        if self.transactions is not None:
            self.transactions.check_open()
        known = self._cluster.known.topics.get(topic)
        records = self.records
        if known is None or records.memory.used >= records.memory.limit:
            return None
        if partition is not None and partition not in known.partitions:
            return None
        return records.append(known, value, key, headers, partition, timestamp_ms)

    async def ready(self, topic: str, partition: int | None = None) -> Topic:
        """Wait until the topic is known and there is room. `BrokerSaid` if there is no such topic (brokers that create
        topics by themselves are given the time to), `TimedOut` if it takes longer than max.block.ms."""
        if self._closed:
            raise Closed("This producer is closed.")
        known = await self.topic(topic)
        if partition is not None and partition not in known.partitions:
            known = await self._find_partition(topic, partition)
        if not self.records.memory.has_room:
            try:
                await self.records.memory.wait(self._config.max_block_ms / 1000)
            except TimedOut as error:
                error.topic, error.partition = topic, partition
                raise
        return known

    async def topic(self, name: str) -> Topic:
        """As last heard of; asked for, and perhaps made by that, if it never was."""
        return self._cluster.known.topics.get(name) or await self._find_topic(name)

    async def put(
        self,
        topic: str,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one record; waits as `ready` does."""
        while (delivery := self.offer(topic, value, key, headers, partition, timestamp_ms)) is None:
            await self.ready(topic, partition)
        if delivery.number == 0:  # a batch was begun, so perhaps one filled: let it go while this caller goes on
            await asyncio.sleep(0)
        return delivery

    async def put_many(self, topic: str, columns: Columns) -> None:
        """Queue many; waits as `ready` does, again and again. When it raises, those before the error are queued."""
        start, chosen = 0, False
        while start < len(columns.values):
            known = await self.ready(topic, columns.partitions[0] if columns.partitions and not chosen else None)
            if self._closed:
                raise Closed("This producer is closed.")
            if self.transactions is not None:
                self.transactions.check_open()
            if not chosen:
                columns, chosen = self.records.chosen(known, columns), True
            start = self.records.extend(known, columns, start)
            await asyncio.sleep(0)  # what is full goes out, and what was answered is taken

    def now_ms(self) -> int:
        return self._env.clock.time_ms()

    def metrics(self) -> dict[str, float]:
        counts = self.counts
        return {
            "record-send-total": counts.records,
            "record-error-total": counts.failed_records,
            "record-retry-total": counts.retried_records,
            "byte-total": counts.bytes,
            "batch-total": counts.batches,
            "batch-size-avg": counts.bytes / counts.batches if counts.batches else 0.0,
            "records-per-request-avg": counts.records / counts.requests if counts.requests else 0.0,
            "produce-request-total": counts.requests,
            "buffer-total-bytes": self._config.buffer_memory,
            "buffer-available-bytes": max(0, self._config.buffer_memory - self.records.memory.used),
            "produce-requests-in-flight": sum(self._requests.values()),
        }

    async def flush(self) -> None:
        """Wait until everything that was put so far is written or has failed."""
        self._flushing += 1
        try:
            self._driver.wake()
            pending = list(self._pending())
            while pending:
                for batch in pending:
                    await batch.wait()
                pending = [half for batch in pending if batch.halves for half in batch.halves]
            await asyncio.sleep(0)  # callbacks of batches come before this returns
        finally:
            self._flushing -= 1

    def _pending(self) -> Iterable[Batch]:
        return (batch for queue in self.records.queues.values() for batch in (*queue.in_flight, *queue.waiting))

    async def close(self, *, abort: bool = False) -> None:
        """Flush and end; with `abort` give up what is not written."""
        try:
            if not self._closed and not abort:
                await self.flush()
        finally:  # also for one who does not wait that long
            self._closed = True
            await self._driver.close()
            for batch in [batch for batch in self._pending() if batch.outcome is None]:
                batch.fail(Closed("The producer was closed before this was written."))
            self.records.memory.end()

    async def _find_topic(self, name: str) -> Topic:
        """Brokers that are away are waited for; one that says that there is no such topic is asked for a while only."""
        if not isinstance(name, str) or not name:
            raise ClientError(f"{name!r} is no name of a topic.")
        what, most_ms = f"Finding the topic {name}", self._config.max_block_ms
        away = Retrying(self._env, self._config, what, most_ms)
        making: Retrying | None = None
        try:
            while True:
                try:
                    return await self._cluster.topic(name, create=True)
                except BrokerSaid as error:
                    making = making or Retrying(self._env, self._config, what, min(CREATION_WAIT_MS, most_ms))
                    try:
                        await making.pause(error)
                    except TimedOut:
                        raise error from None
                except ClientError as error:
                    await away.pause(error)
        except ClientError as error:
            error.topic = name
            self._cluster.forget([name])
            raise

    async def _find_partition(self, topic: str, partition: int) -> Topic:
        """Partitions are added to topics; the one that the caller names may be newer than what we know."""
        if not isinstance(partition, int) or partition < 0:
            raise ClientError(f"{topic}: {partition!r} is no partition.", "They are numbers from 0 on; None: any.")
        limit_ms = min(PARTITION_WAIT_MS, self._config.max_block_ms)
        retrying = Retrying(self._env, self._config, f"Finding partition {partition} of {topic}", limit_ms)
        while True:
            try:
                await self._cluster.refresh([topic])
                known = await self.topic(topic)
                checked(known, partition)
                return known
            except ClientError as error:
                try:
                    await retrying.pause(error)
                except TimedOut:
                    raise error from None

    # For transactions.

    async def settle(self) -> None:
        """Give up what has not been sent, and wait until nothing is on its way. `transactions.failed` says why."""
        assert self.transactions is not None and self.transactions.failed is not None
        while pending := list(self._pending()):
            self._give_up_all(self.transactions.failed)
            for batch in pending:
                await batch.wait()
        await asyncio.sleep(0)  # callbacks of batches come before the end of the transaction

    def renew(self, identity: Identity) -> None:
        """Go on as this producer; nothing is there of the one before."""
        self._identity = identity
        for queue in self.records.queues.values():
            queue.renew(identity)
        self._driver.wake()
