"""The part of a shard that keeps committed offsets: who may commit, read and delete them.

It decides; what is kept is in `offsets_store`, and what is dropped because it is old or its topic is gone in
`offsets_sweep`. Handlers have looked at names, partitions and rights already: what comes here is for partitions that
exist. This part must never change a group; it asks one, and a group that is not there is made by the replay of its
first offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from klamm.coordinator.groups.offsets_store import OffsetStore, Place
from klamm.coordinator.groups.offsets_sweep import Sweep, tombstone
from klamm.coordinator.machine import Answer, Now, Outcome, Producer, Record, Reply
from klamm.core.errors import ErrorCode
from klamm.core.ids import ZERO_UUID
from klamm.core.options.option import LONG_MAX
from klamm.wire.messages.coordinator import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from klamm.coordinator.groups.group import PartitionCheck
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.groups.timers import TimerKey
    from klamm.metadata.image import Image
    from klamm.metadata.replay import Delta
    from klamm.wire.messages.k08_offset_commit import OffsetCommitRequestPartition, OffsetCommitResponsePartition
    from klamm.wire.messages.k28_txn_offset_commit import (
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitResponsePartition,
    )
    from klamm.wire.schema import Response, Struct

_BROKERS_RETENTION = -1
_NEVER = -1
_GROUP_ID_NOT_FOUND_SINCE = 9


class Committer(NamedTuple):
    """On whose behalf offsets are committed, as the request says it."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    epoch: int = -1
    """A generation or a member epoch; -1: a client that is no member."""
    version: int = -1
    """Of the request: older clients know fewer errors."""
    producer: Producer | None = None
    """The offsets are part of its transaction."""


class Commit(NamedTuple):
    """An offset to be committed, and the place in the response that says what came of it."""

    topic: str
    topic_id: bytes
    asked: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
    answer: OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition


class Offsets:
    name: ClassVar[str] = "offsets"
    keys: ClassVar[tuple[type[Struct], ...]] = (OffsetCommitKey,)

    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine
        self.store = OffsetStore()
        self._sweep = Sweep(machine, self.store)

    def commit(
        self,
        who: Committer,
        commits: Sequence[Commit],
        response: Response,
        reply: Reply,
        now: Now,
        retention_ms: int = _BROKERS_RETENTION,
    ) -> Outcome:
        """All or nothing, but for notes that are too long. `retention_ms`: how long to keep them, where an old client
        says so."""
        verdict = self._may_commit(who, now)
        if verdict:
            if isinstance(verdict, ErrorCode):
                return _refused(commits, verdict, response, reply)
            for commit in commits:
                if code := verdict(commit.topic, commit.topic_id, commit.asked.partition_index):
                    return _refused(commits, _for_client(code, who), response, reply)
        expires = retention_ms != _BROKERS_RETENTION
        expire_ms = min(max(0, now.time_ms + retention_ms), LONG_MAX) if expires else _NEVER
        records = []
        for topic, topic_id, asked, answer in commits:
            metadata = asked.committed_metadata or ""
            if metadata and len(metadata) > self._machine.options().get_int("offset.metadata.max.bytes"):
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            key = OffsetCommitKey(group=who.group_id, topic=topic, partition=asked.partition_index)
            value = OffsetCommitValue(
                offset=asked.committed_offset,
                leader_epoch=asked.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now.time_ms,
                expire_timestamp=expire_ms,
                topic_id=ZERO_UUID if expires else topic_id,  # no version of the record has both
            )
            records.append(Record(key, value))
        return Outcome(records, (Answer(reply, response),), producer=who.producer, only_records=True)

    def _may_commit(self, who: Committer, now: Now) -> ErrorCode | PartitionCheck:
        group = self._machine.groups.get(who.group_id)
        transactional = who.producer is not None
        if group is None:
            if who.epoch < 0:
                return ErrorCode.NONE  # it needs no members to keep offsets
            known = who.version >= _GROUP_ID_NOT_FOUND_SINCE and not transactional
            return ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
        verdict = group.may_commit(
            who.member_id, who.instance_id, who.epoch, transactional=transactional, version=who.version
        )
        if not isinstance(verdict, ErrorCode):
            return verdict
        if not verdict and who.member_id and not transactional:
            self._machine.classic.heard_of(who.group_id, who.member_id, now)
        return _for_client(verdict, who)

    def fetch_error(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether offsets may be read. Those of a group that is not there may: there are none."""
        group = self._machine.groups.get(group_id)
        return ErrorCode.NONE if group is None else group.may_fetch_offsets(member_id, epoch)

    def delete_error(self, group_id: str) -> ErrorCode:
        """Whether single offsets of a group may be deleted."""
        group = self._machine.groups.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.may_delete_offsets()

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether members of the group read the topic, so that its offsets have to stay."""
        group = self._machine.groups.get(group_id)
        return group is not None and group.subscribes(topic)

    def tombstones(self, group_id: str, places: Iterable[Place] | None = None) -> list[Record]:
        """What deletes offsets, committed and pending, of those places that have any; by default all of the group's."""
        if places is None:
            places = self.store.places(group_id)
        return [tombstone(group_id, place) for place in dict.fromkeys(places) if self.store.has(group_id, place)]

    def replay(self, record: Record, producer: Producer | None = None) -> None:
        key, value = record
        assert isinstance(key, OffsetCommitKey)
        assert value is None or isinstance(value, OffsetCommitValue)
        if value is not None:
            self._machine.counters.commits += 1
            if key.group not in self._machine.groups:
                self._machine.classic.without_members(key.group)
        self.store.replay(key, value, None if producer is None else producer.id)

    def replay_end(self, producer: Producer, committed: bool) -> None:
        self.store.replay_end(producer.id, committed)

    def loaded(self, now: Now) -> Outcome:
        """Topics may have been deleted while nobody looked."""
        self._sweep.look_for_deleted(now)
        self._sweep.wait(now)
        return Outcome()

    def fire(self, timer: TimerKey, now: Now) -> Outcome:
        return self._sweep.fire(timer, now)

    def image_changed(self, image: Image, delta: Delta, now: Now) -> Outcome:
        if delta.removed:
            self._sweep.look_for_deleted(now)
        return Outcome()

    def resigned(self, error: ErrorCode) -> list[Answer]:
        return []


def _for_client(code: ErrorCode, who: Committer) -> ErrorCode:
    """Transactional producers do not know of member epochs."""
    if who.producer is not None and code == ErrorCode.STALE_MEMBER_EPOCH:
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _refused(commits: Iterable[Commit], code: ErrorCode, response: Response, reply: Reply) -> Outcome:
    for commit in commits:
        commit.answer.error_code = code
    return Outcome(answers=(Answer(reply, response),))
