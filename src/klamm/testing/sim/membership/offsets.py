"""OffsetCommit and OffsetFetch of the simulated members, at versions with names and with ids."""

from __future__ import annotations

from random import Random  # noqa: TID251 - made from the seed alone

from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker.lab import error_code
from klamm.testing.sim.membership.group import Group
from klamm.testing.sim.membership.ledger import Commit
from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_FETCH_VERSION = 9


def commit_request(
    group: Group, partition: int, commit: Commit, member: tuple[str, str | None, int], rng: Random
) -> tuple[OffsetCommitRequest, int]:
    """`member`: its id, its instance id and its generation or epoch."""
    one = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=commit.offset, committed_metadata=commit.note
    )
    topic = OffsetCommitRequestTopic(name=group.topic.name, topic_id=group.topic.id, partitions=[one])
    member_id, instance_id, epoch = member
    request = OffsetCommitRequest(
        group_id=group.id,
        member_id=member_id,
        group_instance_id=instance_id,
        generation_id_or_member_epoch=epoch,
        topics=[topic],
    )
    return request, rng.choice((9, 10))


def fetch_request(
    group: Group, partitions: list[int], member_id: str | None = None, epoch: int = -1
) -> tuple[OffsetFetchRequest, int]:
    topic = OffsetFetchRequestTopics(name=group.topic.name, partition_indexes=partitions)
    asked = OffsetFetchRequestGroup(group_id=group.id, member_id=member_id, member_epoch=epoch, topics=[topic])
    return OffsetFetchRequest(groups=[asked], require_stable=True), _FETCH_VERSION


def committed(answer: OffsetFetchResponse) -> tuple[ErrorCode, dict[int, tuple[int, str]]]:
    """Offset and note by partition."""
    group = answer.groups[0]
    partitions = [one for topic in group.topics for one in topic.partitions]
    codes = [error_code(code) for code in (group.error_code, *(one.error_code for one in partitions)) if code]
    found = {one.partition_index: (one.committed_offset, one.metadata or "") for one in partitions}
    return (codes[0] if codes else ErrorCode.NONE), found
