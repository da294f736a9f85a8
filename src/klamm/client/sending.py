"""Batches on their way to the leaders of their partitions, and what becomes of them: the inner half of a `Sender`.

All decisions are taken in `_pump`, which never waits; see `driver`. Requests are bounded by
max.in.flight.requests.per.connection for each broker. What is different in a transaction is asked of `transactions`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from klamm.client.accumulator import Accumulator
from klamm.client.backoff import Backoff
from klamm.client.batches import NOBODY, Batch, BatchResult, Encoding, Identity, Queue
from klamm.client.connection import Connection
from klamm.client.driver import Driver
from klamm.client.errors import BrokerSaid, ClientError, TimedOut, UnsupportedVersion, error_code
from klamm.client.partitioner import Choice, partitioner
from klamm.client.producing import OUT_OF_PLACE, UNSURE, Answer, needs_new_leader, produce_request, read_answer
from klamm.client.reply import Reply
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.compression import Codec
from klamm.wire.stencil import Stencil

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.config import ClientConfig
    from klamm.client.sender import Sender
    from klamm.client.transactions import Transactions
    from klamm.wire.messages.k00_produce import ProduceRequest, ProduceResponse
    from klamm.wire.messages.k22_init_producer_id import InitProducerIdResponse

_MAX_WAIT_S: Final = 1.0  # the longest nap: expired batches are noticed at least this often
_IDLE_WAIT_S: Final = 30.0  # the same while there is nothing to send: old metadata is noticed

OnBatch = Callable[[Batch, "BatchResult | ClientError"], None]


@dataclass(slots=True)
class Counts:
    """Totals since the sender was made. `bytes` are those of records, before compression."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    requests: int = 0
    failed_records: int = 0
    retried_records: int = 0


class _Used(NamedTuple):
    stencil: Stencil
    request: ProduceRequest
    made_from: tuple[object, ...]
    """What it depends on."""


class Sending:
    def __init__(self, cluster: Cluster, on_batch: OnBatch | None, choice: str | Choice | None) -> None:
        config = cluster.config
        self._cluster = cluster
        self._env = cluster.env
        self._config = config
        self._on_batch = on_batch
        self._acks = -1 if config.acks in ("all", "-1") else int(config.acks)
        self._how = _encoding(config)
        self._idempotent = config.enable_idempotence and self._acks == -1
        # Without sequences only one batch of a partition at a time keeps the order when one has to be sent again.
        self._window = config.max_in_flight_requests_per_connection if self._idempotent else 1
        self._linger_s = config.linger_ms / 1000
        self._identity: Identity | None = None if self._idempotent else NOBODY
        self._requests: dict[int, int] = defaultdict(int)  # on the way, by node
        self._stalled: dict[int, float] = {}  # since when a broker has taken nothing of what there is for it
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._stencils: dict[TopicPartition, _Used] = {}
        self.counts = Counts()
        self._flushing = 0
        self._closed = False
        chooser = partitioner(choice, config, cluster.env.rng, self._is_stalled)
        self._driver = Driver(self._pump, self._give_up_all)
        self.records = Accumulator(cluster.env, config, chooser, self._driver.wake)
        self.transactions: Transactions | None = None
        if config.transactional_id:
            from klamm.client.transactions import Transactions

            self.transactions = Transactions(cluster, cast("Sender", self))

    # The driver.

    def _pump(self) -> float:
        """Send what can be sent; how long until there may be something to do by the clock alone."""
        now = self._env.clock.monotonic()
        self._expire(now)
        self._start_anew()
        transactions = self.transactions
        if transactions is not None and transactions.failed is not None:
            self._give_up_all(transactions.failed)
        linger_s = 0.0 if self._flushing else self._linger_s
        by_node: dict[int, list[Queue]] = defaultdict(list)
        nap_s = _MAX_WAIT_S if self.records.active else _IDLE_WAIT_S
        homeless: set[str] = set()
        idle: list[TopicPartition] = []
        for place, queue in self.records.active.items():
            if not queue.waiting:
                if not queue.lost_place:
                    idle.append(place)
                continue
            if not queue.is_ready(now, linger_s, self._config.batch_size, self._window):
                wakes = max(queue.not_before, 0.0 if queue.in_flight else queue.waiting[0].created + linger_s)
                if wakes > now:
                    nap_s = min(nap_s, wakes - now)
                continue
            leader = self._cluster.leader(*place)
            if leader is None:
                homeless.add(place.topic)
            elif transactions is None or transactions.includes(place):
                by_node[leader.leader].append(queue)
        for place in idle:
            del self.records.active[place]
        if transactions is not None and transactions.wanted:
            self._driver.start("transaction", transactions.add_wanted)
        if homeless or self._cluster.is_stale():
            self._driver.start("metadata", self._refresh, homeless)
        for node, queues in by_node.items():
            self._send_to(node, queues, now)
        return nap_s

    def _send_to(self, node: int, queues: list[Queue], now: float) -> None:
        if self._identity is None:
            if self.transactions is None:  # they get it when they begin
                self._driver.start("identity", self._get_identity)
            return
        self._stalled.setdefault(node, now)
        if self._driver.is_busy(node):
            return
        connection = self._cluster.nodes.existing(node)
        if connection is None or not connection.is_writable:
            self._driver.start(node, self._get_ready, node)
            return
        linger_s = 0.0 if self._flushing else self._linger_s
        ready = [queue for queue in queues if queue.may_use(connection)]
        with connection.gathering():
            while ready and self._requests[node] < self._config.max_in_flight_requests_per_connection:
                batches = self._take(ready, connection)
                self._send(node, connection, batches)
                self._stalled.pop(node, None)
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
        for batch in batches:
            batch.seal(self._how)
        timeout_s = self._config.request_timeout_ms / 1000
        try:
            if len(batches) == 1 and self._acks:
                used = self._stencil(connection, batches[0])
                reply = Reply(lambda answer, error: self._answered(node, batches, used.request, answer, error))
                connection.send_records(reply, used.stencil, batches[0].encoded, timeout_s)
            else:
                request, version = self._request(connection, batches)
                if self._acks == 0:
                    connection.send_only(request, version)
                    for batch in batches:
                        self._succeeded(batch, Answer(ErrorCode.NONE))
                    return
                reply = Reply(lambda answer, error: self._answered(node, batches, request, answer, error))
                connection.send_for(reply, request, version, timeout_s)
        except ClientError as error:
            for batch in batches:
                self._failed(batch, error, sent=False)
            return
        self._requests[node] += 1
        self.counts.requests += 1

    def _request(self, connection: Connection, batches: list[Batch]) -> tuple[ProduceRequest, int]:
        return produce_request(
            connection.versions,
            batches,
            self._cluster.known.topics,
            acks=self._acks,
            timeout_ms=self._config.request_timeout_ms,
            codec=self._how.codec,
            transactions=self.transactions,
        )

    def _stencil(self, connection: Connection, batch: Batch) -> _Used:
        """For requests with one batch of this partition, as most are: what is around it is always the same."""
        place = batch.place
        made_from = (
            connection.versions,
            self._cluster.known.topics.get(place.topic),
            self.transactions is not None and self.transactions.implicit,
        )
        found = self._stencils.get(place)
        if found is None or found.made_from != made_from:
            request, version = self._request(connection, [batch])
            stencil = Stencil(request, version, connection.client_id)
            request.topic_data[0].partition_data.clear()  # the records are not kept with it
            found = self._stencils[place] = _Used(stencil, request, made_from)
        return found

    def _is_stalled(self, node: int) -> bool:
        since = self._stalled.get(node)
        limit_ms = self._config.partitioner_availability_timeout_ms
        return since is not None and limit_ms > 0 and (self._env.clock.monotonic() - since) * 1000 > limit_ms

    # What comes back.

    def _answered(
        self,
        node: int,
        batches: list[Batch],
        request: ProduceRequest,
        answer: ProduceResponse | None,
        error: ClientError | None,
    ) -> None:
        self._requests[node] -= 1
        if self._closed:
            return
        if answer is None:
            assert error is not None
            for batch in batches:
                self._failed(batch, error, sent=True)
        else:
            answers = read_answer(answer, request)
            for batch in batches:
                self._judge(batch, answers.get(batch.place, Answer(ErrorCode.UNKNOWN_SERVER_ERROR)))
        self._driver.wake()

    def _judge(self, batch: Batch, answer: Answer) -> None:
        code = answer.code
        queue = self.records.queues[batch.place]
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._succeeded(batch, answer)
        elif code is ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1 and not batch.unsure:
            first, second = batch.split(self._how)
            queue.replace(batch)
            self.records.active[batch.place] = queue
            self.records.memory.used += first.payload_bytes + second.payload_bytes - batch.payload_bytes
        elif code in OUT_OF_PLACE and (queue.recovering or queue.lost_place):
            self._later(batch)  # what has to come behind a batch that failed
        elif code in OUT_OF_PLACE and not batch.unsure and self.transactions is None:
            queue.lost_place = True  # the broker has forgotten us, and this batch is surely not in the log
            self._later(batch)
        else:
            error = _about(batch, BrokerSaid(code, str(batch.place), answer.message))
            self._failed(batch, error, sent=code in UNSURE)

    def _succeeded(self, batch: Batch, answer: Answer) -> None:
        queue = self.records.queues[batch.place]
        queue.acknowledged(batch)
        self._backoffs.pop(batch.place, None)
        self.counts.batches += 1
        self.counts.records += batch.count
        self.counts.bytes += batch.payload_bytes
        self._finished(batch, batch.succeed(answer.base_offset, answer.log_append_time_ms))

    def _failed(self, batch: Batch, error: ClientError, *, sent: bool) -> None:
        """`sent`: it may be in the log."""
        batch.unsure = batch.unsure or sent
        if error.retriable and batch.attempts <= self._config.retries and not self._is_lost():
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
        queue = self.records.queues[batch.place]
        now = self._env.clock.monotonic()
        queue.again(batch, queue.not_before if queue.not_before > now else now + backoff.next_s())
        self.records.active[batch.place] = queue
        self.counts.retried_records += batch.count

    def _is_lost(self) -> bool:
        """Whether what is written now is of no use to anybody: its transaction ends without it."""
        return self.transactions is not None and self.transactions.failed is not None

    def _give_up(self, batch: Batch, error: ClientError) -> None:
        queue = self.records.queues[batch.place]
        queue.given_up(batch)
        self.records.active[batch.place] = queue
        batch.fail(error)
        self._finished(batch, error)
        if self.transactions is not None:
            self.transactions.lost(batch, error)

    def _finished(self, batch: Batch, result: BatchResult | ClientError) -> None:
        self.records.memory.give_back(batch.payload_bytes)
        if isinstance(result, ClientError):
            self.counts.failed_records += batch.count
        if self._on_batch is not None:
            self._on_batch(batch, result)

    def _expire(self, now: float) -> None:
        limit_s = self._config.delivery_timeout_ms / 1000
        for queue in list(self.records.active.values()):
            while queue.waiting and now - queue.waiting[0].created > limit_s:
                batch = queue.waiting[0]
                batch.close()
                text = f"{batch.place}: {batch.count} records were not written in {limit_s:g} s."
                self._give_up(batch, _about(batch, TimedOut(text)))

    def _start_anew(self) -> None:
        """Partitions that have lost their place get a new identity, once all that was on the way is back."""
        if self.transactions is not None:
            return  # theirs is to abort
        for queue in list(self.records.active.values()):
            if queue.lost_place and not queue.in_flight:
                if queue.identity == self._identity:
                    self._identity = None
                for batch in queue.start_anew():
                    text = f"{batch.place}: nobody knows whether {batch.count} records were written."
                    error = _about(batch, TimedOut(text))
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
        for queue in list(self.records.active.values()):
            for batch in list(queue.waiting):
                self._give_up(batch, error)


def _encoding(config: ClientConfig) -> Encoding:
    codec = Codec[config.compression_type.upper()]
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return Encoding(codec, levels.get(codec), bool(config.transactional_id))


def _about(batch: Batch, error: ClientError) -> ClientError:
    error.topic, error.partition = batch.place
    return error
