"""Sending records, for programs without asyncio.

    with Producer(bootstrap_servers="localhost:9092", linger_ms=5) as producer:
        where = producer.send("greetings", b"hello", key=b"you")    # waits until it is written
        delivery = producer.send_soon("greetings", b"hello")        # does not wait
        producer.send_many("greetings", [b"one", b"two"])           # bulk: nothing is made for each record
        producer.flush()
        print(where.offset, delivery.result().offset)

Any number of threads may share one. Serializers and `on_batch` run in the background: they must not wait for the
producer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from klamm.blocking.face import Face
from klamm.blocking.outgoing import Delivery, Outgoing, Record
from klamm.client.producer import Producer as AioProducer

if TYPE_CHECKING:
    from klamm.client.batches import BatchResult
    from klamm.client.delivery import RecordMetadata
    from klamm.client.metadata import Partition
    from klamm.client.partitioner import Choice
    from klamm.client.prepared import PreparedTransaction
    from klamm.client.serializing import AnySerializer
    from klamm.records.record import Headers


class Producer(Face[Outgoing]):
    """Options are Kafka's, as keyword arguments with underscores, or with dots in `config`."""

    what: ClassVar[str] = "producer"

    def __init__(
        self,
        *,
        config: Mapping[str, object] | None = None,
        partitioner: str | Choice | None = None,
        key_serializer: AnySerializer | None = None,
        value_serializer: AnySerializer | None = None,
        **options: Any,
    ) -> None:
        """As `klamm.aio.Producer`."""
        producer = AioProducer(
            config=config,
            partitioner=partitioner,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            **options,
        )
        super().__init__(Outgoing(producer))
        self.config = producer.config

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(partial(self._client.close, abort=kind is not None), kind)

    def close(self, *, abort: bool = False) -> None:
        """Write what is there, then end; with `abort`, give it up. A transaction that is open is aborted."""
        self._close(partial(self._client.close, abort=abort))

    # Records.

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is written."""
        return self._wait(partial(self._client.send, Record(topic, value, key, partition, headers, timestamp_ms)))

    def send_soon(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send one record; waits only while buffer.memory is used up. Ask what comes back for the outcome."""
        background = self._open()
        delivery = Delivery(Record(topic, value, key, partition, headers, timestamp_ms), self._client, background)
        self._client.put(delivery, background.soon)
        return delivery

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        partition: int | None = None,
        headers: Sequence[Headers | Mapping[str, bytes | None]] | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        on_batch: Callable[[BatchResult], None] | None = None,
    ) -> None:
        """Send many records, as columns; waits only while buffer.memory is used up, again and again.

        `on_batch` hears of them in pieces, in the background: where each landed, or its `error`. Without it, `flush`
        and `close` raise the first error. When this itself raises, the records before the error are on their way."""

        async def work() -> None:
            await self._client.drained()
            await self._client.producer.send_many(
                topic,
                values,
                keys=keys,
                partition=partition,
                headers=headers,
                timestamps_ms=timestamps_ms,
                on_batch=on_batch,
            )

        self._wait(work)

    def flush(self) -> None:
        """Wait until all that was sent so far is written or has failed."""
        self._wait(self._client.flush)

    # Transactions.

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """A block whose records are committed together; aborted if it raises."""
        block = self._client.producer.transaction()
        self._wait(block.__aenter__)
        try:
            yield self
        except BaseException as error:
            self._wait(partial(self._client.leave, block, error))
            raise
        self._wait(partial(self._client.leave, block, None))

    def init_transactions(self) -> None:
        """Take over the transactional id, which `start` has done already."""
        self._wait(self._client.producer.init_transactions)

    def begin(self) -> None:
        self._wait(self._client.producer.begin)

    def send_offsets(self, offsets: Mapping[Any, Any], group: object) -> None:
        """Commit positions of a consumer group with the transaction: {(topic, partition): next offset to read}.
        `group` is what `consumer.group_metadata()` gives, or the group's name."""
        self._wait(partial(self._client.producer.send_offsets, offsets, group))

    def commit(self) -> None:
        """When this returns, all of it is committed. `TransactionAborted` if it cannot be; then `abort`."""
        self._wait(self._client.commit)

    def prepare(self) -> PreparedTransaction:
        """The first of two phases: all of it is written, and stays open until `Admin.end_transactions` ends it."""
        return self._wait(self._client.prepare)

    def abort(self) -> None:
        """When this returns, nothing of the transaction will ever be seen by those who read what is committed."""
        self._wait(self._client.abort)

    # Looking around.

    def partitions_for(self, topic: str) -> list[Partition]:
        """The partitions of a topic, with their leaders."""
        return self._wait(partial(self._client.producer.partitions_for, topic))

    def metrics(self) -> dict[str, float]:
        """Totals and gauges by the names that Java's producer has for them."""
        self._open()
        return self._do(self._client.producer.metrics)
