"""A group's committed offsets: storing them and asking for them, in order and until it works.

Commits go one after the other, because one that is tried again must not come after a newer one and undo it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from klamm.client.cluster import Cluster
from klamm.client.coordinators import Coordinator
from klamm.client.errors import BrokerSaid, ClientError, CommitFailed, TimedOut, error_code
from klamm.client.membership import GroupMetadata, Offset
from klamm.client.retrying import Retrying
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition
from klamm.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from klamm.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

LAST_WITH_NAMES: Final = 9
"""After this version of OffsetCommit and OffsetFetch topics have ids only."""
MANY_GROUPS: Final = 8
_FIND_AGAIN: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_NO_MEMBER: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
_OTHER_EPOCH: Final = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)

log = logging.getLogger("klamm.client")


class Offsets:
    """`identity` says as whom to commit, each time anew: an epoch may have changed while a commit waited. It raises
    `CommitFailed` for one that should be a member and is not. `on_failure` hears of what was to be committed soon, and
    was not."""

    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        identity: Callable[[], GroupMetadata],
        on_failure: Callable[[Mapping[TopicPartition, Offset]], None],
    ) -> None:
        self._group_id = cluster.config.group_id
        self._cluster = cluster
        self._coordinator = coordinator
        self._identity = identity
        self._on_failure = on_failure
        self._one_at_a_time = asyncio.Lock()
        self._soon: dict[TopicPartition, Offset] = {}
        self._losses = 0  # how many times the group has gone on without this member
        self._task: asyncio.Task[None] | None = None

    # Committing.

    async def commit(self, offsets: Mapping[TopicPartition, Offset], limit_s: float | None = None) -> None:
        """With `limit_s` that is the time for all of it, and `TimedOut` is raised; else default.api.timeout.ms is."""
        for place in offsets:
            self._soon.pop(place, None)  # this one is newer
        losses = self._losses
        try:
            async with asyncio.timeout(limit_s), self._one_at_a_time:
                if self._losses != losses:
                    raise CommitFailed(ErrorCode.UNKNOWN_MEMBER_ID, self._group_id)
                await self._commit(dict(offsets))
        except TimeoutError:
            raise TimedOut(f"Offsets could not be committed within {limit_s:g} s.") from None

    def commit_soon(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Those that still wait are replaced: there is at most one for each partition."""
        self._soon.update(offsets)
        if self._task is None and self._soon:
            self._task = asyncio.ensure_future(self._commit_waiting())

    async def _commit_waiting(self) -> None:
        try:
            while self._soon:
                async with self._one_at_a_time:
                    offsets, self._soon = self._soon, {}
                    try:
                        await self._commit(dict(offsets))
                    except ClientError as error:
                        log.warning("An offset commit failed: %s", error)
                        self._on_failure(offsets)
        finally:
            self._task = None

    async def close(self) -> None:
        """Give up what is on its way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def settle(self) -> None:
        """Wait for what is on its way."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    def lose(self, places: Iterable[TopicPartition]) -> None:
        """These are no longer the member's. Whatever waits to be committed for them must not come later, when it is a
        member again: whoever has them now may have gone further."""
        self._losses += 1
        for place in places:
            self._soon.pop(place, None)

    async def _commit(self, left: dict[TopicPartition, Offset]) -> None:
        retrying = Retrying(self._cluster.env, self._cluster.config, "Committing offsets")
        losses = self._losses
        while left:
            if self._losses != losses:
                raise CommitFailed(ErrorCode.UNKNOWN_MEMBER_ID, self._group_id)
            try:
                answer = await self._ask_commit(left)
                trouble = self._judge(left, answer)
            except ClientError as error:
                trouble = error
            if trouble is not None:
                await retrying.pause(trouble)

    async def _ask_commit(self, offsets: Mapping[TopicPartition, Offset]) -> OffsetCommitResponse:
        who = self._identity()
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, partition), at in offsets.items():
            entry = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic, partitions=[]))
            entry.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=at.offset,
                    committed_leader_epoch=at.leader_epoch,
                    committed_metadata=at.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=who.group_id,
            generation_id_or_member_epoch=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=list(topics.values()),
        )
        version = await self._coordinator.version(OffsetCommitRequest, at_most=LAST_WITH_NAMES)
        answer: OffsetCommitResponse = await self._coordinator.ask_once(request, version=version)
        return answer

    def _judge(self, left: dict[TopicPartition, Offset], answer: OffsetCommitResponse) -> ClientError | None:
        """Takes what was committed out of `left`; what stood in the way of the rest, if it is worth another try."""
        trouble: ClientError | None = None
        for topic in answer.topics:
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.partition_index)
                code = error_code(partition.error_code)
                if code is ErrorCode.NONE:
                    left.pop(place, None)
                    continue
                if code in _FIND_AGAIN:
                    self._coordinator.forget()
                if code in _NO_MEMBER:
                    raise CommitFailed(code, self._group_id)
                said = BrokerSaid(code, str(place))
                said.topic, said.partition = place
                if code is ErrorCode.STALE_MEMBER_EPOCH:
                    if self._identity().generation_id <= 0:
                        raise CommitFailed(code, self._group_id)
                    said.retriable = True  # the epoch went up in between; the next try has the new one
                if trouble is None or not said.retriable:
                    trouble = said
        return trouble

    # Asking.

    async def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Offset | None]:
        """What is committed of each, None where nothing is."""
        retrying = Retrying(self._cluster.env, self._cluster.config, "Asking for committed offsets")
        wanted = list(dict.fromkeys(places))
        while wanted:
            try:
                return await self._ask_committed(wanted)
            except ClientError as error:
                await retrying.pause(error)
        return {}

    async def _ask_committed(self, places: list[TopicPartition]) -> dict[TopicPartition, Offset | None]:
        version = await self._coordinator.version(OffsetFetchRequest, at_most=LAST_WITH_NAMES)
        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        if version < MANY_GROUPS:
            topics = [OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in by_topic.items()]
            request = OffsetFetchRequest(group_id=self._group_id, topics=topics, require_stable=version >= _STABLE)
        else:
            request = OffsetFetchRequest(groups=[self._group_question(by_topic)], require_stable=True)
        answer: OffsetFetchResponse = await self._coordinator.ask_once(request, version=version)
        return self._read(answer, version, places)

    def _group_question(self, by_topic: Mapping[str, list[int]]) -> OffsetFetchRequestGroup:
        try:
            who = self._identity()
        except CommitFailed:
            who = GroupMetadata(self._group_id)  # anybody may ask
        return OffsetFetchRequestGroup(
            group_id=who.group_id,
            member_id=who.member_id or None,
            member_epoch=who.generation_id,
            topics=[OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in by_topic.items()],
        )

    def _read(
        self, answer: OffsetFetchResponse, version: int, places: list[TopicPartition]
    ) -> dict[TopicPartition, Offset | None]:
        group = answer if version < MANY_GROUPS else answer.groups[0]
        self._check(error_code(group.error_code), f"group {self._group_id}")
        found: dict[TopicPartition, Offset | None] = dict.fromkeys(places)
        for topic in group.topics:
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.partition_index)
                self._check(error_code(partition.error_code), str(place), place)
                if partition.committed_offset >= 0:
                    found[place] = Offset(
                        partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
                    )
        return found

    def _check(self, code: ErrorCode, about: str, place: TopicPartition | None = None) -> None:
        if code is ErrorCode.NONE:
            return
        if code in _FIND_AGAIN:
            self._coordinator.forget()
        said = BrokerSaid(code, about)
        if place is not None:
            said.topic, said.partition = place
        if code in _OTHER_EPOCH or code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
            said.retriable = True  # the member's next heartbeat tells it who it is, the transaction's end which offset
        raise said


_STABLE: Final = 7
"""From this version on OffsetFetch waits for the transactions that have offsets pending."""
