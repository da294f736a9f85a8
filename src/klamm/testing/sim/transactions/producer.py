"""A transactional producer that never gives up, of either protocol, and its zombies.

It writes down what it does in a `History`. Whatever it is told, it goes on as a careful client would: it sends again
what it has no answer to, aborts what cannot go on, and starts over under the next epoch when it was fenced. What no
answer can excuse is a `Violation`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random  # noqa: TID251 - made from the seed alone
from typing import Any, Final

from klamm import wire
from klamm.core.errors import ErrorCode
from klamm.records.record import Record, encode_batch
from klamm.testing.sim.broker.client import Client, Lost
from klamm.testing.sim.broker.lab import error_code
from klamm.testing.sim.broker.model import Violation
from klamm.testing.transactions import Fate, History, Transaction
from klamm.wire.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest
from klamm.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.wire.messages.k26_end_txn import EndTxnRequest
from klamm.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TOPIC: Final = "t"
PARTITIONS: Final = 3
MAX_IN_FLIGHT: Final = 3
LONG_MS: Final = 600_000
"""A time limit that nothing here ever reaches: whoever has it is fenced by nobody but by its own successors."""

_GROUP, _TRANSACTION = 0, 1  # what FindCoordinator looks for

RETRIABLE: Final = frozenset(
    (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
ENDED: Final = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
)
"""The transaction was ended by somebody else: by its time limit, or by a producer of the same id."""

Connect = Callable[[str], Awaitable[Client]]


class Ended(Exception):
    """This transaction will not be committed."""


class _Batch:
    __slots__ = ("data", "partition")

    def __init__(self, partition: int, data: bytes) -> None:
        self.partition = partition
        self.data = data


class TransactionalProducer:
    def __init__(self, name: str, rng: Random, history: History, connect: Connect, is_over: Callable[[], bool]) -> None:
        self.name = name
        self.offset = -1
        """What its group has to have committed when all is over; -1: nothing."""
        self.offset_unsure: set[int] = set()
        self._rng = rng
        self._history = history
        self._connect = connect
        self._is_over = is_over
        self._client: Client | None = None
        self._protocol = rng.choice((1, 2))
        self._timeout_ms = rng.choice((LONG_MS, LONG_MS, 1500))
        self._identity = (-1, -1)
        self._sequences = [0] * PARTITIONS
        self._written = 0
        self._succeeded = asyncio.Event()  # there is a newer producer than any zombie
        self._zombies: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        while not self._is_over():
            await self._init()
            try:
                while not self._is_over():
                    await self._transaction()
                    if self._rng.random() < 0.1:
                        break  # as if the process had been started anew
            except Ended as ended:
                if self._timeout_ms == LONG_MS:
                    raise Violation(f"{self.name} was fenced by nobody: {ended}") from None
        await asyncio.gather(*self._zombies)

    # ---- one transaction

    async def _transaction(self) -> None:
        rng = self._rng
        transaction = self._history.begin(self.name)
        added: set[int] = set()
        for _ in range(rng.randint(1, 3)):
            batches = [self._batch(transaction) for _ in range(rng.randint(1, MAX_IN_FLIGHT))]
            if self._protocol == 1:
                await self._add({batch.partition for batch in batches} - added)
                added |= {batch.partition for batch in batches}
            await self._send_all(batches)
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.02, 0.2)))
        offset = self._written if rng.random() < 0.4 else None
        if offset is not None:
            await self._commit_offset(offset)
        if rng.random() < 0.08:
            self._abandon()
            await self._init()  # which ends what is open
            return
        await self._end(transaction, commit=rng.random() < 0.7, offset=offset)

    def _batch(self, transaction: Transaction) -> _Batch:
        rng = self._rng
        partition = rng.randrange(PARTITIONS)
        records = []
        for _ in range(rng.choice((1, 2, 5))):
            value = f"{self.name}/{self._written}".encode()
            self._written += 1
            transaction.add(partition, value)
            records.append(Record(0, 0, None, value))
        producer_id, epoch = self._identity
        sequence = self._sequences[partition]
        self._sequences[partition] += len(records)
        data = encode_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
        return _Batch(partition, data)

    async def _add(self, partitions: set[int]) -> None:
        if not partitions:
            return
        producer_id, epoch = self._identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=sorted(partitions))],
        )
        await self._until_done(
            request,
            3,
            lambda a: [p.partition_error_code for p in a.results_by_topic_v3_and_below[0].results_by_partition],
        )

    async def _send_all(self, batches: list[_Batch]) -> None:
        """All at once, and again from the first that failed: that is what sequence numbers are for."""
        waiting = list(batches)
        while waiting:
            version = 9 if self._protocol == 1 else 12
            codes = await self._calls([self._produce(batch) for batch in waiting], version)
            trouble = False
            left: list[_Batch] = []
            for batch, code in zip(waiting, codes, strict=True):
                if code is ErrorCode.NONE:
                    continue
                if code in ENDED and not (code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and trouble):
                    raise Ended(f"a batch was refused with {code.name}")
                if code is not None and code not in RETRIABLE | ENDED:
                    raise Violation(f"{self.name}: a batch was refused with {code.name}")
                trouble = True
                left.append(batch)
            waiting = left
            if waiting:
                await self._pause()

    def _produce(self, batch: _Batch) -> ProduceRequest:
        data = PartitionProduceData(index=batch.partition, records=batch.data)
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        return ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=5000, topic_data=[topic])

    async def _calls(self, requests: list[ProduceRequest], version: int) -> list[ErrorCode | None]:
        """None where no answer came."""
        try:
            client = await self._connected()
        except Lost:
            return [None] * len(requests)
        answers = await asyncio.gather(*(client.call(one, version) for one in requests), return_exceptions=True)
        codes: list[ErrorCode | None] = []
        for answer in answers:
            if isinstance(answer, Lost):
                codes.append(None)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                codes.append(error_code(answer.responses[0].partition_responses[0].error_code))
        return codes

    async def _find(self, key_type: int) -> None:
        find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[self.name])
        await self._until_done(find, 4, lambda a: [a.coordinators[0].error_code])

    async def _commit_offset(self, offset: int) -> None:
        producer_id, epoch = self._identity
        await self._find(_GROUP)
        if self._protocol == 1:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, group_id=self.name
            )
            await self._until_done(request, 3, lambda a: [a.error_code])
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        commit = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=-1,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        version = 3 if self._protocol == 1 else 5
        await self._until_done(commit, version, lambda a: [a.topics[0].partitions[0].error_code])

    async def _end(self, transaction: Transaction, *, commit: bool, offset: int | None) -> None:
        producer_id, epoch = self._identity
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        if commit:
            transaction.fate = Fate.UNKNOWN
            if offset is not None:
                self.offset_unsure.add(offset)
        answer = await self._until_done(request, 3 if self._protocol == 1 else 5, lambda a: [a.error_code])
        if commit:
            transaction.fate = Fate.COMMITTED
            if offset is not None:
                self.offset, self.offset_unsure = offset, set()
        if self._protocol == 2:
            if (answer.producer_id, answer.producer_epoch) == self._identity:
                raise Violation(f"{self.name}: the epoch {epoch} was not raised at the end of a transaction")
            self._identity = (answer.producer_id, answer.producer_epoch)
            self._sequences = [0] * PARTITIONS

    # ---- who it is

    async def _init(self) -> None:
        await self._find(_TRANSACTION)
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self._timeout_ms)
        answer = await self._until_done(request, 4, lambda a: [a.error_code])
        self._succeeded.set()
        self._identity = (answer.producer_id, answer.producer_epoch)
        self._sequences = [0] * PARTITIONS

    def _abandon(self) -> None:
        """Somebody who has not heard that there is a new producer goes on to write. Not a word of it may be kept."""
        transaction = self._history.begin(f"{self.name}'s zombie")
        batches = [self._batch(transaction) for _ in range(3)]
        identity = self._identity
        self._succeeded.clear()

        async def haunt() -> None:
            await self._succeeded.wait()
            await asyncio.sleep(self._rng.random())
            for batch in batches:
                codes = await self._calls([self._produce(batch)], 9)
                if codes == [ErrorCode.NONE]:
                    raise Violation(f"{self.name}: a zombie could write as {identity}")

        self._zombies.append(asyncio.get_running_loop().create_task(haunt()))

    # ---- talking

    async def _connected(self) -> Client:
        if self._client is None or self._client.lost is not None:
            self._client = await self._connect(self.name)
        return self._client

    async def _until_done(self, request: wire.Request, version: int, codes: Callable[[Any], list[int]]) -> Any:
        while True:
            try:
                answer = await (await self._connected()).call(request, version)
            except Lost:
                await self._pause()
                continue
            found = [error_code(code) for code in codes(answer)]
            ended = [code for code in found if code in ENDED]
            if ended:
                raise Ended(f"{type(request).__name__} was refused with {ended[0].name}")
            wrong = [code for code in found if code and code not in RETRIABLE]
            if wrong:
                raise Violation(f"{self.name}: {type(request).__name__} was refused with {wrong[0].name}")
            if not any(found):
                return answer
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.01, 0.3))
