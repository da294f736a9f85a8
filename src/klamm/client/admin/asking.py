"""Whom an administrator's question goes to, and when it is asked again.

The controller, the coordinator of a group or transaction, the leaders of partitions, all brokers: each may move while
it is being asked. Errors that say so pass by themselves, and the question is repeated for as long as
`default.api.timeout.ms` says; so is one that was never sent. One that was sent and not answered is repeated only if it
changes nothing, because nobody knows whether it was heard.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from klamm.client.admin.results import K, Results, V, failure, not_told
from klamm.client.cluster import CONTROLLER
from klamm.client.errors import BrokerSaid, ClientError, ConnectionLost, NotReachable, UnsupportedVersion, error_code
from klamm.client.retrying import Retrying
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.coordinators import Kind
    from klamm.wire.schema import Request

AT_ONCE: Final = 64
"""How many questions are under way at a time where each item is one of its own."""
_COORDINATOR_MOVES: Final = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT,
})  # fmt: skip
_LEADER_MOVES: Final = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.BROKER_NOT_AVAILABLE,
})  # fmt: skip

T = TypeVar("T")
Codes = Callable[[Any], Iterable[int]]
"""The error codes in an answer that may say that somebody else should have been asked."""


class Part:
    """A part of `Admin`; of use alone too: `Topics(cluster).delete_topics(["a"])`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster


def several(items: Iterable[T]) -> Iterable[T]:
    """One name stands for itself: taken apart it would be letters."""
    return [cast(T, items)] if isinstance(items, str | bytes) else items


async def patiently(cluster: Cluster, ask: Callable[[], Awaitable[T]], *, reading: bool = True) -> T:
    """Again, for a while, if what went wrong may pass by itself."""
    retrying = Retrying(cluster.env, cluster.config, "What was asked of the cluster")
    while True:
        try:
            return await ask()
        except BrokerSaid as error:
            await retrying.pause(error)
        except NotReachable as error:
            await retrying.pause(error)
            with suppress(ClientError):
                await cluster.metadata([])  # it may have left, and somebody else do its work
        except ConnectionLost as error:
            if not reading:
                raise
            await retrying.pause(error)


async def each(items: Iterable[K], ask: Callable[[K], Awaitable[V]]) -> Results[K, V]:
    """One question for each item, some at a time; what goes wrong with one is its own."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(item: K) -> tuple[K, V | ClientError]:
        async with room:
            try:
                return item, await ask(item)
            except ClientError as error:
                return item, error

    told = dict(await asyncio.gather(*(one(item) for item in dict.fromkeys(items))))
    return Results.of(told, told)


async def ask_controller(
    cluster: Cluster, request: Request, codes: Codes, *, version: int | None = None, reading: bool = False
) -> Any:
    """For what changes the cluster. (Brokers of a KRaft cluster pass it on; older ones say that they are not it.)"""

    async def ask() -> Any:
        answer = await cluster.request(request, node=CONTROLLER, version=version)
        if ErrorCode.NOT_CONTROLLER in codes(answer):
            await cluster.metadata([])
            raise BrokerSaid(ErrorCode.NOT_CONTROLLER, "the controller")
        return answer

    return await patiently(cluster, ask, reading=reading)


async def ask_coordinator(
    cluster: Cluster,
    kind: Kind,
    key: str,
    message: type[Request],
    request: Callable[[int], Request],
    codes: Codes,
    *,
    last_version: int | None = None,
    reading: bool = True,
) -> tuple[int, Any]:
    """The coordinator of this group or transactional id, and its answer: in the newest version that both sides have and
    that is not after `last_version`."""
    from klamm.client.coordinators import Coordinator

    coordinator = Coordinator(cluster, kind, key, cluster.config.default_api_timeout_ms)

    async def ask() -> tuple[int, Any]:
        version = await coordinator.version(message, at_most=last_version)
        node = await coordinator.node()
        answer = await coordinator.ask_once(request(version), version=version)
        for code in map(error_code, codes(answer)):
            if code in _COORDINATOR_MOVES:
                coordinator.forget()
                raise BrokerSaid(code, key)
        return node, answer

    return await patiently(cluster, ask, reading=reading)


async def ask_brokers(cluster: Cluster, ask: Callable[[int], Awaitable[T]]) -> list[T]:
    """All of them, for lists that only all of them together know. If one has trouble, all are asked again: what it had
    may be with another by then."""

    async def all_of_them() -> list[T]:
        return list((await each(cluster.brokers, ask)).check().values())

    return await patiently(cluster, all_of_them)


async def ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, T],
    ask: Callable[[int, Mapping[TopicPartition, T]], Awaitable[Mapping[TopicPartition, V | ClientError]]],
    *,
    reading: bool = True,
) -> Results[TopicPartition, V]:
    """The leader of each partition, with one question to each broker. Partitions whose leader has moved are asked for
    again; `wanted` has what goes into the question about each."""
    retrying = Retrying(cluster.env, cluster.config, "Asking the leaders of partitions")
    outcomes: dict[TopicPartition, V | ClientError] = {}
    left = dict(wanted)
    while left:
        by_leader, missing = await _by_leader(cluster, left)
        outcomes.update(missing)
        outcomes.update(await _ask_nodes(by_leader, ask))
        left = {place: what for place, what in left.items() if _may_pass(outcomes.get(place), reading)}
        if left:
            trouble = outcomes[next(iter(left))]
            assert isinstance(trouble, ClientError)
            try:
                await retrying.pause(trouble)
            except ClientError:
                break  # the time is up: each has the error that it had last
    return Results.of(wanted, outcomes)


async def _ask_nodes(
    parts: Mapping[int, Mapping[TopicPartition, T]],
    ask: Callable[[int, Mapping[TopicPartition, T]], Awaitable[Mapping[TopicPartition, V | ClientError]]],
) -> dict[TopicPartition, V | ClientError]:
    answers = await each(parts, lambda node: ask(node, parts[node]))
    outcomes: dict[TopicPartition, V | ClientError] = {}
    for node, part in parts.items():
        outcomes.update(answers[node] if node in answers else dict.fromkeys(part, answers.errors[node]))
    return outcomes


async def _by_leader(
    cluster: Cluster, wanted: Mapping[TopicPartition, T]
) -> tuple[dict[int, dict[TopicPartition, T]], dict[TopicPartition, ClientError]]:
    names = sorted({place.topic for place in wanted})
    topics = (await patiently(cluster, lambda: cluster.metadata(names))).topics
    by_leader: dict[int, dict[TopicPartition, T]] = defaultdict(dict)
    missing: dict[TopicPartition, ClientError] = {}
    for place, what in wanted.items():
        topic = topics.get(place.topic)
        partition = None if topic is None else topic.partitions.get(place.partition)
        if partition is not None and partition.leader in cluster.brokers:
            by_leader[partition.leader][place] = what
            continue
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if partition is None:
            code = (topic.error if topic is not None else None) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing[place] = failure(code, place) or not_told(place)
    return by_leader, missing


def _may_pass(outcome: object, reading: bool) -> bool:
    if isinstance(outcome, BrokerSaid):
        return outcome.code in _LEADER_MOVES
    return isinstance(outcome, NotReachable) or (reading and isinstance(outcome, ConnectionLost))


async def version_of(cluster: Cluster, message: type[Request]) -> int:
    """The version that `cluster.request` would use, for those that have to know before they ask."""
    return await patiently(cluster, lambda: cluster.version(message))


def needs(version: int, least: int, what: str) -> None:
    """For what came with a version of an API."""
    if version < least:
        raise UnsupportedVersion(f"The broker is too old {what}.")


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topics with their partitions, as requests have them."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in places:
        topics[topic].append(partition)
    return dict(topics)


def places(given: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in given]
