"""Batches on their way to the leaders of their partitions: the inner half of a `Sender`.

All decisions are taken in `_pump`, which never waits; see `driver`. Requests are bounded by
max.in.flight.requests.per.connection for each broker. What becomes of batches is in `outcomes`, what is different in a
transaction is asked of `transactions`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from klamm.client.accumulator import Accumulator
from klamm.client.batches import NOBODY, Batch, Encoding, Identity, Queue
from klamm.client.connection import Connection
from klamm.client.driver import Driver
from klamm.client.errors import BrokerSaid, ClientError, UnsupportedVersion, error_code
from klamm.client.nodes import is_fatal
from klamm.client.outcomes import OnBatch, Outcomes
from klamm.client.partitioner import Choice, partitioner
from klamm.client.producing import Answer, produce_request
from klamm.client.reply import Reply
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.records.compression import Codec, compress
from klamm.wire.stencil import Stencil

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.config import ClientConfig
    from klamm.client.sender import Sender
    from klamm.client.transactions import Transactions
    from klamm.wire.messages.k00_produce import ProduceRequest
    from klamm.wire.messages.k22_init_producer_id import InitProducerIdResponse

_MAX_WAIT_S: Final = 1.0  # the longest nap: expired batches are noticed at least this often
_IDLE_WAIT_S: Final = 30.0  # the same while there is nothing to send: old metadata is noticed
PRESS_BYTES: Final = 64 << 10
PRESS_HARD_BYTES: Final = 4 << 10
"""Batches of more bytes than this are compressed in a thread, the second where a level was chosen: 64 KiB take up to
0.5 ms, a megabyte of zstd 14 ms, and high levels a hundred times as long."""


class _Used(NamedTuple):
    stencil: Stencil
    request: ProduceRequest
    made_from: tuple[object, ...]
    """What it depends on."""


class Sending(Outcomes):
    def __init__(self, cluster: Cluster, on_batch: OnBatch | None, choice: str | Choice | None) -> None:
        config = cluster.config
        super().__init__(cluster, on_batch, _encoding(config))
        self._acks = -1 if config.acks in ("all", "-1") else int(config.acks)
        self._idempotent = config.enable_idempotence and self._acks == -1
        # Without sequences only one batch of a partition at a time keeps the order when one has to be sent again.
        self._window = config.max_in_flight_requests_per_connection if self._idempotent else 1
        self._linger_s = config.linger_ms / 1000
        self._identity = None if self._idempotent else NOBODY
        self._stalled: dict[int, float] = {}  # since when a broker has taken nothing of what there is for it
        self._stencils: dict[TopicPartition, _Used] = {}
        self._press_bytes = _press_bytes(self._how)
        self._flushing = 0
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
                if not queue.lost_place and not queue.in_flight:
                    idle.append(place)
                continue
            if not self._is_ready(queue, now, linger_s):
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
        is_stale = self._cluster.is_stale()
        if is_stale:
            self._cluster.forget(self.records.forget_idle(now - self._config.metadata_max_idle_ms / 1000))
        if homeless or is_stale:
            self._driver.start("metadata", self._refresh, homeless)
        for node, queues in by_node.items():
            self._send_to(node, queues, now)
        return nap_s

    def _is_ready(self, queue: Queue, now: float, linger_s: float) -> bool:
        if not queue.is_ready(now, linger_s, self._config.batch_size, self._window):
            return False
        first = queue.waiting[0]
        if first.size <= self._press_bytes or first.is_sealed or first.pressed is not None:
            return True
        if not first.is_pressing:
            self._press(queue, first)
        return False

    def _press(self, queue: Queue, batch: Batch) -> None:
        """Compress it without holding up everybody else; nothing more is added to it."""
        queue.close(batch)
        batch.is_pressing = True
        payload = batch.builder.payload()
        doing = self._env.executor.submit(compress, self._how.codec, payload, self._how.level)
        doing.add_done_callback(partial(self._pressed, batch))

    def _pressed(self, batch: Batch, done: asyncio.Future[bytes]) -> None:
        if done.cancelled() or batch.outcome is not None or self._closed:
            return
        error = done.exception()
        if error is None:
            batch.pressed = done.result()
        else:
            self._give_up(batch, ClientError(f"{batch.place}: a batch cannot be compressed: {error!r}."))
        self._driver.wake()

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
                ready = [queue for queue in ready if self._is_ready(queue, now, linger_s)]
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

    # What has to wait.

    async def _get_ready(self, node: int) -> None:
        try:
            connection = await self._cluster.connection(node)
            await connection.wait_writable(self._config.request_timeout_ms / 1000)
            self._in_the_way.pop(node, None)
        except ClientError as error:
            self._in_the_way[node] = error
            if is_fatal(error):
                self._refuse(error, node)
            await self._refresh(())

    async def _get_identity(self) -> None:
        from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
        try:
            answer: InitProducerIdResponse = await self._cluster.request(request)
        except UnsupportedVersion as error:
            self._give_up_all(error)
            return
        except ClientError as error:
            self._in_the_way[None] = error
            if is_fatal(error):
                self._give_up_all(error)
            await self._pause()
            return
        if answer.error_code:
            refusal = self._in_the_way[None] = BrokerSaid(error_code(answer.error_code), "a producer id")
            if not refusal.retriable:
                self._give_up_all(refusal)
            await self._pause()
        else:
            self._identity = Identity(answer.producer_id, answer.producer_epoch)
            self._in_the_way.pop(None, None)


def _encoding(config: ClientConfig) -> Encoding:
    codec = Codec[config.compression_type.upper()]
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return Encoding(codec, levels.get(codec), bool(config.transactional_id))


def _press_bytes(how: Encoding) -> int:
    if how.codec is Codec.NONE:
        return 1 << 62
    return PRESS_BYTES if how.level is None else PRESS_HARD_BYTES
