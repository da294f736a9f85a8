"""Transactions of one producer: begin, add partitions and offsets, commit or abort.

There are two protocols. In the first, a producer adds each partition to the transaction before it writes there. In the
second (KIP-890, transaction.version 2 of the cluster) writing adds it (`implicit`), and each end of a transaction gives
the producer a new epoch, so that nothing late of one can end up in the next.

What goes wrong is of three kinds: it passes (and is tried again), it costs the transaction (`failed`; it can only be
aborted), or it costs the producer (`ProducerFenced`, a missing permission). After an abort in which a batch was lost
the producer gets a new epoch as well (KIP-360), in the first protocol by asking for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from klamm.client.batches import Batch, Identity
from klamm.client.coordinators import Coordinator, Kind
from klamm.client.errors import (
    BrokerSaid,
    ClientError,
    ProducerFenced,
    TimedOut,
    TransactionAborted,
    TransactionUnfinished,
    UnsupportedVersion,
    error_code,
)
from klamm.client.prepared import FEATURE, IMPLICIT_LEVEL, LAST_END_WITHOUT_EPOCH, PreparedTransaction
from klamm.client.retrying import Retrying
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from klamm.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from klamm.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.sender import Sender

log = logging.getLogger("klamm.client")

LEAVE_LIMIT_S: Final = 5.0
"""How long a producer that is closed tries to abort what is open. If it cannot, the coordinator will."""
_LAST_ADD_OF_CLIENTS: Final = 3  # later versions are for brokers
_LAST_INIT_WITHOUT_TWO_PHASES: Final = 5

FENCED: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED))
_FATAL: Final = frozenset(
    (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
)
"""What costs the producer, whoever hears it."""


class State(Enum):
    NEW = "not initialized"
    READY = "between two transactions"
    OPEN = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    PREPARED = "waiting for somebody else to end its transaction"
    OVER = "of no more use"


class Transactions:
    def __init__(self, cluster: Cluster, sender: Sender) -> None:
        config = cluster.config
        self.id = config.transactional_id
        self.state = State.NEW
        self.implicit = False
        self.failed: ClientError | None = None
        """Why the transaction, or with `State.OVER` the producer, cannot go on."""
        self.wanted: set[TopicPartition] = set()
        self.identity = Identity(-1, -1)
        self.coordinator = Coordinator(cluster, Kind.TRANSACTION, self.id, config.max_block_ms)
        self._cluster = cluster
        self._sender = sender
        self._added: set[TopicPartition] = set()
        self._adding = asyncio.Lock()  # an end must not overtake it: it would begin another transaction
        self._started = False  # the coordinator knows of it
        self._lost_batch = False

    # For the sender.

    def check_open(self) -> None:
        """Records belong into a transaction."""
        if self.state is not State.OPEN or self.failed is not None:
            self._expect(State.OPEN, "send")

    def includes(self, place: TopicPartition) -> bool:
        """Whether this partition may be written to. If not it will be, after `add_wanted`."""
        if place in self._added:
            return True
        if self.implicit:
            self._started = True
            self._added.add(place)
            return True
        self.wanted.add(place)
        return False

    def lost(self, batch: Batch, error: ClientError) -> None:
        """A batch was given up."""
        self._lost_batch = self._lost_batch or batch.attempts > 0
        if error is not self.failed:
            self.fail(error)

    def fail(self, error: ClientError) -> None:
        """The transaction cannot be committed any more; after some errors there will be no other."""
        code = error.code if isinstance(error, BrokerSaid) else None
        # A broker that has an old epoch in a batch may have been told by a time-out: that is for the end to find out.
        if isinstance(error, (ProducerFenced, UnsupportedVersion)) or code in _FATAL:
            self._end_all(error)
        elif self.failed is None and self.state is not State.READY:
            self.failed = TransactionAborted(f"The transaction of {self.id} can only be aborted: {error.text}")
            self.failed.__cause__ = error

    def _end_all(self, error: ClientError) -> ClientError:
        """The end of this producer."""
        if isinstance(error, BrokerSaid) and error.code in FENCED:
            error = ProducerFenced(f"Another producer has taken over the transactional id {self.id}.")
        if self.state is not State.OVER:
            self.state, self.failed = State.OVER, error
        assert self.failed is not None
        return self.failed

    async def add_wanted(self) -> None:
        """Tell the coordinator of the partitions that are to be written to (first protocol)."""
        wanted, self.wanted = self.wanted, set()
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(wanted):
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=all_) for name, all_ in topics.items()],
        )
        self._started = True
        try:
            async with self._adding:
                _, code = await self.coordinator.ask(request, _worst, at_most=_LAST_ADD_OF_CLIENTS)
        except ClientError as error:
            self.fail(error)
            return
        if code is ErrorCode.NONE:
            self._added |= wanted
        else:
            refusal = BrokerSaid(code, ", ".join(map(str, sorted(wanted))))
            self.fail(self._end_all(refusal) if code in FENCED else refusal)

    # For the producer.

    async def init(self) -> None:
        """Take over the transactional id: what another producer left open under it is aborted, and it is fenced."""
        if self.state in (State.NEW, State.PREPARED):
            await self._init(Identity(-1, -1))
            self.state = State.READY
        elif self.state is State.OVER:
            self._expect(State.READY, "begin")

    async def _init(self, before: Identity) -> None:
        two_phases = self._cluster.config.transaction_two_phase_commit_enable
        if two_phases and await self.coordinator.version(InitProducerIdRequest) <= _LAST_INIT_WITHOUT_TWO_PHASES:
            raise UnsupportedVersion(
                "The broker takes no two-phase transactions.",
                "Allow them there, with transaction.two.phase.commit.enable=true, or do without.",
            )
        request = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=self._cluster.config.transaction_timeout_ms,
            producer_id=before.producer_id,
            producer_epoch=before.epoch,
            enable2_pc=two_phases,
        )
        answer: InitProducerIdResponse
        answer, code = await self.coordinator.ask(
            request, _code, at_most=None if two_phases else _LAST_INIT_WITHOUT_TWO_PHASES
        )
        if code is not ErrorCode.NONE:
            raise self._end_all(BrokerSaid(code, self.id))
        self._renew(Identity(answer.producer_id, answer.producer_epoch))

    def _renew(self, identity: Identity) -> None:
        self.identity = identity
        self._sender.renew(identity)

    async def begin(self) -> None:
        await self.init()
        self._expect(State.READY, "begin")
        implicit = await self._is_implicit()
        if implicit and not self.implicit and self._added:
            await self._init(self.identity)  # the first of the new protocol begins with a new epoch
        self.implicit = implicit
        self._added.clear()
        self._started = self._lost_batch = False
        self.state = State.OPEN

    async def _is_implicit(self) -> bool:
        config = self._cluster.config
        retrying = Retrying(self._cluster.env, config, "Beginning a transaction", config.max_block_ms)
        while True:
            try:
                connection = await self._cluster.connection()
                return connection.versions.features.get(FEATURE, 0) >= IMPLICIT_LEVEL
            except ClientError as error:
                await retrying.pause(error)

    async def send_offsets(self, offsets: Mapping[Any, Any], group: object) -> None:
        """The positions of a group become part of the transaction: they are committed with it."""
        from klamm.client.transaction_offsets import send_offsets

        self._expect(State.OPEN, "send offsets")
        if offsets:
            self._started = self._started or self.implicit
            try:
                await send_offsets(self, self._cluster, offsets, group)
            except ClientError as error:
                fatal = isinstance(error, BrokerSaid) and error.code in FENCED | _FATAL
                self.fail(self._end_all(error) if fatal else error)
                raise
            self._started = True

    async def prepare(self) -> PreparedTransaction:
        """When this returns, all of it is written, and it stays open for somebody else to end."""
        self._expect(State.OPEN, "prepare")
        await self._sender.flush()
        if self.failed is not None:
            raise self.failed.with_traceback(None)
        if not self._started:
            self.state = State.READY
            return PreparedTransaction(self.id, -1, -1)
        self.state = State.PREPARED
        return PreparedTransaction(self.id, self.identity.producer_id, self.identity.epoch)

    async def commit(self) -> None:
        """When this returns, all of it is committed. `TransactionAborted` if it cannot be; then `abort`."""
        if self.state is not State.COMMITTING:
            self._expect(State.OPEN, "commit")
            self.state = State.COMMITTING
            try:
                await self._sender.flush()
            except BaseException:  # cancelled: nothing is decided yet, and not all is written
                if self.state is State.COMMITTING:
                    self.state = State.OPEN
                raise
        if self.failed is not None:
            if self.state is State.COMMITTING:
                self.state = State.OPEN
            raise self.failed.with_traceback(None)
        await self._end(committed=True)

    async def abort(self) -> None:
        """When this returns, nothing of it will ever be seen by those who read what is committed."""
        if self.state is State.OVER:
            assert self.failed is not None
            raise self.failed.with_traceback(None)
        if self.state not in (State.OPEN, State.ABORTING):
            self._expect(State.OPEN, "abort")
        self.state = State.ABORTING
        self.failed = self.failed or TransactionAborted(f"The transaction of {self.id} was aborted.")
        await self._sender.settle()
        await self._end(committed=False)

    async def leave(self, limit_s: float | None = None) -> None:
        """Abort what is open, if that is possible; for those who have another error to tell of, or go."""
        if self.state in (State.OPEN, State.ABORTING):
            try:
                async with asyncio.timeout(limit_s):
                    await self.abort()
            except (ClientError, TimeoutError) as error:
                if not isinstance(self.failed, ProducerFenced):
                    log.warning("A transaction of %s stays open until it times out: %s", self.id, error)

    async def _end(self, *, committed: bool) -> None:
        renewed = False
        if self._started:
            async with self._adding:
                renewed = await self._tell(committed=committed)
        if self._lost_batch and not renewed:
            await self._init(self.identity)
        self.failed = None
        self.wanted.clear()
        self.state = State.READY

    async def _tell(self, *, committed: bool) -> bool:
        """Whether the coordinator has given us a new epoch with it."""
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=committed,
        )
        try:
            answer: EndTxnResponse
            answer, code = await self.coordinator.ask(
                request, _code, at_most=None if self.implicit else LAST_END_WITHOUT_EPOCH
            )
        except TimedOut as error:
            raise TransactionUnfinished(error.text, f"Call {'commit' if committed else 'abort'} again.") from error
        if code is ErrorCode.NONE:
            if answer.producer_id < 0:
                return False
            self._renew(Identity(answer.producer_id, answer.producer_epoch))
            return True
        if committed and code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_PRODUCER_ID):
            self.fail(BrokerSaid(code, self.id))
            self.state = State.OPEN
            assert self.failed is not None
            raise self.failed
        raise self._end_all(BrokerSaid(code, self.id))

    def _expect(self, state: State, what: str) -> None:
        if self.failed is not None:
            raise self.failed.with_traceback(None)
        if self.state is not state:
            between = self.state is State.READY
            raise ClientError(
                f"The producer of {self.id} cannot {what} now: it is {self.state.value}.",
                "Do it in a block with `producer.transaction()`, or call `begin` first." if between else "",
            )


def _code(answer: InitProducerIdResponse | EndTxnResponse) -> int:
    return answer.error_code


def _worst(answer: AddPartitionsToTxnResponse) -> int:
    """What counts of the codes of all partitions: one that is final before one that passes."""
    codes = {
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }
    codes -= {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}
    return min(codes, key=lambda number: error_code(number).retriable, default=ErrorCode.NONE)
