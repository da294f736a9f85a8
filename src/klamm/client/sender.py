"""Producing: records go into batches (`batches`), batches to the leaders of their partitions.

    async with cluster.sender() as sender:
        delivery = await sender.put("topic", b"value", key=b"key")   # waits for room only
        print((await delivery.result()).offset)

`put` is cheap: what it returns is looked at only by those who want to know. `flush`, or leaving the block, waits until
all is written. Memory is bounded by buffer.memory (what waits or is on the way), requests by
max.in.flight.requests.per.connection for each broker.

All decisions are taken in `_pump`, which never waits; see `driver`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from klamm.client.backoff import Backoff
from klamm.client.batches import NOBODY, Batch, BatchResult, Identity, Queue, record_bytes
from klamm.client.budget import Budget
from klamm.client.connection import Connection
from klamm.client.delivery import Delivery
from klamm.client.driver import Driver
from klamm.client.errors import BrokerSaid, ClientError, Closed, TimedOut, UnsupportedVersion, error_code
from klamm.client.partitioner import Sticky, checked, partition_for_key
from klamm.client.producing import OUT_OF_PLACE, UNSURE, Answer, needs_new_leader, produce_request, read_answer
from klamm.client.retrying import Retrying
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.batch import header_bytes
from klamm.records.compression import Codec
from klamm.records.record import Headers, Record

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.metadata import Topic
    from klamm.wire.messages.k22_init_producer_id import InitProducerIdResponse

CREATION_WAIT_MS: Final = 5_000
"""How long a topic that should make itself may take to be there."""
MAX_TIMESTAMP_MS: Final = 2**63 - 1
_MAX_WAIT_S: Final = 1.0  # the longest nap: expired batches are noticed at least this often

OnBatch = Callable[[Batch, "BatchResult | ClientError"], None]


class Sender:
    """See the module. `on_batch` is called once for each batch, with its result or error, in order for a partition."""

    def __init__(self, cluster: Cluster, *, on_batch: OnBatch | None = None) -> None:
        config = cluster.config
        self._cluster = cluster
        self._env = cluster.env
        self._config = config
        self._on_batch = on_batch
        self._acks = -1 if config.acks in ("all", "-1") else int(config.acks)
        self._codec = Codec[config.compression_type.upper()]
        self._idempotent = config.enable_idempotence and self._acks == -1
        # Without sequences only one batch of a partition at a time keeps the order when one has to be sent again.
        self._window = config.max_in_flight_requests_per_connection if self._idempotent else 1
        self._linger_s = config.linger_ms / 1000
        self._identity: Identity | None = None if self._idempotent else NOBODY
        self._queues: dict[TopicPartition, Queue] = {}
        self._sticky = Sticky(cluster.env.rng)
        self._memory = Budget(cluster.env, "buffer.memory", config.buffer_memory)
        self._requests: dict[int, int] = defaultdict(int)  # on the way, by node
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._flushing = 0
        self._closed = False
        self._driver = Driver(self._pump, self._give_up_all)

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(abort=kind is not None)

    # For callers.

    async def put(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue one record; waits while buffer.memory is used up. `BrokerSaid` if the topic or partition is not there
        (brokers that create topics by themselves are given the time to)."""
        if timestamp_ms is not None and not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
            raise ClientError(f"A timestamp of {timestamp_ms} ms cannot be: they go from 0 to {MAX_TIMESTAMP_MS}.")
        size = record_bytes(key, value, headers)
        if size + header_bytes > self._config.max_request_size:
            raise BrokerSaid(
                ErrorCode.MESSAGE_TOO_LARGE,
                topic,
                f"a record of {size} bytes is above max.request.size={self._config.max_request_size}",
            )
        known = self._cluster.known.topics.get(topic) or await self._find_topic(topic)
        if not self._memory.fits(size):
            await self._memory.wait(size, self._config.default_api_timeout_ms / 1000)
        if self._closed:
            raise Closed("This sender is closed.")
        chosen = self._choose(known, key, size) if partition is None else checked(known, partition)
        now_ms = self._env.clock.time_ms() if timestamp_ms is None else timestamp_ms
        delivery = self._append(TopicPartition(topic, chosen), Record(-1, now_ms, key, value, headers), size)
        if delivery.number == 0:  # a batch was begun, so perhaps one filled: let it go while this caller goes on
            await asyncio.sleep(0)
        return delivery

    async def flush(self) -> None:
        """Wait until everything that was put so far is written or has failed."""
        self._flushing += 1
        try:
            self._driver.wake()
            pending = [batch for queue in self._queues.values() for batch in (*queue.in_flight, *queue.waiting)]
            while pending:
                await asyncio.wait([batch.done for batch in pending])
                pending = [half for batch in pending if batch.halves for half in batch.halves]
        finally:
            self._flushing -= 1

    async def close(self, *, abort: bool = False) -> None:
        """Flush and end; with `abort` give up what is not written."""
        if not self._closed and not abort:
            await self.flush()
        self._closed = True
        await self._driver.close()
        for queue in self._queues.values():
            for batch in (*queue.in_flight, *queue.waiting):
                batch.fail(Closed("The sender was closed before this was written."))

    # Choosing a partition.

    async def _find_topic(self, name: str) -> Topic:
        retrying = Retrying(self._env, self._config, f"Finding the topic {name}", CREATION_WAIT_MS)
        while True:
            try:
                return await self._cluster.topic(name, create=True)
            except BrokerSaid as error:
                try:
                    await retrying.pause(error)
                except TimedOut:
                    raise error from None

    def _choose(self, topic: Topic, key: bytes | None, size: int) -> int:
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        current = self._sticky.current(topic.name)
        if current is not None:
            queue = self._queues.get(TopicPartition(topic.name, current))
            if queue is not None and queue.open_batch(size, self._config.batch_size) is not None:
                return current
        led = [index for index, partition in topic.partitions.items() if partition.leader >= 0]
        return self._sticky.move_on(topic.name, led or list(topic.partitions))

    def _append(self, place: TopicPartition, record: Record, size: int) -> Delivery:
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = Queue(place)
        batch = queue.open_batch(size, self._config.batch_size)
        if batch is None:
            batch = Batch(place, self._env.clock.monotonic(), asyncio.get_running_loop().create_future())
            queue.waiting.append(batch)
            self._driver.wake()  # a batch was filled, or the first one has to be timed
        self._memory.used += size
        return Delivery(batch, batch.add(record, size))

    # The driver.

    def _pump(self) -> float:
        """Send what can be sent; how long until there may be something to do by the clock alone."""
        now = self._env.clock.monotonic()
        self._expire(now)
        self._start_anew()
        linger_s = 0.0 if self._flushing else self._linger_s
        by_node: dict[int, list[Queue]] = defaultdict(list)
        nap_s = _MAX_WAIT_S
        homeless: set[str] = set()
        for place, queue in self._queues.items():
            if not queue.waiting:
                continue
            if not queue.is_ready(now, linger_s, self._config.batch_size, self._window):
                wakes = max(queue.not_before, 0.0 if queue.in_flight else queue.waiting[0].created + linger_s)
                if wakes > now:
                    nap_s = min(nap_s, wakes - now)
                continue
            leader = self._cluster.leader(*place)
            if leader is None:
                homeless.add(place.topic)
            else:
                by_node[leader.leader].append(queue)
        if homeless or self._cluster.is_stale():
            self._driver.start("metadata", self._refresh, homeless)
        for node, queues in by_node.items():
            self._send_to(node, queues, now)
        return nap_s

    def _send_to(self, node: int, queues: list[Queue], now: float) -> None:
        if self._identity is None:
            self._driver.start("identity", self._get_identity)
            return
        if self._driver.is_busy(node):
            return
        connection = self._cluster.nodes.existing(node)
        if connection is None or not connection.is_writable:
            self._driver.start(node, self._get_ready, node)
            return
        linger_s = 0.0 if self._flushing else self._linger_s
        ready = [queue for queue in queues if queue.may_use(connection)]
        while ready and self._requests[node] < self._config.max_in_flight_requests_per_connection:
            batches = self._take(ready, connection)
            self._send(node, connection, batches)
            ready = [q for q in ready if q.is_ready(now, linger_s, self._config.batch_size, self._window)]
            if connection.lost is not None or not connection.is_writable:
                break

    def _take(self, queues: list[Queue], connection: Connection) -> list[Batch]:
        """One request's worth: a batch of each partition, as far as max.request.size goes, but one at least."""
        assert self._identity is not None
        batches: list[Batch] = []
        room = self._config.max_request_size
        for queue in queues:
            if batches and queue.waiting[0].size > room:
                continue
            batch = queue.take(self._identity, connection)
            room -= batch.size
            batches.append(batch)
        queues.append(queues.pop(0))  # somebody else is first the next time
        return batches

    def _send(self, node: int, connection: Connection, batches: list[Batch]) -> None:
        batches = [batch for batch in batches if self._can_be_encoded(batch)]
        if not batches:
            return
        try:
            request, version = produce_request(
                connection.versions,
                [(batch.place, batch.encoded(self._codec)) for batch in batches],
                self._cluster.known.topics,
                acks=self._acks,
                timeout_ms=self._config.request_timeout_ms,
                codec=self._codec,
            )
            if self._acks == 0:
                connection.send_only(request, version)
                for batch in batches:
                    self._succeeded(batch, Answer(ErrorCode.NONE))
                return
            future = connection.send(request, version, self._config.request_timeout_ms / 1000)
        except ClientError as error:
            for batch in batches:
                self._failed(batch, error, sent=False)
            return
        self._requests[node] += 1
        future.add_done_callback(lambda done: self._answered(node, batches, done))

    def _can_be_encoded(self, batch: Batch) -> bool:
        """A record that is none (text for bytes, a name that is no UTF-8) costs its batch, not the sender."""
        try:
            batch.encoded(self._codec)
        except Exception as error:  # noqa: BLE001 - whatever a caller has put into it
            self._give_up(batch, ClientError(f"{batch.place}: a record cannot be written: {error}."))
            return False
        return True

    # What comes back.

    def _answered(self, node: int, batches: list[Batch], future: asyncio.Future[Any]) -> None:
        self._requests[node] -= 1
        if self._closed or future.cancelled():
            return
        error = future.exception()
        if error is not None:
            assert isinstance(error, ClientError)
            for batch in batches:
                self._failed(batch, error, sent=True)
        else:
            ids = {topic.id: topic.name for topic in self._cluster.known.topics.values()}
            answers = read_answer(future.result(), ids)
            for batch in batches:
                answer = answers.get(batch.place, Answer(ErrorCode.UNKNOWN_SERVER_ERROR))
                self._judge(batch, answer)
        self._driver.wake()

    def _judge(self, batch: Batch, answer: Answer) -> None:
        code = answer.code
        queue = self._queues[batch.place]
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._succeeded(batch, answer)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1 and not batch.unsure:
            loop = asyncio.get_running_loop()
            batch.split((loop.create_future(), loop.create_future()))
            queue.replace(batch)
        elif code in OUT_OF_PLACE and (queue.recovering or queue.lost_place):
            self._later(batch)  # what has to come behind a batch that failed
        elif code in OUT_OF_PLACE and not batch.unsure:
            queue.lost_place = True  # the broker has forgotten us, and this batch is surely not in the log
            self._later(batch)
        else:
            self._failed(batch, BrokerSaid(code, str(batch.place), answer.message), sent=code in UNSURE)

    def _succeeded(self, batch: Batch, answer: Answer) -> None:
        queue = self._queues[batch.place]
        queue.acknowledged(batch)
        self._backoffs.pop(batch.place, None)
        batch.succeed(answer.base_offset, answer.log_append_time_ms)
        self._finished(batch, batch.done.result())

    def _failed(self, batch: Batch, error: ClientError, *, sent: bool) -> None:
        """`sent`: it may be in the log."""
        batch.unsure = batch.unsure or sent
        if error.retriable:
            if not isinstance(error, BrokerSaid) or needs_new_leader(error.code):
                self._driver.start("metadata", self._refresh, {batch.place.topic})
            self._later(batch)
        else:
            self._give_up(batch, error)

    def _later(self, batch: Batch) -> None:
        config = self._config
        backoff = self._backoffs.get(batch.place)
        if backoff is None:
            backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._env.rng)
            self._backoffs[batch.place] = backoff
        queue = self._queues[batch.place]
        now = self._env.clock.monotonic()
        queue.again(batch, queue.not_before if queue.not_before > now else now + backoff.next_s())

    def _give_up(self, batch: Batch, error: ClientError) -> None:
        self._queues[batch.place].given_up(batch)
        batch.fail(error)
        self._finished(batch, error)

    def _finished(self, batch: Batch, result: BatchResult | ClientError | None) -> None:
        self._memory.give_back(batch.size - header_bytes)
        if self._on_batch is not None and result is not None:
            self._on_batch(batch, result)

    def _expire(self, now: float) -> None:
        limit_s = self._config.delivery_timeout_ms / 1000
        for queue in self._queues.values():
            while queue.waiting and now - queue.waiting[0].created > limit_s:
                batch = queue.waiting[0]
                self._give_up(
                    batch, TimedOut(f"{batch.place}: {len(batch.records)} records were not written in {limit_s:g} s.")
                )

    def _start_anew(self) -> None:
        """Partitions that have lost their place get a new identity, once all that was on the way is back."""
        for queue in self._queues.values():
            if queue.lost_place and not queue.in_flight:
                if queue.identity == self._identity:
                    self._identity = None
                for batch in queue.start_anew():
                    error = TimedOut(f"{batch.place}: nobody knows whether {len(batch.records)} records were written.")
                    batch.fail(error)
                    self._finished(batch, error)

    # What has to wait.

    async def _pause(self) -> None:
        await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _refresh(self, topics: Iterable[str]) -> None:
        try:
            await self._cluster.refresh(topics)
        except ClientError:
            pass  # the batches know how long they can wait
        await self._pause()

    async def _get_ready(self, node: int) -> None:
        try:
            connection = await self._cluster.connection(node)
            await connection.wait_writable(self._config.request_timeout_ms / 1000)
        except ClientError:
            await self._refresh(())

    async def _get_identity(self) -> None:
        from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        try:
            answer: InitProducerIdResponse = await self._cluster.request(request)
        except UnsupportedVersion as error:
            self._give_up_all(error)
            return
        except ClientError:
            await self._pause()
            return
        if answer.error_code:
            refusal = BrokerSaid(error_code(answer.error_code), "a producer id")
            if not refusal.retriable:
                self._give_up_all(refusal)
            await self._pause()
        else:
            self._identity = Identity(answer.producer_id, answer.producer_epoch)

    def _give_up_all(self, error: ClientError) -> None:
        for queue in self._queues.values():
            for batch in list(queue.waiting):
                self._give_up(batch, error)
