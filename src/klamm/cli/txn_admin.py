"""The questions about transactions, each as one function: whom to ask, in which version, and what a refusal means.

A transactional id has a coordinator; which ids there are only all brokers together know. What is open in a partition
its leader knows, and it may be that no coordinator does: such a transaction hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from klamm.cli.parsing import Failed
from klamm.client.errors import BrokerSaid, error_code
from klamm.client.retrying import Retrying
from klamm.core.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.client.metadata import Topic
    from klamm.wire.messages.k61_describe_producers import DescribeProducersResponse

ONGOING: Final = "Ongoing"

_TRANSACTION_KEY: Final = 1
_MANY_KEYS: Final = 4
_DURATIONS: Final = 1  # ListTransactions: the filters that came with versions
_PATTERNS: Final = 2
_FENCING_TIMEOUT_MS: Final = 60_000  # of the transaction that is begun in order to end another, and never used

T = TypeVar("T")
Place = tuple[str, int]


class Listed(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class Described(NamedTuple):
    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    """None: there is no transaction under way."""
    places: Sequence[Place]


class Open(NamedTuple):
    """A transaction that has records in a partition and no end."""

    place: Place
    leader: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_ms: int
    coordinator_epoch: int


async def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    above_ms: int | None = None,
    pattern: str | None = None,
) -> list[Listed]:
    """Those of all brokers, by transactional id."""
    from klamm.wire.messages.k66_list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if above_ms is None else above_ms,
        transactional_id_pattern=pattern,
    )

    async def ask(node: int) -> list[Listed]:
        version = await cluster.version(ListTransactionsRequest, node=node)
        for wanted, needed, what in ((above_ms, _DURATIONS, "how long they take"), (pattern, _PATTERNS, "a pattern")):
            if wanted is not None and version < needed:
                raise Failed(f"broker {node} is too old to choose transactions by {what}.")
        answer = await cluster.request(request, node=node, version=version)
        if answer.unknown_state_filters:
            raise Failed(f"there is no state {', '.join(answer.unknown_state_filters)}.")
        if answer.error_code:
            raise BrokerSaid(error_code(answer.error_code), f"the transactions of broker {node}")
        return [Listed(t.transactional_id, t.transaction_state, t.producer_id, node) for t in answer.transaction_states]

    parts = await asyncio.gather(*(_patiently(cluster, partial(ask, node)) for node in cluster.brokers))
    return sorted(one for part in parts for one in part)


async def coordinator(cluster: Cluster, transactional_id: str) -> int:
    from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest

    async def ask() -> int:
        version = await cluster.version(FindCoordinatorRequest)
        if version >= _MANY_KEYS:
            request = FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=_TRANSACTION_KEY)
            found = (await cluster.request(request, version=version)).coordinators[0]
        else:
            request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION_KEY)
            found = await cluster.request(request, version=version)
        if found.error_code:
            raise BrokerSaid(error_code(found.error_code), transactional_id, found.error_message)
        return int(found.node_id)

    return await _patiently(cluster, ask)


async def describe(cluster: Cluster, transactional_id: str) -> Described:
    """Failed if there is no such id."""
    from klamm.wire.messages.k65_describe_transactions import DescribeTransactionsRequest

    async def ask() -> Described:
        node = await coordinator(cluster, transactional_id)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (told,) = (await cluster.request(request, node=node)).transaction_states
        code = error_code(told.error_code)
        if code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise Failed(
                f"there is no transactional id {transactional_id!r}.", "See those there are with: klamm txn list"
            )
        if code:
            raise BrokerSaid(code, transactional_id)
        started = told.transaction_start_time_ms
        return Described(
            transactional_id,
            told.transaction_state,
            node,
            told.producer_id,
            told.producer_epoch,
            told.transaction_timeout_ms,
            started if started >= 0 else None,
            [(topic.topic, index) for topic in told.topics for index in sorted(topic.partitions)],
        )

    return await _patiently(cluster, ask)


async def end_by_id(cluster: Cluster, transactional_id: str) -> None:
    """Abort what is open under this id, by a new producer that fences the one it belongs to; when this returns, it is
    aborted everywhere."""
    from klamm.wire.messages.k22_init_producer_id import InitProducerIdRequest

    async def ask() -> None:
        node = await coordinator(cluster, transactional_id)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS)
        answer = await cluster.request(request, node=node)
        if answer.error_code:
            raise BrokerSaid(error_code(answer.error_code), transactional_id)

    await _patiently(cluster, ask)


# ---- what partitions know


async def open_in(cluster: Cluster, topics: Iterable[Topic], partition: int | None = None) -> list[Open]:
    """What is open in these topics, or in one partition of each, by place. Partitions without a leader tell nothing."""
    from klamm.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest

    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for index, one in topic.partitions.items():
            if one.leader in cluster.brokers and partition in (None, index):
                by_leader.setdefault(one.leader, {}).setdefault(topic.name, []).append(index)

    async def ask(leader: int, wanted: Mapping[str, list[int]]) -> list[Open]:
        asked = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        return _read_open(leader, await cluster.request(DescribeProducersRequest(topics=asked), node=leader))

    parts = await asyncio.gather(*(_patiently(cluster, partial(ask, *one)) for one in by_leader.items()))
    return sorted(one for part in parts for one in part)


def _read_open(leader: int, answer: DescribeProducersResponse) -> list[Open]:
    found = []
    for topic in answer.topics:
        for partition in topic.partitions:
            place = (topic.name, partition.partition_index)
            if partition.error_code:
                raise BrokerSaid(error_code(partition.error_code), f"{topic.name}-{place[1]}", partition.error_message)
            found += [
                Open(place, leader, one.producer_id, one.producer_epoch, one.current_txn_start_offset,
                     one.last_timestamp, one.coordinator_epoch)
                for one in partition.active_producers
                if one.current_txn_start_offset >= 0
            ]  # fmt: skip
    return found


async def owners(cluster: Cluster, found: Sequence[Open]) -> dict[Open, str | None]:
    """By which transactional id each of them is under way; None: no coordinator will ever end it."""
    ids = sorted({one.producer_id for one in found})
    listed = await list_transactions(cluster, producer_ids=ids) if ids else []
    described = await asyncio.gather(*(describe(cluster, one.transactional_id) for one in listed))
    known = {(txn.producer_id, place): txn.transactional_id for txn in described for place in txn.places}
    return {one: known.get((one.producer_id, one.place)) for one in found}


async def end_in_partition(cluster: Cluster, one: Open) -> None:
    """Write an abort marker into the partition, as a coordinator would."""
    from klamm.wire.messages.k27_write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    topic, index = one.place
    marker = WritableTxnMarker(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=max(one.coordinator_epoch, 0),
    )

    async def ask() -> None:
        answer = await cluster.request(WriteTxnMarkersRequest(markers=[marker]), node=one.leader)
        code = error_code(answer.markers[0].topics[0].partitions[0].error_code)
        if code:
            raise BrokerSaid(code, f"{topic}-{index}")

    await _patiently(cluster, ask)


async def _patiently(cluster: Cluster, ask: Callable[[], Awaitable[T]]) -> T:
    """Again, for a while, if what went wrong may pass by itself."""
    retrying = Retrying(cluster.env, cluster.config, "the request")
    while True:
        try:
            return await ask()
        except BrokerSaid as error:
            await retrying.pause(error)
