"""What OffsetFetch answers: the offsets of a group, for some partitions or for all that have any.

Reading alone: nothing here decides or changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.wire.messages.k09_offset_fetch import OffsetFetchResponsePartitions, OffsetFetchResponseTopics

if TYPE_CHECKING:
    from klamm.coordinator.groups.offsets_store import OffsetStore
    from klamm.wire.messages.coordinator import OffsetCommitValue

NO_OFFSET = -1


class Wanted(NamedTuple):
    """Partitions of a topic. With its id, offsets that were committed to an earlier topic of that name do not count."""

    topic: str
    topic_id: bytes
    partitions: Sequence[int]


def some_offsets(
    store: OffsetStore, group_id: str, topics: Iterable[Wanted], stable: bool
) -> list[OffsetFetchResponseTopics]:
    """An answer for each partition that is wanted. `stable`: an error where an open transaction may change it."""
    committed, pending = store.of_group(group_id), store.pending_places(group_id) if stable else ()
    answers = []
    for name, topic_id, partitions in topics:
        answer = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
        for index in partitions:
            place = name, index
            value = committed.get(place)
            if value is not None and ZERO_UUID not in (topic_id, value.topic_id) and value.topic_id != topic_id:
                value = None
            answer.partitions.append(_answer(index, value, place in pending))
        answers.append(answer)
    return answers


def all_offsets(store: OffsetStore, group_id: str, stable: bool) -> list[OffsetFetchResponseTopics]:
    """Everything that the group has committed, by topic; without topic ids."""
    pending = store.pending_places(group_id) if stable else ()
    topics: dict[str, OffsetFetchResponseTopics] = {}
    for place, value in store.of_group(group_id).items():
        name, index = place
        if name not in topics:
            topics[name] = OffsetFetchResponseTopics(name=name)
        topics[name].partitions.append(_answer(index, value, place in pending))
    return list(topics.values())


def _answer(index: int, value: OffsetCommitValue | None, unstable: bool) -> OffsetFetchResponsePartitions:
    if unstable:
        code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
        )
    if value is None:
        return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, metadata="")
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
