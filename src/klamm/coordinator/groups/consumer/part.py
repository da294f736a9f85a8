"""The consumer groups of a shard: the part of its machine that speaks KIP-848.

It finds the group, has a `Heartbeat` decide, keeps the time limits of members (session, and how long one may take to
give partitions up) and replays. A group is replaced by one of the other protocol only while it is empty.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from klamm.coordinator.groups.consumer import records
from klamm.coordinator.groups.consumer.group import ConsumerGroup
from klamm.coordinator.groups.consumer.heartbeat import (
    Client,
    Heartbeat,
    Refusal,
    check_static,
    topics_after,
    unknown_member,
)
from klamm.coordinator.groups.consumer.member import JOINING, LEAVING, STATIC_LEAVING, Assigned, Member, State
from klamm.coordinator.groups.consumer.metadata_hash import metadata_hash
from klamm.coordinator.groups.consumer.records import Resolved
from klamm.coordinator.groups.consumer.replay import REPLAY
from klamm.coordinator.groups.consumer.settings import Settings, settings_for
from klamm.coordinator.groups.timers import TimerKey
from klamm.coordinator.machine import Answer, Now, Outcome, Producer, Record, Reply
from klamm.core.errors import ErrorCode
from klamm.wire.messages.coordinator import ConsumerGroupMetadataKey
from klamm.wire.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from klamm.wire.messages.k69_consumer_group_describe import DescribedGroup

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.metadata.image import Image
    from klamm.metadata.replay import Delta
    from klamm.wire.schema import Struct

_SESSION = "session"
_REBALANCE = "rebalance"

_logger = logging.getLogger(__name__)


class ConsumerGroups:
    name: ClassVar[str] = "consumer"
    keys: ClassVar[tuple[type[Struct], ...]] = tuple(REPLAY)

    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine
        self._resolving: set[str] = set()
        """Groups whose regular expressions are being resolved."""
        self._new_topics_version = -1 if machine.image is None else machine.image.offset
        """The metadata that last brought topics."""

    # ---- requests

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, client: Client, reply: Reply, now: Now) -> Outcome:
        """The request is taken to be valid in itself."""
        if request.member_epoch in (LEAVING, STATIC_LEAVING):
            outcome = self._leave(request, reply)
        else:
            outcome = self._beat(request, client, reply, now)
        if isinstance(outcome, Refusal):
            answer = ConsumerGroupHeartbeatResponse(error_code=outcome.error, error_message=outcome.message)
            return Outcome(answers=[Answer(reply, answer)])
        return outcome

    def describe(self, group_id: str) -> DescribedGroup:
        group = self._find(group_id)
        if isinstance(group, Refusal):
            return DescribedGroup(group_id=group_id, error_code=group.error, error_message=group.message)
        return group.describe()

    def is_resolving(self, group_id: str) -> bool:
        """Whether the topics of the group's regular expressions are looked for at the moment."""
        return group_id in self._resolving

    def resolved(self, group_id: str, found: Mapping[str, frozenset[str]] | None, version: int, now: Now) -> Outcome:
        """The topics of a group's regular expressions have been found, in the metadata of this version; None: it
        failed, and is to be tried again."""
        self._resolving.discard(group_id)
        group = self._find(group_id)
        if isinstance(group, Refusal) or found is None:
            return Outcome()
        new = {
            expression: Resolved(topics, version, now.time_ms)
            for expression, topics in sorted(found.items())
            if group.regexes[expression]  # else nobody subscribes to it any more
        }
        wanted = group.refresh_wanted

        def undo() -> None:
            group.refresh_wanted = wanted

        made = [records.regex(group_id, expression, resolved) for expression, resolved in new.items()]
        outcome = Outcome(made, undo=undo)
        after = {**group.resolved, **new}
        topics = set(group.topics).union(*(resolved.topics for resolved in after.values()))
        found_hash = metadata_hash(topics, self._image)
        old = {expression: group.resolved[expression].topics for expression in new if expression in group.resolved}
        is_other = any(resolved.topics != old.get(expression, frozenset()) for expression, resolved in new.items())
        if is_other or found_hash != group.metadata_hash:
            outcome.records.append(records.group_epoch(group_id, group.epoch + 1, found_hash))
            group.refresh_wanted = False
        return outcome

    # ---- members that come

    def _beat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, reply: Reply, now: Now
    ) -> Outcome | Refusal:
        found = self._find_or_make(request)
        if isinstance(found, Refusal):
            return found
        group, before = found
        settings = self._settings(group.group_id)
        if len(group.members) >= settings.max_size and request.member_id not in group.members:
            return Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has {settings.max_size} members already.")
        if not request.member_id:
            request.member_id = self._machine.new_uuid()
        beat = Heartbeat(group, request, client, self._image, settings, now.time_ms)
        wanted = group.refresh_wanted
        resolving = self.is_resolving(group.group_id)
        refusal = beat.run(resolving=resolving, new_topics_version=self._new_topics_version)
        if refusal is not None:
            return refusal
        if beat.effects:
            self._resolving.add(group.group_id)
        member = beat.member
        if request.member_epoch == JOINING:
            _logger.info("group %s: member %s joins (%s)", group.group_id, member.member_id, client.id)
        self._limit(group, beat, settings, now)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            assignment=_assignment(member.assigned) if beat.tells_assignment else None,
        )

        def undo() -> None:
            group.refresh_wanted = wanted
            if beat.effects:
                self._resolving.discard(group.group_id)
            self._limit_as_known(group, beat, settings, now)

        return Outcome(before + beat.records, [Answer(reply, answer)], effects=beat.effects, undo=undo)

    def _limit(self, group: ConsumerGroup, beat: Heartbeat, settings: Settings, now: Now) -> None:
        """The time limits of a member that was heard of."""
        if beat.replaced is not None:
            self._forget(group.group_id, beat.replaced.member_id)
        member = beat.member
        known = group.members.get(member.member_id)
        self._limit_session(group.group_id, member, settings, now)
        if known is not None and (known.state, known.epoch, known.assigned, known.revoking) == (
            member.state,
            member.epoch,
            member.assigned,
            member.revoking,
        ):
            return
        self._limit_revocation(group.group_id, member, now)

    def _limit_as_known(self, group: ConsumerGroup, beat: Heartbeat, settings: Settings, now: Now) -> None:
        """What the heartbeat decided is not written: limits are those of members as the group has them."""
        for decided in (beat.member, beat.replaced):
            known = None if decided is None else group.members.get(decided.member_id)
            if known is not None:
                self._limit_session(group.group_id, known, settings, now)
                self._limit_revocation(group.group_id, known, now)
            elif decided is not None:
                self._forget(group.group_id, decided.member_id)

    def _limit_session(self, group_id: str, member: Member, settings: Settings, now: Now) -> None:
        due = now.monotonic + settings.session_timeout_ms / 1000
        self._machine.timers.set(_timer(_SESSION, group_id, member.member_id), due)

    def _limit_revocation(self, group_id: str, member: Member, now: Now) -> None:
        timer = _timer(_REBALANCE, group_id, member.member_id)
        if member.state == State.UNREVOKED and member.epoch != STATIC_LEAVING:
            self._machine.timers.set(timer, now.monotonic + member.rebalance_timeout_ms / 1000)
        else:
            self._machine.timers.cancel(timer)

    def _find_or_make(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, list[Record]] | Refusal:
        """The group, and what has to be written before anything of it. A new one becomes the shard's by replay."""
        group_id = request.group_id
        there = self._machine.groups.get(group_id)
        if request.member_epoch != JOINING or isinstance(there, ConsumerGroup):
            found = self._find(group_id)
            return found if isinstance(found, Refusal) else (found, [])
        if there is None:
            return self._new(group_id), []
        if not there.is_empty:
            message = (
                f"The group {group_id} is a classic one with members: it can move to this protocol when it is empty."
            )
            return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, message)
        return self._new(group_id), there.tombstones()

    # ---- members that go

    def _leave(self, request: ConsumerGroupHeartbeatRequest, reply: Reply) -> Outcome | Refusal:
        group = self._find(request.group_id)
        if isinstance(group, Refusal):
            return group
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                return unknown_member(request.member_id)
        else:
            member = group.static_member(request.instance_id)
            refused = check_static(member, request.instance_id, request.member_id)
            if refused is not None or member is None:
                return refused or unknown_member(request.member_id)
        answer = Answer(
            reply, ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        )
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVING:
            return Outcome([self._leave_for_a_moment(group, member)], [answer])
        return Outcome(self._remove(group, member, "it left"), [answer])

    def _leave_for_a_moment(self, group: ConsumerGroup, member: Member) -> Record:
        """Its session goes on: whoever comes with its instance id before that ends takes its place and its partitions,
        which count as new then, so that nobody commits for it under its old name."""
        self._machine.timers.cancel(_timer(_REBALANCE, group.group_id, member.member_id))
        assigned = {topic: dict.fromkeys(partitions, 0) for topic, partitions in member.assigned.items()}
        away = member._replace(epoch=STATIC_LEAVING, assigned=assigned, revoking={})
        return records.current_assignment(group.group_id, away)

    def _remove(self, group: ConsumerGroup, member: Member, why: str) -> list[Record]:
        _logger.info("group %s: member %s goes: %s", group.group_id, member.member_id, why)
        self._forget(group.group_id, member.member_id)
        made = records.member_gone(group.group_id, member.member_id)
        dropped = frozenset[str]()
        if member.regex and group.regexes[member.regex] == 1:
            dropped = frozenset((member.regex,))
            made.append(records.regex_gone(group.group_id, member.regex))
        found = metadata_hash(topics_after(group, member, None, dropped), self._image)
        made.append(records.group_epoch(group.group_id, group.epoch + 1, found))
        return made

    def _forget(self, group_id: str, member_id: str) -> None:
        for what in (_SESSION, _REBALANCE):
            self._machine.timers.cancel(_timer(what, group_id, member_id))

    # ---- what the shard calls

    def replay(self, record: Record, producer: Producer | None = None) -> None:
        group_id: str = record.key.group_id  # type: ignore[attr-defined]
        group = self._machine.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            # In its place there may be a group known for its offsets alone, which has no record that would remove it.
            group = self._machine.groups[group_id] = self._new(group_id)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del self._machine.groups[group_id]
        else:
            if isinstance(record.key, ConsumerGroupMetadataKey):
                self._machine.counters.consumer_rebalances += 1
            REPLAY[type(record.key)](group, record.key, record.value)

    def loaded(self, now: Now) -> Outcome:
        for group in self._groups():
            settings = self._settings(group.group_id)
            for member in group.members.values():
                self._limit_session(group.group_id, member, settings, now)
                self._limit_revocation(group.group_id, member, now)
        return Outcome()

    def fire(self, timer: TimerKey, now: Now) -> Outcome:
        group = self._machine.groups.get(timer.group_id)
        member = group.members.get(timer.member_id) if isinstance(group, ConsumerGroup) else None
        if not isinstance(group, ConsumerGroup) or member is None:
            return Outcome()
        self._machine.counters.expired_members += 1
        why = "its session ended" if timer.what == _SESSION else "it took too long to give partitions up"
        return Outcome(self._remove(group, member, why))

    def image_changed(self, image: Image, delta: Delta, now: Now) -> Outcome:
        if delta.created or self._new_topics_version < 0:
            self._new_topics_version = image.offset
        names = {topic.name for topic in (*delta.created, *delta.removed)}
        names |= {old.name for old, new in delta.changed if len(old.partitions) != len(new.partitions)}
        if names:
            for group in self._groups():
                if not names.isdisjoint(group.subscribed_topics()):
                    group.refresh_wanted = True
        return Outcome()

    def resigned(self, error: ErrorCode) -> list[Answer]:
        return []  # nobody waits here

    # ---- small things

    @property
    def _image(self) -> Image:
        image = self._machine.image
        assert image is not None, "a shard tells of the metadata before anything else"
        return image

    def _settings(self, group_id: str) -> Settings:
        return settings_for(group_id, self._machine.options(), self._image)

    def _groups(self) -> list[ConsumerGroup]:
        return [group for group in self._machine.groups.values() if isinstance(group, ConsumerGroup)]

    def _find(self, group_id: str) -> ConsumerGroup | Refusal:
        group = self._machine.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        what = "does not exist" if group is None else "is not a consumer group"
        return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"The group {group_id} {what}.")

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._describe)

    def _describe(self, group: ConsumerGroup) -> DescribedGroup:
        from klamm.coordinator.groups.consumer.view import describe

        return describe(group, self._image, self._settings(group.group_id).assignors[0])


def _timer(what: str, group_id: str, member_id: str) -> TimerKey:
    return TimerKey(ConsumerGroups.name, what, group_id, member_id)


def _assignment(assigned: Assigned) -> Assignment:
    topics = [TopicPartitions(topic_id=topic, partitions=sorted(assigned[topic])) for topic in sorted(assigned)]
    return Assignment(topic_partitions=topics)
