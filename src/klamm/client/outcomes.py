"""What becomes of batches that were sent, or could not be: the part of a sender that judges.

Everything here happens at once, in a turn of the loop: an answer is taken, or time has passed. A batch ends written or
given up, or goes back to its queue for another try; the rules for that are those of `batches`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from klamm.client.accumulator import Accumulator
from klamm.client.backoff import Backoff
from klamm.client.batches import Batch, BatchResult, Encoding, Queue
from klamm.client.errors import BrokerSaid, ClientError, TimedOut
from klamm.client.nodes import is_fatal
from klamm.client.producing import OUT_OF_PLACE, UNSURE, Answer, endpoints, needs_new_leader, read_answer
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from klamm.client.batches import Identity
    from klamm.client.cluster import Cluster
    from klamm.client.driver import Driver
    from klamm.client.transactions import Transactions
    from klamm.wire.messages.k00_produce import ProduceRequest, ProduceResponse

OnBatch: TypeAlias = Callable[[Batch, BatchResult | ClientError], None]


@dataclass(slots=True)
class Counts:
    """Totals since the sender was made. `bytes` are those of records, before compression."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    requests: int = 0
    failed_records: int = 0
    retried_records: int = 0


class Outcomes:
    """`records` and `transactions` come with the sender that stands on this."""

    records: Accumulator
    transactions: Transactions | None
    _driver: Driver
    _identity: Identity | None

    def __init__(self, cluster: Cluster, on_batch: OnBatch | None, how: Encoding) -> None:
        self._cluster = cluster
        self._env = cluster.env
        self._config = cluster.config
        self._on_batch = on_batch
        self._how = how
        self._requests: dict[int, int] = defaultdict(int)  # on the way, by node
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._in_the_way: dict[int | None, ClientError] = {}  # why a broker has no connection; None: we no producer id
        self.counts = Counts()
        self._closed = False

    # Answers.

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
            if answer.node_endpoints:  # a broker that leads no more says who does, and where (KIP-951)
                brokers = endpoints(answer)
                for place, one in answers.items():
                    self._cluster.learn_leader(place, one.leader, brokers)
            for batch in batches:
                self._judge(batch, answers.get(batch.place, Answer(ErrorCode.UNKNOWN_SERVER_ERROR)), node)
        self._driver.wake()

    def _judge(self, batch: Batch, answer: Answer, node: int) -> None:
        code = answer.code
        queue = self.records.queues[batch.place]
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._succeeded(batch, answer)
        elif batch.outcome is not None:
            self._give_up(batch, BrokerSaid(code, str(batch.place), answer.message))  # its time was up already
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
            error = about(batch, BrokerSaid(code, str(batch.place), answer.message))
            self._failed(batch, error, sent=code in UNSURE, node=node)

    def _succeeded(self, batch: Batch, answer: Answer) -> None:
        queue = self.records.queues[batch.place]
        queue.acknowledged(batch)
        self._backoffs.pop(batch.place, None)
        self.counts.batches += 1
        self.counts.records += batch.count
        self.counts.bytes += batch.payload_bytes
        if batch.outcome is None:
            self._finished(batch, batch.succeed(answer.base_offset, answer.log_append_time_ms))
        else:  # too late for those who waited
            self.records.memory.give_back(batch.payload_bytes)

    def _failed(self, batch: Batch, error: ClientError, *, sent: bool, node: int | None = None) -> None:
        """`sent`: it may be in the log. `node` is who said so."""
        batch.unsure = batch.unsure or sent
        batch.trouble = error
        may_go_again = batch.outcome is None and batch.attempts <= self._config.retries and not self._is_lost()
        if not error.retriable or not may_go_again:
            self._give_up(batch, error)
        elif not isinstance(error, BrokerSaid):
            self._driver.start("metadata", self._refresh, {batch.place.topic})
            self._later(batch)
        elif needs_new_leader(error.code):
            leader = self._cluster.leader(*batch.place)
            moved = leader is not None and leader.leader != node  # there it may go at once
            if not moved:
                self._driver.start("metadata", self._refresh, {batch.place.topic})
            self._later(batch, at_once=moved)
        else:
            self._later(batch)

    def _later(self, batch: Batch, *, at_once: bool = False) -> None:
        config = self._config
        queue = self.records.queues[batch.place]
        due = queue.not_before
        if not at_once:
            backoff = self._backoffs.get(batch.place)
            if backoff is None:
                backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, self._env.rng)
                self._backoffs[batch.place] = backoff
            now = self._env.clock.monotonic()
            if due <= now:
                due = now + backoff.next_s()
        queue.again(batch, due)
        self.records.active[batch.place] = queue
        self.counts.retried_records += batch.count

    def _is_lost(self) -> bool:
        """Whether what is written now is of no use to anybody: its transaction ends without it."""
        return self.transactions is not None and self.transactions.failed is not None

    # Ends.

    def _give_up(self, batch: Batch, error: ClientError) -> None:
        queue = self.records.queues[batch.place]
        queue.given_up(batch)
        self.records.active[batch.place] = queue
        if batch.outcome is None:
            batch.fail(error)
            self._finished(batch, error)
        else:
            self.records.memory.give_back(batch.payload_bytes)
        if self.transactions is not None:
            self.transactions.lost(batch, error)

    def _finished(self, batch: Batch, result: BatchResult | ClientError) -> None:
        self.records.memory.give_back(batch.payload_bytes)
        self._tell(batch, result)

    def _tell(self, batch: Batch, result: BatchResult | ClientError) -> None:
        if isinstance(result, ClientError):
            self.counts.failed_records += batch.count
        if self._on_batch is not None:
            self._on_batch(batch, result)

    def _give_up_all(self, error: ClientError) -> None:
        for queue in list(self.records.active.values()):
            for batch in list(queue.waiting):
                self._give_up(batch, error)

    def _refuse(self, error: ClientError, node: int | None) -> None:
        """A wrong password, say: nobody waits for that to pass. What this broker leads is given up, or for None what
        nobody does; records that come later are another try."""
        for place, queue in list(self.records.active.items()):
            leader = self._cluster.leader(*place)
            if (None if leader is None else leader.leader) == node:
                for batch in list(queue.waiting):
                    why = type(error)(f"{place}: {error.text}", error.hint)
                    why.__cause__ = error
                    self._give_up(batch, about(batch, why))

    # By the clock.

    def _expire(self, now: float) -> None:
        limit_s = self._config.delivery_timeout_ms / 1000
        for queue in list(self.records.active.values()):
            while queue.waiting and now - queue.waiting[0].created > limit_s:
                batch = queue.waiting[0]
                batch.close()
                self._give_up(batch, self._too_late(batch, "were not written", limit_s))
            if self.transactions is None:  # theirs is to wait until all is back
                self._expire_in_flight(queue, now, limit_s)

    def _expire_in_flight(self, queue: Queue, now: float, limit_s: float) -> None:
        """Nobody waits any longer for these. They keep their memory and their place until they are back: an answer may
        still say that they were written."""
        for batch in queue.in_flight:
            if batch.outcome is None and now - batch.created > limit_s:
                error = self._too_late(batch, "were sent, and have not been acknowledged", limit_s)
                batch.fail(error)
                self._tell(batch, error)

    def _too_late(self, batch: Batch, what: str, limit_s: float) -> ClientError:
        why = batch.trouble
        if why is None:
            leader = self._cluster.leader(*batch.place)
            if leader is None:
                why = ClientError("The partition has no leader.")
            else:
                why = self._in_the_way.get(leader.leader) or self._in_the_way.get(None)
        text = f"{batch.place}: {batch.count} records {what} in {limit_s:g} s."
        error = TimedOut(text if why is None else f"{text} The last error: {why.text}", "" if why is None else why.hint)
        error.__cause__ = why
        return about(batch, error)

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
                    error = about(batch, TimedOut(text))
                    batch.fail(error)
                    self._finished(batch, error)

    # What has to wait.

    async def _pause(self) -> None:
        await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def _refresh(self, topics: Iterable[str]) -> None:
        try:
            await self._cluster.refresh(topics)
        except ClientError as error:
            if is_fatal(error):
                self._refuse(error, None)
            # Otherwise the batches know how long they can wait.
        await self._pause()


def about(batch: Batch, error: ClientError) -> ClientError:
    error.topic, error.partition = batch.place
    return error
