"""Sending records.

    async with Producer(bootstrap_servers="localhost:9092", linger_ms=5) as producer:
        where = await producer.send("greetings", b"hello", key=b"you")   # waits until it is written
        delivery = await producer.send_soon("greetings", b"hello")       # waits for room only
        await producer.send_many("greetings", [b"one", b"two"])          # bulk: nothing is made for each record
        await producer.flush()
        print(where.offset, (await delivery).offset)

    async with Producer(bootstrap_servers="localhost:9092", transactional_id="mover") as producer:
        async with producer.transaction():                               # commits, or aborts if anything is raised
            await producer.send("greetings", b"all")
            await producer.send("greetings", b"or nothing")

A producer belongs to one event loop. Everything that takes part in keeping records single and in order is in `sending`
and `batches`, what is special about transactions in `transactions`; this is the face.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from klamm.client.cluster import Cluster
from klamm.client.config import ClientConfig
from klamm.client.errors import ClientError, Closed, ProducerFenced
from klamm.client.serializing import AnySerializer, Serializing

if TYPE_CHECKING:
    from klamm.client.batches import BatchResult
    from klamm.client.delivery import Delivery, RecordMetadata
    from klamm.client.metadata import Partition
    from klamm.client.partitioner import Choice
    from klamm.client.prepared import PreparedTransaction
    from klamm.client.sender import Sender
    from klamm.client.transactions import Transactions
    from klamm.core.env import Env
    from klamm.records.record import Headers


class Producer:
    """Options are Kafka's, as keyword arguments with underscores, or with dots in `config`."""

    def __init__(
        self,
        *,
        config: Mapping[str, object] | None = None,
        env: Env | None = None,
        partitioner: str | Choice | None = None,
        key_serializer: AnySerializer | None = None,
        value_serializer: AnySerializer | None = None,
        **options: Any,
    ) -> None:
        """`partitioner`: default, sticky, round_robin, or a function of the key, all partitions and those that have a
        leader. Serializers: see `serializing`."""
        self.config = ClientConfig.from_options(config, options)
        self._partitioner = partitioner
        self._serializing = Serializing.of(key_serializer, value_serializer)
        self._own_env = env is None
        self._env = env
        self._cluster: Cluster | None = None
        self._sender: Sender | None = None
        self._closing: asyncio.Future[None] | None = None
        self._unheard: ClientError | None = None  # of bulk that nobody wanted to hear of

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(abort=kind is not None)

    async def start(self) -> None:
        """Connect; a transactional producer also takes over its id. `NotReachable` if no broker is to be found."""
        from klamm.client.sender import Sender

        if self._cluster is not None:
            raise ClientError("This producer is open already.")
        if self._env is None:
            from klamm.core.env.real import real_env

            self._env = real_env()
        try:
            self._cluster = await Cluster.connect(self.config, self._env)
            self._sender = Sender(self._cluster, choice=self._partitioner)
            if self._sender.transactions is not None:
                await self._sender.transactions.init()
        except BaseException:
            await self.close(abort=True)
            raise

    async def close(self, *, abort: bool = False) -> None:
        """Write what is there, then end; with `abort`, give it up. A transaction that is open is aborted."""
        sender, self._sender = self._sender, None
        if sender is None and self._closing is not None:  # somebody else is at it
            await asyncio.wait((self._closing,))
            return
        self._closing = asyncio.get_running_loop().create_future()
        try:
            if sender is not None:
                if sender.transactions is not None:
                    from klamm.client.transactions import LEAVE_LIMIT_S

                    await sender.transactions.leave(LEAVE_LIMIT_S)
                await sender.close(abort=abort)
        finally:
            try:
                if self._cluster is not None:
                    await self._cluster.close()
                if self._own_env and self._env is not None:
                    self._env.executor.close()
                    self._env = None
            finally:
                self._cluster = None
                self._closing.set_result(None)
                self._closing = None
        if not abort:
            self._raise_unheard()

    def _ready(self) -> Sender:
        if self._sender is None:
            raise Closed("This producer is not open.", "Use it in an `async with` block, or call `start` first.")
        return self._sender

    # Records.

    async def send(
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
        sender = self._sender or self._ready()
        if headers and isinstance(headers, Mapping):
            headers = tuple(headers.items())
        if self._serializing is not None:
            key, value, headers = await self._serializing.one(topic, key, value, headers)  # type: ignore[arg-type]
        while (delivery := sender.offer(topic, value, key, headers, partition, timestamp_ms)) is None:  # type: ignore[arg-type]
            await sender.ready(topic, partition)
        return await delivery.result()

    async def send_soon(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send one record; waits only while buffer.memory is used up. Await what comes back to know the outcome."""
        sender = self._sender or self._ready()
        if headers and isinstance(headers, Mapping):
            headers = tuple(headers.items())
        if self._serializing is not None:
            key, value, headers = await self._serializing.one(topic, key, value, headers)  # type: ignore[arg-type]
        while (delivery := sender.offer(topic, value, key, headers, partition, timestamp_ms)) is None:  # type: ignore[arg-type]
            await sender.ready(topic, partition)
        if delivery.number == 0:  # a batch was begun, so perhaps one filled: let it go
            await asyncio.sleep(0)
        return delivery

    async def send_many(
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

        `on_batch` hears of them in pieces: where each landed, or its `error`. Without it, `flush` and `close` raise the
        first error. When this itself raises, the records before the error are on their way."""
        from klamm.client.bulk import columns

        sender = self._ready()
        if self._serializing is not None:
            keys, values, headers = await self._serializing.many(topic, keys, values, headers)
        tell = on_batch or self._hear
        now_ms = sender.now_ms()
        await sender.put_many(topic, columns(values, keys, partition, headers, timestamps_ms, now_ms, tell))

    def _hear(self, result: BatchResult) -> None:
        if result.error is not None and self._unheard is None:
            self._unheard = result.error

    def _raise_unheard(self) -> None:
        error, self._unheard = self._unheard, None
        if error is not None:
            raise error

    async def flush(self) -> None:
        """Wait until all that was sent so far is written or has failed."""
        await self._ready().flush()
        self._raise_unheard()

    # Transactions.

    def _transactions(self) -> Transactions:
        found = self._ready().transactions
        if found is None:
            raise ClientError("This producer has no transactions.", "Give it a transactional_id.")
        return found

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Producer]:
        """A block whose records are committed together; aborted if it raises."""
        transactions = self._transactions()
        await transactions.begin()
        try:
            yield self
            await transactions.commit()
        except BaseException as error:
            await transactions.leave()
            why = transactions.failed
            if isinstance(error, ClientError) and isinstance(why, ProducerFenced) and why is not error:
                raise why from error
            raise
        finally:
            self._unheard = None  # the end of the transaction has told

    async def init_transactions(self) -> None:
        """Take over the transactional id, which `start` has done already."""
        await self._transactions().init()

    async def begin(self) -> None:
        await self._transactions().begin()

    async def send_offsets(self, offsets: Mapping[Any, Any], group: object) -> None:
        """Commit positions of a consumer group with the transaction: {(topic, partition): next offset to read}.
        `group` is what `consumer.group_metadata()` gives, or the group's name."""
        await self._transactions().send_offsets(offsets, group)

    async def commit(self) -> None:
        """When this returns, all of it is committed. `TransactionAborted` if it cannot be; then `abort`."""
        try:
            await self._transactions().commit()
        finally:
            self._unheard = None

    async def prepare(self) -> PreparedTransaction:
        """The first of two phases: all of it is written, and stays open until `Admin.end_transactions` ends it, here or
        elsewhere. `begin` takes the transactional id over anew, and so aborts what nobody has ended."""
        try:
            return await self._transactions().prepare()
        finally:
            self._unheard = None

    async def abort(self) -> None:
        """When this returns, nothing of the transaction will ever be seen by those who read what is committed."""
        try:
            await self._transactions().abort()
        finally:
            self._unheard = None

    # Looking around.

    async def partitions_for(self, topic: str) -> list[Partition]:
        """The partitions of a topic, with their leaders."""
        return list((await self._ready().topic(topic)).partitions.values())

    def metrics(self) -> dict[str, float]:
        """Totals and gauges by the names that Java's producer has for them."""
        sender = self._ready()
        assert self._cluster is not None
        return {**self._cluster.metrics(), **sender.metrics()}
