"""Where to read: finding an offset to begin with, and finding out whether what was read is still in the log.

Three lookups, each one task at a time for all partitions that need it, so that one slow broker holds up no fetching:
the group's committed offset; the offset that a reset leads to (ListOffsets); the end of the epoch that was read last,
when the leader is another one (OffsetForLeaderEpoch, KIP-320). An answer counts only if the partition is still in the
same turn. What may pass is tried again after a while; what only the application can help is an error of the partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from klamm.client.backoff import Backoff
from klamm.client.driver import Driver
from klamm.client.errors import (
    BrokerSaid,
    ClientError,
    LogTruncated,
    NoPosition,
    UnsupportedVersion,
    error_code,
)
from klamm.client.metadata import Partition, Topic
from klamm.client.offsets import CONSUMER, EARLIEST, LATEST, ask_once
from klamm.client.reset import LATEST_RESET, ResetPolicy, ResetTo
from klamm.client.subscription import NO_EPOCH, PartitionState, Phase, Subscriptions
from klamm.core.errors import ErrorCode
from klamm.core.ids import NO_TOPIC_ID, TopicPartition
from klamm.wire.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.membership import Membership

_logger = logging.getLogger("klamm.client")
_FIRST_FOR_CLIENTS: Final = 3
"""Before this version, OffsetForLeaderEpoch was for brokers alone."""


def needs_validation(state: PartitionState, leader: Partition) -> bool:
    """Whether a new leader has to be asked what it has of the epoch that was read. Where nobody knows the epoch of what
    was read, or the cluster has none, there is nothing to ask for."""
    return state.next_epoch != NO_EPOCH and leader.leader_epoch != NO_EPOCH


def is_of_another_topic(state: PartitionState, topic: Topic) -> bool:
    """Whether the position is one in a topic that was deleted, and this is another one by the same name."""
    return state.topic_id != NO_TOPIC_ID and topic.id not in (state.topic_id, NO_TOPIC_ID)


class Places:
    def __init__(
        self,
        cluster: Cluster,
        subscriptions: Subscriptions,
        group: Membership | None,
        backoff: Backoff,
        wake: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._subscriptions = subscriptions
        self._group = group
        self._backoff = backoff
        self._wake = wake
        self._read_committed = cluster.config.isolation_level == "read_committed"

    def start(self, driver: Driver, now: float) -> None:
        """Begin whatever lookups are due."""
        if unknown := self._due(Phase.UNKNOWN, now):
            if self._group is None:
                for state in unknown:
                    self._begin_reset(state)
            else:
                driver.start("committed offsets", self._find_committed, self._group, unknown)
        known = self._cluster.known.topics  # of others, metadata is being asked for
        if resetting := [state for state in self._due(Phase.RESETTING, now) if state.place.topic in known]:
            driver.start("reset", self._reset, resetting)
        if validating := [state for state in self._due(Phase.VALIDATING, now) if state.place.topic in known]:
            driver.start("validation", self._validate, validating)

    def _due(self, phase: Phase, now: float) -> list[PartitionState]:
        return [
            state for state in self._subscriptions.in_phase(phase) if state.not_before <= now and state.error is None
        ]

    # The group's offsets.

    async def _find_committed(self, group: Membership, states: list[PartitionState]) -> None:
        still = _unchanged(states)
        try:
            committed = await group.committed([state.place for state in states])
        except ClientError as error:
            if not error.retriable:
                raise
            self._later(states, error)
            return
        for state in still():
            offset = committed.get(state.place)
            if offset is None:
                self._begin_reset(state)
            else:
                state.start_at(offset.offset, offset.leader_epoch)
        self._wake()

    # Resets.

    def _begin_reset(self, state: PartitionState) -> None:
        policy = self._subscriptions.default_reset
        if policy.to is ResetTo.NOTHING:
            self._fail(state, NoPosition(*state.place))
        else:
            self._subscriptions.reset(state.place, policy)

    async def _reset(self, states: list[PartitionState]) -> None:
        still = _unchanged(states)
        wanted = {state.place: self._timestamp(state.reset) for state in states if state.reset is not None}
        results = await ask_once(self._cluster, wanted, read_committed=self._read_committed)
        failed = []
        for state in still():
            found = results[state.place]
            if isinstance(found, ClientError):
                failed.append((state, found))
            elif found.offset < 0:
                state.reset = LATEST_RESET  # by_duration, and nothing is as young as that
            else:
                state.start_at(found.offset)
                _logger.debug("%s: reading from offset %d on.", state.place, found.offset)
        self._wake()
        await self._after(failed)

    def _timestamp(self, policy: ResetPolicy) -> int:
        if policy.to is ResetTo.TIME:
            return max(0, self._cluster.env.clock.time_ms() - policy.duration_ms)
        return EARLIEST if policy.to is ResetTo.EARLIEST else LATEST

    # Validation.

    async def _validate(self, states: list[PartitionState]) -> None:
        still = _unchanged(states)
        by_leader: dict[int, list[tuple[PartitionState, Partition]]] = defaultdict(list)
        for state in states:
            leader = self._cluster.leader(*state.place)
            if leader is not None:
                by_leader[leader.leader].append((state, leader))
        asked = [self._ask_leader(node, part) for node, part in by_leader.items()]
        answers: dict[TopicPartition, EpochEndOffset | ClientError] = {}
        for part in await asyncio.gather(*asked):
            answers.update(part)
        epochs = {state.place: leader.leader_epoch for part in by_leader.values() for state, leader in part}
        failed = []
        for state in still():
            found = answers.get(state.place) or BrokerSaid(ErrorCode.LEADER_NOT_AVAILABLE, str(state.place))
            if isinstance(found, ClientError):
                failed.append((state, found))
            else:
                self._judge(state, found, epochs[state.place])
        self._wake()
        await self._after(failed)

    async def _ask_leader(
        self, node: int, part: list[tuple[PartitionState, Partition]]
    ) -> dict[TopicPartition, EpochEndOffset | ClientError]:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for state, leader in part:
            name, index = state.place
            topic = topics.setdefault(name, OffsetForLeaderTopic(topic=name, partitions=[]))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=index, current_leader_epoch=leader.leader_epoch, leader_epoch=state.next_epoch
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=list(topics.values()))
        try:
            if await self._cluster.version(OffsetForLeaderEpochRequest, node=node) < _FIRST_FOR_CLIENTS:
                raise UnsupportedVersion("Too old to be asked.")
            answer: OffsetForLeaderEpochResponse = await self._cluster.request(request, node=node)
        except UnsupportedVersion:
            unlimited = EpochEndOffset(leader_epoch=0, end_offset=(1 << 63) - 1)  # taken on trust, as it always was
            return {state.place: unlimited for state, _ in part}
        except ClientError as error:
            return {state.place: error for state, _ in part}
        results: dict[TopicPartition, EpochEndOffset | ClientError] = {}
        for told in answer.topics:
            for found in told.partitions:
                place = TopicPartition(told.topic, found.partition)
                results[place] = BrokerSaid(error_code(found.error_code), str(place)) if found.error_code else found
        return results

    def _judge(self, state: PartitionState, end: EpochEndOffset, leader_epoch: int) -> None:
        known = end.end_offset >= 0 and end.leader_epoch >= 0
        if known and end.end_offset >= state.next_offset:
            state.phase = Phase.READING
            state.leader_epoch = leader_epoch
        elif state.next_offset != state.offset:
            # Only what nobody has seen is known to be gone. Whether that is all, is the next question.
            self._subscriptions.rewind(state)
            if state.next_epoch == NO_EPOCH:
                state.phase = Phase.READING
                state.leader_epoch = leader_epoch
        else:
            self._truncated(state, end.end_offset if known else None, end.leader_epoch, leader_epoch)

    def _truncated(self, state: PartitionState, diverged_at: int | None, epoch: int, leader_epoch: int) -> None:
        error = LogTruncated(*state.place, state.offset, diverged_at, epoch if diverged_at is not None else NO_EPOCH)
        if self._subscriptions.default_reset.to is ResetTo.NOTHING:
            self._fail(state, error)
            return
        _logger.warning("%s", error.text)
        if diverged_at is None:
            self._subscriptions.reset(state.place)
        else:
            self._subscriptions.seek(state.place, diverged_at, epoch)
            state.leader_epoch = leader_epoch

    # What goes wrong.

    def _fail(self, state: PartitionState, error: ClientError) -> None:
        self._subscriptions.fail(state, error)
        self._wake()

    def _later(self, states: list[PartitionState], error: ClientError) -> None:
        _logger.debug("Looking up where to read: %s", error)
        now = self._cluster.env.clock.monotonic()
        for state in states:
            state.failures += 1
            state.not_before = now + self._backoff.after(state.failures)

    async def _after(self, failed: list[tuple[PartitionState, ClientError]]) -> None:
        """These are tried again later, with newer metadata. What will not pass is raised, once that is arranged."""
        for state, error in failed:
            self._later([state], error)
        for _, error in failed:
            if not error.retriable:
                raise error
        if failed:
            try:
                await self._cluster.refresh({state.place.topic for state, _ in failed})
            except ClientError as error:
                _logger.debug("Looking up where to read: %s", error)


def _unchanged(states: list[PartitionState]) -> Callable[[], Iterator[PartitionState]]:
    """Those of the states that are, when it is called, in the turn and phase that they are in now."""
    before = [(state, state.turn, state.phase) for state in states]
    return lambda: (state for state, turn, phase in before if (state.turn, state.phase) == (turn, phase))
