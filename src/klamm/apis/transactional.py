"""What comes before the append of transactional batches: the word of their transaction's coordinator (KIP-890).

The first batch of a transaction in a partition has to wait for it. Clients of version 1 have told the coordinator of
the partition before, and it is only asked whether that is so; for those of version 2 (Produce from v12 on) the
partition is added now. Later batches find the transaction under way and wait for nothing.

Requests of one producer are appended in the order in which they came, also if the first of them has to wait: its
sequence numbers depend on it. What waits is bounded. This module must never append out of turn, and never hold on to a
connection's memory.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from klamm.apis.api import Answer, Broker, Context, Pending, Response
from klamm.coordinator.machine import Now, Outcome, Producer, Reply
from klamm.coordinator.transactions.state import EPOCH_BUMP
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.log.results import Rejected
from klamm.records.batch import TRANSACTIONAL, BatchError, BatchHeader, read_header
from klamm.replica.partition import UNREADABLE, Partition
from klamm.replica.verification import Verification
from klamm.wire.messages.k00_produce import ProduceRequest

if TYPE_CHECKING:
    from klamm.coordinator.transactions.machine import TxnMachine
    from klamm.replica.manager import ReplicaManager

MAX_WAITING_BYTES: Final = 64 << 20
"""Of records, of all producers. Beyond that a producer has to come again."""

_TOPIC_IDS: Final = 13
_ADDS_PARTITIONS: Final = 12
_ABORTABLE: Final = 11  # clients know TRANSACTION_ABORTABLE from here on

_NOT_NOW: Final = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""What a producer does not expect for a batch; Kafka answers with NOT_ENOUGH_REPLICAS, which any client retries."""

Key: TypeAlias = tuple[str | bytes, int]
"""A partition as the request names it."""
Verdicts: TypeAlias = Mapping[TopicPartition, ErrorCode]
Refused: TypeAlias = Mapping[Key, Rejected]
Append: TypeAlias = Callable[[Context, ProduceRequest, Refused], Answer]


class _Batch(NamedTuple):
    key: Key
    partition: Partition
    header: BatchHeader


class _Asked(NamedTuple):
    key: Key
    partition: Partition
    verification: Verification


class _Work:
    """One request that has to wait. Its records are copies."""

    __slots__ = ("append", "batches", "ctx", "done", "patience", "producer", "request", "size")

    def __init__(
        self,
        ctx: Context,
        request: ProduceRequest,
        batches: Sequence[_Batch],
        append: Append,
        patience: float,
    ) -> None:
        self.ctx = ctx
        self.request = request
        self.batches = batches
        self.append = append
        self.patience = patience  # until when the end of the producer's last transaction is waited for
        self.producer = _producer(batches[0].header)
        self.size = _copy_records(request)
        self.done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def answer(self) -> Response:
        answer = await self.done
        if isinstance(answer, Pending):
            later: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            answer.then(later.set_result)
            return await later
        return await answer if inspect.isawaitable(answer) else answer  # type: ignore[return-value] # None: none is wanted


class Verifier:
    """For all transactional producers of a broker."""

    __slots__ = ("_broker", "_lines", "_waiting_bytes")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines: dict[int, deque[_Work]] = {}  # by producer id; the coordinator is asked about the first
        self._waiting_bytes = 0

    def produce(self, ctx: Context, request: ProduceRequest, append: Append) -> Answer:
        """Calls `append` with what was refused, now or when it is the request's turn; the answer is what that gives."""
        batches = _batches(self._broker.replicas, ctx.api_version, request)
        if not batches:
            return append(ctx, request, {})
        producer = _producer(batches[0].header)
        if any(_producer(batch.header) != producer for batch in batches):
            return append(ctx, request, _all(batches, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "several producers"))
        line = self._lines.get(producer.id)
        refused: dict[Key, Rejected] = {}
        asked: list[_Asked] = []
        verdicts: Verdicts | Pending = {}
        if line is None:
            refused, asked = _needed(ctx.api_version, batches)
            if asked:
                verdicts = self._ask(ctx.api_version, request.transactional_id or "", producer, asked)
            if not isinstance(verdicts, Pending) and not _is_early(ctx.api_version, verdicts):
                return append(ctx, request, {**refused, **_settle(ctx.api_version, asked, verdicts)})
        if self._waiting_bytes > MAX_WAITING_BYTES:
            return append(ctx, request, _all(batches, ErrorCode.NOT_ENOUGH_REPLICAS, "too much waits to be verified"))
        work = self._put(ctx, request, batches, append)
        if line is None:
            self._go_on(work, refused, asked, verdicts)
        return work.answer()

    def _put(self, ctx: Context, request: ProduceRequest, batches: Sequence[_Batch], append: Append) -> _Work:
        patience_s = self._broker.options.get_int("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        work = _Work(ctx, request, batches, append, asyncio.get_running_loop().time() + patience_s)
        self._waiting_bytes += work.size
        self._lines.setdefault(work.producer.id, deque()).append(work)
        return work

    def _ask(
        self, version: int, transactional_id: str, producer: Producer, asked: Sequence[_Asked]
    ) -> Verdicts | Pending:
        partitions = [TopicPartition(one.partition.topic, one.partition.index) for one in asked]

        def all_of_them(error: ErrorCode) -> Any:
            return dict.fromkeys(partitions, error)

        def decide(machine: TxnMachine, reply: Reply, now: Now) -> Outcome:
            if version >= _ADDS_PARTITIONS:
                return machine.add_partitions(
                    reply, now, all_of_them, transactional_id, producer, partitions, version=EPOCH_BUMP
                )
            return machine.verify_partitions(reply, now, dict, transactional_id, producer, partitions)

        return cast("Verdicts | Pending", self._broker.transactions.call(transactional_id, decide, all_of_them))

    def _go_on(
        self,
        work: _Work,
        refused: Mapping[Key, Rejected],
        asked: Sequence[_Asked],
        verdicts: Verdicts | Pending,
    ) -> None:
        """The coordinator has been asked about the first of a line."""
        if isinstance(verdicts, Pending):
            verdicts.then(partial(self._answered, work, refused, asked))
        else:
            self._answered(work, refused, asked, verdicts)

    def _answered(self, work: _Work, refused: Mapping[Key, Rejected], asked: Sequence[_Asked], verdicts: Any) -> None:
        version = work.ctx.api_version
        loop = asyncio.get_running_loop()
        if _is_early(version, verdicts) and loop.time() < work.patience:
            pause_s = self._broker.options.get_int("add.partitions.to.txn.retry.backoff.ms") / 1000
            loop.call_later(pause_s, self._advance, work.producer.id)
            return
        self._append(work, {**refused, **_settle(version, asked, verdicts)})
        if work.producer.id in self._lines:
            # Not from here: a long line would be a deep stack.
            loop.call_soon(self._advance, work.producer.id)

    def _advance(self, producer_id: int) -> None:
        work = self._lines[producer_id][0]
        version = work.ctx.api_version
        refused, asked = _needed(version, work.batches)
        verdicts: Verdicts | Pending = {}
        if asked:
            verdicts = self._ask(version, work.request.transactional_id or "", work.producer, asked)
        self._go_on(work, refused, asked, verdicts)

    def _append(self, work: _Work, refused: Refused) -> None:
        """At once: what the coordinator said holds for now."""
        line = self._lines[work.producer.id]
        assert line[0] is work
        line.popleft()
        if not line:
            del self._lines[work.producer.id]
        self._waiting_bytes -= work.size
        try:
            answer = work.append(work.ctx, work.request, refused)
        except Exception as error:  # noqa: BLE001 - it goes to who waits, as from any other handler
            if not work.done.done():
                work.done.set_exception(error)
            return
        if inspect.iscoroutine(answer):
            answer = asyncio.ensure_future(answer)  # begun here: who waits may be gone before it has its turn
        if not work.done.done():
            work.done.set_result(answer)


def _copy_records(request: ProduceRequest) -> int:
    """The connection goes on to use the memory that the records are in. Returns their size."""
    size = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                copy = bytearray(data.records)  # type: ignore[arg-type] # never a FileRange when decoded
                data.records = copy  # writable, as the connection's memory is
                size += len(copy)
    return size


def _batches(replicas: ReplicaManager, version: int, request: ProduceRequest) -> list[_Batch]:
    """The transactional ones for partitions that this broker leads; what is wrong with the others, the append says."""
    by_id = version >= _TOPIC_IDS
    found: list[_Batch] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            index = data.index
            partition = replicas.find_by_id(topic.topic_id, index) if by_id else replicas.find(topic.name, index)
            if partition is None or partition.internal or partition.error or not data.records:
                continue
            try:
                header = read_header(data.records)  # type: ignore[arg-type]
            except BatchError:
                continue
            if header.attributes & TRANSACTIONAL:
                found.append(_Batch((topic.topic_id if by_id else topic.name, index), partition, header))
    return found


def _producer(header: BatchHeader) -> Producer:
    return Producer(header.producer_id, header.producer_epoch)


def _all(batches: Sequence[_Batch], code: ErrorCode, message: str) -> Refused:
    return {batch.key: Rejected(code, message) for batch in batches}


def _needed(version: int, batches: Sequence[_Batch]) -> tuple[dict[Key, Rejected], list[_Asked]]:
    """What is refused already, and what the coordinator has to be asked about."""
    adds = version >= _ADDS_PARTITIONS
    refused: dict[Key, Rejected] = {}
    asked: list[_Asked] = []
    for key, partition, header in batches:
        log = partition.log
        if log is None or not (adds or log.config.verify_transactions):
            continue
        try:
            # Also if the log is offline: it may be back when the coordinator has answered.
            needed = partition.verification(header, adds=adds)
        except UNREADABLE as error:
            needed = Rejected(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        if isinstance(needed, Rejected):
            refused[key] = needed
        elif needed is not None:
            asked.append(_Asked(key, partition, needed))
    return refused, asked


def _is_early(version: int, verdicts: Verdicts) -> bool:
    """The producer's last transaction is still ending. A producer of version 2 does not wait for that before it sends,
    and sending again would take it longer than it takes here."""
    return version >= _ADDS_PARTITIONS and ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()


def _settle(version: int, asked: Sequence[_Asked], verdicts: Verdicts) -> dict[Key, Rejected]:
    refused: dict[Key, Rejected] = {}
    for key, partition, verification in asked:
        error = verdicts[TopicPartition(partition.topic, partition.index)]
        if error:
            refused[key] = _translated(version, error)
        else:
            partition.confirm(verification)
    return refused


def _translated(version: int, error: ErrorCode) -> Rejected:
    """What a producer expects to hear about a batch."""
    unsure = "it could not be verified that the partition is part of the transaction"
    if error in _NOT_NOW or (error == ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_PARTITIONS):
        return Rejected(ErrorCode.NOT_ENOUGH_REPLICAS, f"{unsure}: {error.name}")
    if error == ErrorCode.PRODUCER_FENCED:
        return Rejected(ErrorCode.INVALID_PRODUCER_EPOCH, "a newer producer has this transactional id")
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE:
        error = ErrorCode.INVALID_TXN_STATE
    if error in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        return Rejected(error, "the partition is not part of the producer's transaction")
    return Rejected(error, "")
