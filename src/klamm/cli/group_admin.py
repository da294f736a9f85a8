"""The questions about groups, each as one function: whom to ask, in which version, and what a refusal means.

A group's coordinator answers for it; which groups there are only all brokers together know. Errors of a coordinator
that is being found, moved or loaded pass by themselves: such a question is asked again for a while.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from klamm.cli.admin import Outcome
from klamm.client.errors import BrokerSaid, error_code
from klamm.client.retrying import Retrying
from klamm.core.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.wire.schema import Request

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"

_GROUP_KEY: Final = 0
_MANY_KEYS: Final = 4
_LAST_WITH_NAMES: Final = 9  # OffsetCommit and OffsetFetch: topics have ids after it
_MANY_GROUPS: Final = 8

T = TypeVar("T")
Place = tuple[str, int]


class Listed(NamedTuple):
    group_id: str
    type: str
    """`classic` where the cluster is too old to know another."""
    protocol_type: str
    state: str
    coordinator: int


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    places: Sequence[Place]


class Described(NamedTuple):
    state: str
    protocol_type: str
    assignor: str
    members: Sequence[Member]


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


async def list_groups(cluster: Cluster) -> list[Listed]:
    """All groups of all brokers, by name."""
    from klamm.wire.messages.k16_list_groups import ListGroupsRequest

    async def ask(node: int) -> list[Listed]:
        answer = await cluster.request(ListGroupsRequest(), node=node)
        if answer.error_code:
            raise BrokerSaid(error_code(answer.error_code), f"the groups of broker {node}")
        return [
            Listed(g.group_id, (g.group_type or CLASSIC).lower(), g.protocol_type, g.group_state, node)
            for g in answer.groups
        ]

    parts = await asyncio.gather(*(_patiently(cluster, partial(ask, node)) for node in cluster.brokers))
    return sorted(group for part in parts for group in part)


async def coordinator(cluster: Cluster, group_id: str) -> int:
    """The broker that coordinates this group. If it is the first of the cluster, that is decided by asking."""
    from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest

    async def ask() -> int:
        version = await cluster.version(FindCoordinatorRequest)
        if version >= _MANY_KEYS:
            request = FindCoordinatorRequest(coordinator_keys=[group_id], key_type=_GROUP_KEY)
            found = (await cluster.request(request, version=version)).coordinators[0]
        else:
            found = await cluster.request(FindCoordinatorRequest(key=group_id, key_type=_GROUP_KEY), version=version)
        if found.error_code:
            raise BrokerSaid(error_code(found.error_code), f"group {group_id}", found.error_message)
        if found.node_id not in cluster.brokers:
            await cluster.metadata([])  # it has come since we asked
        return int(found.node_id)

    return await _patiently(cluster, ask)


async def describe(cluster: Cluster, group: Listed) -> Described:
    return await (_describe_consumer if group.type == CONSUMER else _describe_classic)(cluster, group)


async def _describe_classic(cluster: Cluster, group: Listed) -> Described:
    from klamm.wire.messages.k15_describe_groups import DescribeGroupsRequest

    request = DescribeGroupsRequest(groups=[group.group_id])
    answer = await _ask(cluster, group.group_id, DescribeGroupsRequest, lambda version: request, _error_of_group)
    (told,) = answer.groups
    consumers = told.protocol_type == CONSUMER
    members = [
        Member(m.member_id, m.group_instance_id, m.client_id, m.client_host,
               assigned_places(m.member_assignment) if consumers else ())
        for m in told.members
    ]  # fmt: skip
    return Described(told.group_state, told.protocol_type, told.protocol_data, members)


async def _describe_consumer(cluster: Cluster, group: Listed) -> Described:
    from klamm.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

    request = ConsumerGroupDescribeRequest(group_ids=[group.group_id])
    answer = await _ask(cluster, group.group_id, ConsumerGroupDescribeRequest, lambda version: request, _error_of_group)
    (told,) = answer.groups
    members = [
        Member(m.member_id, m.instance_id, m.client_id, m.client_host,
               [(t.topic_name, index) for t in m.assignment.topic_partitions for index in t.partitions])
        for m in told.members
    ]  # fmt: skip
    return Described(told.group_state, group.protocol_type, told.assignor_name, members)


def assigned_places(assignment: bytes) -> list[Place]:
    """What a consumer of the classic protocol was assigned; nothing if it cannot be read: members tell each other, and
    the cluster does not look."""
    from klamm.wire import ProtocolError, decode
    from klamm.wire.messages.consumer_protocol import ConsumerProtocolAssignment

    if len(assignment) < 2:
        return []
    try:  # newer versions only add to the end, which is left over
        body = decode(ConsumerProtocolAssignment, assignment, 0, 2, allow_trailing=True)
    except ProtocolError:
        return []
    return [(topic.topic, index) for topic in body.assigned_partitions for index in topic.partitions]


async def committed(cluster: Cluster, group_id: str) -> dict[Place, Committed]:
    """All offsets of a group, by topic and partition."""
    from klamm.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

    def request(version: int) -> OffsetFetchRequest:
        if version >= _MANY_GROUPS:
            return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        return OffsetFetchRequest(group_id=group_id, topics=None)

    def error_of(answer: Any) -> int:
        return int(answer.groups[0].error_code if answer.groups else answer.error_code)

    answer = await _ask(cluster, group_id, OffsetFetchRequest, request, error_of, _LAST_WITH_NAMES)
    topics = answer.groups[0].topics if answer.groups else answer.topics
    return {
        (topic.name, p.partition_index): Committed(p.committed_offset, p.committed_leader_epoch, p.metadata or "")
        for topic in sorted(topics, key=lambda topic: topic.name)
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        if not p.error_code and p.committed_offset >= 0
    }


async def commit(cluster: Cluster, group_id: str, offsets: Mapping[Place, int]) -> list[Outcome]:
    """Set these offsets, for a group without members. What became of each, under `topic-partition`."""
    from klamm.wire.messages.k08_offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    topics: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, index), offset in offsets.items():
        topics[topic].append(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        )
    message = OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=some) for name, some in topics.items()],
    )

    def error_of(answer: Any) -> int:
        codes = {p.error_code for topic in answer.topics for p in topic.partitions}
        return int(codes.pop()) if len(codes) == 1 and ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in codes else 0

    answer = await _ask(cluster, group_id, OffsetCommitRequest, lambda version: message, error_of, _LAST_WITH_NAMES)
    return [
        Outcome(f"{topic.name}-{p.partition_index}", error_code(p.error_code))
        for topic in answer.topics
        for p in topic.partitions
    ]


async def delete_groups(cluster: Cluster, group_ids: Sequence[str]) -> list[Outcome]:
    from klamm.wire.messages.k42_delete_groups import DeleteGroupsRequest

    async def delete(group_id: str) -> Outcome:
        request = DeleteGroupsRequest(groups_names=[group_id])
        answer = await _ask(cluster, group_id, DeleteGroupsRequest, lambda version: request, retriable_error)
        return Outcome(group_id, error_code(answer.results[0].error_code))

    def retriable_error(answer: Any) -> int:
        code = error_code(answer.results[0].error_code)
        return code if code.retriable else 0

    return [await delete(group_id) for group_id in group_ids]  # each may have another coordinator, and they are few


async def delete_offsets(cluster: Cluster, group_id: str, places: Iterable[Place]) -> list[Outcome]:
    """Forget these offsets. What became of each, under `topic-partition`."""
    from klamm.wire.messages.k47_offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )

    topics: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
    for topic, index in places:
        topics[topic].append(OffsetDeleteRequestPartition(partition_index=index))
    asked = [OffsetDeleteRequestTopic(name=name, partitions=some) for name, some in topics.items()]
    request = OffsetDeleteRequest(group_id=group_id, topics=asked)
    answer = await _ask(
        cluster, group_id, OffsetDeleteRequest, lambda version: request, lambda answer: int(answer.error_code)
    )
    return [
        Outcome(f"{topic.name}-{p.partition_index}", error_code(p.error_code))
        for topic in answer.topics
        for p in topic.partitions
    ]


# ---- asking


def _no_error(answer: Any) -> int:
    return 0


async def _ask(
    cluster: Cluster,
    group_id: str,
    kind: type[Request],
    request: Callable[[int], Request],
    error_of: Callable[[Any], int] = _no_error,
    last_version: int | None = None,
) -> Any:
    """Ask the coordinator, in the newest version that both sides have and that is not after `last_version`. An error
    of the answer as a whole is raised, or passes."""

    async def ask() -> Any:
        node = await coordinator(cluster, group_id)
        version = (await cluster.connection(node)).versions.best(kind, last_version)
        answer = await cluster.request(request(version), node=node, version=version)
        _check(error_of(answer), group_id)
        return answer

    return await _patiently(cluster, ask)


async def _patiently(cluster: Cluster, ask: Callable[[], Awaitable[T]]) -> T:
    retrying = Retrying(cluster.env, cluster.config, "A question about groups")
    while True:
        try:
            return await ask()
        except BrokerSaid as error:
            await retrying.pause(error)


def _error_of_group(answer: Any) -> int:
    return int(answer.groups[0].error_code)


def _check(number: int, group_id: str) -> None:
    code = error_code(number)
    if code:
        raise BrokerSaid(code, f"group {group_id}", hint=hint_for(code, group_id))


def hint_for(code: ErrorCode, group_id: str) -> str:
    """What to do about the commonest refusals."""
    if code in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
        return f"The group has active members; stop them first. klamm group describe {group_id} --members shows them."
    if code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return "Members read that topic; stop them first."
    return ""
