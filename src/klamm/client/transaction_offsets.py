"""The positions of a consumer group as a part of a producer's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klamm.client.coordinators import Coordinator, Kind
from klamm.client.errors import BrokerSaid, error_code
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.transactions import Transactions

_LAST_COMMIT_WITHOUT_ADDING: Final = 4


class Member(NamedTuple):
    """Who commits. Anything with attributes of these names will do in its place, or the name of a group alone."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


async def send_offsets(transactions: Transactions, cluster: Cluster, offsets: Mapping[Any, Any], group: object) -> None:
    """Raises `BrokerSaid` for the first partition that was refused."""
    member = _member(group)
    identity, timeout_ms = transactions.identity, cluster.config.max_block_ms
    if not transactions.implicit:
        add = AddOffsetsToTxnRequest(
            transactional_id=transactions.id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=member.group_id,
        )
        _, code = await transactions.coordinator.ask(add, lambda answer: answer.error_code)
        if code is not ErrorCode.NONE:
            raise BrokerSaid(code, member.group_id)
    request = TxnOffsetCommitRequest(
        transactional_id=transactions.id,
        group_id=member.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=_topics(offsets),
    )
    at_most = None if transactions.implicit else _LAST_COMMIT_WITHOUT_ADDING
    coordinator = Coordinator(cluster, Kind.GROUP, member.group_id, timeout_ms)
    answer, code = await coordinator.ask(request, _worst, at_most=at_most)
    if code is not ErrorCode.NONE:
        raise BrokerSaid(code, f"{member.group_id}, {_first_with(answer, code)}")


def _member(group: object) -> Member:
    if isinstance(group, str):
        return Member(group)
    given = {name: getattr(group, name) for name in Member._fields if hasattr(group, name)}
    return Member(**given)


def _topics(offsets: Mapping[Any, Any]) -> list[TxnOffsetCommitRequestTopic]:
    """From partitions to offsets: numbers, or what has an `offset`, and perhaps `metadata` and a `leader_epoch`."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (name, partition), position in offsets.items():
        topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name, partitions=[]))
        epoch = getattr(position, "leader_epoch", None)
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=position if isinstance(position, int) else position.offset,
                committed_leader_epoch=-1 if epoch is None else epoch,
                committed_metadata=getattr(position, "metadata", None) or "",
            )
        )
    return list(topics.values())


def _worst(answer: TxnOffsetCommitResponse) -> int:
    codes = {partition.error_code for topic in answer.topics for partition in topic.partitions} - {0}
    return min(codes, key=lambda number: error_code(number).retriable, default=0)


def _first_with(answer: TxnOffsetCommitResponse, code: ErrorCode) -> str:
    return next(
        f"{topic.name}-{partition.partition_index}"
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code == code
    )
