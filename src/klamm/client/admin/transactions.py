"""Transactions and producers. A transactional id has a coordinator; which ids there are only all brokers together know.
What is open in a partition its leader knows, and it may be that no coordinator does: such a transaction hangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from klamm.client.admin.asking import (
    Part,
    ask_brokers,
    ask_coordinator,
    ask_leaders,
    by_topic,
    each,
    needs,
    places,
    several,
)
from klamm.client.admin.results import Results, failure
from klamm.client.coordinators import Kind
from klamm.client.errors import BrokerSaid, ClientError
from klamm.client.prepared import PreparedTransaction, end
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

_DURATIONS: Final = 1  # ListTransactions: the filters that came with versions
_PATTERNS: Final = 2
_NO_LIMIT_MS: Final = 2**31 - 1  # the time limit that brokers name for two-phase transactions
_FENCING_TIMEOUT_MS: Final = 60_000  # of the transaction that is begun in order to end another, and never used


@dataclass(frozen=True, slots=True, order=True)
class TransactionListing:
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`start_ms` is None while there is no transaction under way."""

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def has_limit(self) -> bool:
        """A two-phase transaction has none: it is open until somebody ends it."""
        return self.timeout_ms != _NO_LIMIT_MS


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that has written to a partition. `txn_start_offset` is None where it has no transaction open there."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int | None


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id and epoch that the transactional id has now; older ones are refused."""

    producer_id: int
    producer_epoch: int


class Transactions(Part):
    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """Those of all brokers, by transactional id; only those that fit what is given. `pattern` is a regular
        expression for the whole id."""
        from klamm.wire.messages.k66_list_transactions import ListTransactionsRequest

        request = ListTransactionsRequest(
            state_filters=list(several(states)),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )

        async def ask(node: int) -> list[TransactionListing]:
            version = await self._cluster.version(ListTransactionsRequest, node=node)
            needs(
                version, _DURATIONS if longer_than_ms is not None else 0, "to choose transactions by how long they take"
            )
            needs(version, _PATTERNS if pattern is not None else 0, "to choose transactions by a pattern")
            answer = await self._cluster.request(request, node=node, version=version)
            if answer.unknown_state_filters:
                unknown = f"there is no state {', '.join(answer.unknown_state_filters)}"
                raise BrokerSaid(ErrorCode.INVALID_REQUEST, "transactions", unknown)
            if (error := failure(answer.error_code, f"the transactions of broker {node}")) is not None:
                raise error
            return [
                TransactionListing(one.transactional_id, one.transaction_state, one.producer_id, node)
                for one in answer.transaction_states
            ]

        return sorted(one for part in await ask_brokers(self._cluster, ask) for one in part)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> Results[str, TransactionDescription]:
        from klamm.wire.messages.k65_describe_transactions import DescribeTransactionsRequest

        async def ask(name: str) -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[name])
            node, answer = await ask_coordinator(
                self._cluster,
                Kind.TRANSACTION,
                name,
                DescribeTransactionsRequest,
                lambda _: request,
                lambda answer: [answer.transaction_states[0].error_code],
            )
            (told,) = answer.transaction_states
            if (error := failure(told.error_code, name)) is not None:
                raise error
            return TransactionDescription(
                name,
                told.transaction_state,
                node,
                told.producer_id,
                told.producer_epoch,
                told.transaction_timeout_ms,
                told.transaction_start_time_ms if told.transaction_start_time_ms >= 0 else None,
                tuple(TopicPartition(topic.topic, i) for topic in told.topics for i in sorted(topic.partitions)),
            )

        return await each(several(transactional_ids), ask)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> Results[str, FencedProducer]:
        """Take these ids over: producers that have them are refused from now on, and what they have open is aborted
        everywhere when this returns."""
        from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest

        async def fence(name: str) -> FencedProducer:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_FENCING_TIMEOUT_MS)
            _, told = await ask_coordinator(  # again if it was not answered: fencing twice does no harm
                self._cluster,
                Kind.TRANSACTION,
                name,
                InitProducerIdRequest,
                lambda _: request,
                lambda answer: [answer.error_code],
            )
            if (error := failure(told.error_code, name)) is not None:
                raise error
            return FencedProducer(told.producer_id, told.producer_epoch)

        return await each(several(transactional_ids), fence)

    async def end_transactions(
        self, transactions: Iterable[PreparedTransaction], *, committed: bool
    ) -> Results[PreparedTransaction, None]:
        """The second of two phases: commit or abort what `Producer.prepare` has left open. Twice does no harm."""

        async def end_it(one: PreparedTransaction) -> None:
            await end(self._cluster, one, committed=committed)

        return await each(transactions, end_it)

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Who has written to these partitions with sequence numbers, as their leaders know it."""
        from klamm.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest

        async def ask(
            node: int, part: Mapping[TopicPartition, None]
        ) -> dict[TopicPartition, tuple[ProducerState, ...] | ClientError]:
            asked = [TopicRequest(name=name, partition_indexes=some) for name, some in by_topic(part).items()]
            answer = await self._cluster.request(DescribeProducersRequest(topics=asked), node=node)
            found: dict[TopicPartition, tuple[ProducerState, ...] | ClientError] = {}
            for topic in answer.topics:
                for one in topic.partitions:
                    place = TopicPartition(topic.name, one.partition_index)
                    error = failure(one.error_code, place, one.error_message)
                    found[place] = tuple(map(_producer, one.active_producers)) if error is None else error
            return found

        return await ask_leaders(self._cluster, dict.fromkeys(places(partitions)), ask)

    async def abort_transaction(self, partition: tuple[str, int], producer: ProducerState) -> None:
        """End what a producer has open in one partition, as a coordinator would. Only for a transaction that hangs:
        `fence_producers` ends one that has a coordinator."""
        from klamm.wire.messages.k27_write_txn_markers import (
            WritableTxnMarker,
            WritableTxnMarkerTopic,
            WriteTxnMarkersRequest,
        )

        place = TopicPartition(*partition)
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )

        async def ask(node: int, part: Mapping[TopicPartition, None]) -> dict[TopicPartition, ClientError | None]:
            answer = await self._cluster.request(WriteTxnMarkersRequest(markers=[marker]), node=node)
            return {place: failure(answer.markers[0].topics[0].partitions[0].error_code, place)}

        (await ask_leaders(self._cluster, {place: None}, ask, reading=False)).check()


def _producer(told: object) -> ProducerState:
    from klamm.wire.messages.k61_describe_producers import ProducerState as Told

    assert isinstance(told, Told)
    start = told.current_txn_start_offset
    return ProducerState(
        told.producer_id,
        told.producer_epoch,
        told.last_sequence,
        told.last_timestamp,
        told.coordinator_epoch,
        start if start >= 0 else None,
    )
