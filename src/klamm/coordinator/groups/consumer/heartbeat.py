"""What a heartbeat of a member decides: who it is, whether there is something new to assign, and what it gets.

One `Heartbeat` for each request, in the order of KIP-848: the member as it describes itself, the group's epoch, the
target, the member's next step towards it. Each step adds the records that make it so; the group is changed when they
are replayed, not here. A `Refusal` at any step is the whole answer, and what was added before it is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from klamm.coordinator.groups.consumer import records, regexes
from klamm.coordinator.groups.consumer.assignors import ASSIGNORS, Partitions
from klamm.coordinator.groups.consumer.member import JOINING, STATIC_LEAVING, Member
from klamm.coordinator.groups.consumer.metadata_hash import metadata_hash
from klamm.coordinator.groups.consumer.reconciliation import Goal, Owned, is_subset, reconcile
from klamm.coordinator.groups.consumer.target import make_target, subscribed_names, topic_ids
from klamm.core.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.coordinator.groups.consumer.group import ConsumerGroup
    from klamm.coordinator.groups.consumer.settings import Settings
    from klamm.coordinator.machine import Record
    from klamm.metadata.image import Image
    from klamm.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

REGEX_PAUSE_MS = 10_000
"""Regular expressions of a group are not resolved more often than that, whatever its members bring."""

_QUOTED = 200
"""Characters of a request that an error message repeats."""


class Client(NamedTuple):
    """Who sends a request."""

    id: str
    host: str
    may_see: Callable[[str], bool]
    """Whether it may know of a topic."""


class Refusal(NamedTuple):
    error: ErrorCode
    message: str


Refused: TypeAlias = "Refusal | None"


class Heartbeat:
    """`run` once; then `records` and `effects` are what came of it, `member` what the member is afterwards, and
    `replaced` a static member whose place it has taken."""

    def __init__(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        image: Image,
        settings: Settings,
        time_ms: int,
    ) -> None:
        self._group = group
        self._request = request
        self._client = client
        self._image = image
        self._settings = settings
        self._time_ms = time_ms
        self._owned: Owned = None
        if request.topic_partitions is not None:
            self._owned = [(topic.topic_id, topic.partitions) for topic in request.topic_partitions]
        self._old = self.member = Member(request.member_id)
        self._dropped_regex: str | None = None
        self._epoch = group.epoch
        self.replaced: Member | None = None
        self.records: list[Record] = []
        self.effects: list[regexes.ResolveRegexes] = []

    def run(self, *, resolving: bool, new_topics_version: int) -> Refused:
        """`resolving`: the group's regular expressions are being resolved already. `new_topics_version`: the metadata
        that last brought topics."""
        refused = self._find_member() or self._find_static_member()
        if refused is None:
            self._describe_member()
            names_changed = self.member.topics != self._old.topics
            regex_changed = (self.member.regex or "") != (self._old.regex or "")
            refused = self._take_regex() if regex_changed else None
        if refused is not None:
            return refused
        if not resolving:
            self._resolve_regexes(new_topics_version)
        # A new expression that is not resolved yet would only mean a second assignment when it is.
        unresolved = self.member.regex and self.member.regex not in self._group.resolved
        self._move_epoch(forced=names_changed or (regex_changed and not unresolved))
        target_epoch, target = self._move_target()
        self._step(target_epoch, target, subscription_changed=names_changed or regex_changed)
        return None

    @property
    def tells_assignment(self) -> bool:
        """Whether the answer carries the assignment: it has changed, or the member does not know it (any more)."""
        request = self._request
        return (
            request.member_epoch == JOINING
            or (
                request.rebalance_timeout_ms != -1
                and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
                and request.topic_partitions is not None
            )
            or self.member.assigned != self._old.assigned
        )

    # ---- who it is

    def _find_member(self) -> Refused:
        if self._request.instance_id is not None:
            return None
        member = self._group.members.get(self._request.member_id)
        if member is None:
            return None if self._request.member_epoch == JOINING else unknown_member(self._request.member_id)
        self._old = member
        return self._check_epoch(member)

    def _find_static_member(self) -> Refused:
        request, instance_id = self._request, self._request.instance_id
        if instance_id is None:
            return None
        holder = self._group.static_member(instance_id)
        if request.member_epoch != JOINING:
            refused = check_static(holder, instance_id, request.member_id)
            if refused is None and holder is not None:
                self._old = holder
                refused = self._check_epoch(holder)
            return refused
        if holder is None:
            self._old = self._group.members.get(request.member_id, self._old)
        elif holder.epoch != STATIC_LEAVING:
            message = f"The instance id {instance_id} is held by member {holder.member_id}, which has not left."
            return Refusal(ErrorCode.UNRELEASED_INSTANCE_ID, message)
        else:
            self._take_place_of(holder)
        return None

    def _take_place_of(self, holder: Member) -> None:
        """It has what the other had: nobody else notices."""
        group_id = self._group.group_id
        self._old = holder._replace(member_id=self._request.member_id, epoch=JOINING, previous_epoch=JOINING)
        self.replaced = holder
        self.records += records.member_gone(group_id, holder.member_id)
        self.records.append(records.member_metadata(group_id, self._old))
        target = self._group.target.get(holder.member_id, {})
        self.records.append(records.target_assignment(group_id, self._old.member_id, target))
        self.records.append(records.current_assignment(group_id, self._old))

    def _check_epoch(self, member: Member) -> Refused:
        epoch = self._request.member_epoch
        if epoch in (JOINING, member.epoch):
            return None
        # The answer with the newer epoch may have been lost.
        if epoch == member.previous_epoch < member.epoch and is_subset(self._owned, member.assigned):
            return None
        message = f"The member's epoch is {member.epoch}, not {epoch}. It must give up its partitions and join again."
        return Refusal(ErrorCode.FENCED_MEMBER_EPOCH, message)

    def _describe_member(self) -> None:
        """What the request does not say stays as it was."""
        request, old = self._request, self._old
        topics, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        self.member = old._replace(
            instance_id=old.instance_id if request.instance_id is None else request.instance_id,
            rack_id=old.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=(
                old.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
            ),
            topics=old.topics if topics is None else frozenset(topics),
            regex=old.regex if regex is None else regex,
            assignor=old.assignor if request.server_assignor is None else request.server_assignor,
            client_id=self._client.id,
            client_host=self._client.host,
        )
        if self.member != old:
            self.records.append(records.member_metadata(self._group.group_id, self.member))

    # ---- regular expressions

    def _take_regex(self) -> Refused:
        """The member has another one."""
        group, old, new = self._group, self._old.regex, self.member.regex
        if old and group.regexes[old] == 1:
            self._dropped_regex = old
            self.records.append(records.regex_gone(group.group_id, old))
        if new and not group.regexes[new] and (problem := regexes.problem_with(new)) is not None:
            message = f"The regular expression {new[:_QUOTED]!r} is not valid: {problem[:_QUOTED]}"
            return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
        return None

    def _resolve_regexes(self, new_topics_version: int) -> None:
        """All of the group's at once, so that it is rebalanced once for them."""
        group = self._group
        wanted = set(group.regexes)
        wanted.discard(self._dropped_regex or "")
        if self.member.regex:
            wanted.add(self.member.regex)
        if not wanted:
            return
        last = next(iter(group.resolved.values()), None)
        if last is not None and 0 <= self._time_ms - last.time_ms <= REGEX_PAUSE_MS:
            return
        if (
            last is None
            or not wanted.issubset(group.resolved)
            or last.version < new_topics_version
            or not 0 <= self._time_ms - last.time_ms <= self._settings.regex_refresh_interval_ms
        ):
            self.effects.append(regexes.ResolveRegexes(group.group_id, tuple(sorted(wanted)), self._client.may_see))

    # ---- what there is to assign

    def _move_epoch(self, *, forced: bool) -> None:
        group = self._group
        if not forced and not group.refresh_wanted:
            return
        dropped = frozenset() if self._dropped_regex is None else frozenset((self._dropped_regex,))
        found = metadata_hash(topics_after(group, self._old, self.member, dropped), self._image)
        if forced or found != group.metadata_hash:
            self._epoch = group.epoch + 1
            self.records.append(records.group_epoch(group.group_id, self._epoch, found))
        if group.has_partition_metadata:
            self.records.append(records.partition_metadata_gone(group.group_id))
        group.refresh_wanted = False

    def _move_target(self) -> tuple[int, Partitions]:
        """The target's epoch, and the member's part of it."""
        group, member = self._group, self.member
        interval_ms = self._settings.assignment_interval_ms
        # A time in the future is one of a clock that was set back since: it says nothing.
        is_early = group.target_time_ms and 0 <= self._time_ms - group.target_time_ms < interval_ms
        holder = member.member_id if self.replaced is None else self.replaced.member_id
        if group.target_epoch >= self._epoch or is_early:
            return group.target_epoch, group.target.get(holder, {})
        members = {**group.members, member.member_id: member}
        so_far = {**group.target, member.member_id: group.target.get(holder, {})}
        if holder != member.member_id:
            del members[holder]
        name = group.preferred_assignor(self.replaced or self._old, member) or self._settings.assignors[0]
        target = make_target(members, so_far, group.resolved, self._image, ASSIGNORS[name])
        for member_id, partitions in target.items():
            if group.target.get(member_id) != partitions:
                self.records.append(records.target_assignment(group.group_id, member_id, partitions))
        self.records.append(records.target_epoch(group.group_id, self._epoch, self._time_ms))
        return self._epoch, target[member.member_id]

    def _step(self, epoch: int, target: Partitions, *, subscription_changed: bool) -> None:
        group, member = self._group, self.member
        if not subscription_changed and member.is_reconciled(epoch):
            return
        subscribed = topic_ids(subscribed_names(member, group.resolved), self._image)
        goal = Goal(epoch, target, subscribed, group.is_owned, subscription_changed)
        self.member = reconcile(member, goal, self._owned)
        if self.member != member:
            self.records.append(records.current_assignment(group.group_id, self.member))


def unknown_member(member_id: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"The group has no member {member_id}.")


def check_static(holder: Member | None, instance_id: str, member_id: str) -> Refused:
    """Whether a member may speak for an instance id."""
    if holder is None:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"The group has no member with the instance id {instance_id}.")
    if holder.member_id != member_id:
        message = f"The instance id {instance_id} was taken over by member {holder.member_id}."
        return Refusal(ErrorCode.FENCED_INSTANCE_ID, message)
    return None


def topics_after(
    group: ConsumerGroup, old: Member | None, new: Member | None, dropped_regexes: frozenset[str] = frozenset()
) -> set[str]:
    """What the group subscribes to once one member has become another: a new one has no old, one that leaves no new."""
    gone = frozenset[str]() if old is None else old.topics
    topics = {name for name, count in group.topics.items() if count > (name in gone)}
    if new is not None:
        topics |= new.topics
    for expression, resolved in group.resolved.items():
        if expression not in dropped_regexes:
            topics |= resolved.topics
    return topics
