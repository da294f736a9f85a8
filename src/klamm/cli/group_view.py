"""What there is to know about groups, gathered from a cluster in a few requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.cli.parsing import Failed, nearest
from klamm.cli.topic_view import end_offsets, is_pattern
from klamm.client.admin.group_members import CLASSIC, CONSUMER
from klamm.client.admin.groups import Groups
from klamm.client.errors import BrokerSaid, ClientError
from klamm.client.offsets import EARLIEST
from klamm.client.peek import first_timestamps
from klamm.core.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.client.admin.group_members import GroupDescription, MemberDescription
    from klamm.client.admin.groups import GroupListing
    from klamm.client.metadata import Topic

Place = tuple[str, int]


class Row(NamedTuple):
    """A partition that the group has an offset in, or a member is assigned to. None: not known, or there is none."""

    place: Place
    current: int | None
    start: int | None
    end: int | None
    lag_ms: int | None = None
    member: MemberDescription | None = None
    metadata: str = ""
    leader_epoch: int = -1

    @property
    def lag(self) -> int | None:
        return None if self.current is None or self.end is None else self.end - self.current


class GroupView(NamedTuple):
    group: GroupListing
    described: GroupDescription
    coordinator: str
    rows: Sequence[Row]

    @property
    def lag(self) -> int | None:
        return _total(row.lag for row in self.rows)

    @property
    def lag_ms(self) -> int | None:
        return max((row.lag_ms for row in self.rows if row.lag_ms is not None), default=None)


def select(groups: Sequence[GroupListing], words: Sequence[str]) -> list[GroupListing]:
    """The groups that these names and shell patterns stand for; all without any. Failed if there is none for one."""
    if not words:
        return list(groups)
    names = {group.group_id for group in groups}
    chosen: set[str] = set()
    for word in words:
        # a name is a name first: groups may be called anything
        found = {word} & names or ({name for name in names if fnmatchcase(name, word)} if is_pattern(word) else set())
        if not found:
            raise unknown_group(word, names)
        chosen |= found
    return [group for group in groups if group.group_id in chosen]


def unknown_group(word: str, names: Iterable[str]) -> Failed:
    if is_pattern(word):
        return Failed(f"no group matches {word!r}.", "See the groups there are with: klamm group list")
    close = nearest(word, names)
    hint = f"Did you mean {close!r}? " if close else "A group is there from its first member or its first commit on. "
    return Failed(f"there is no group {word!r}.", f"{hint}klamm group list shows all.")


def described_here(
    groups: Sequence[GroupListing], words: Sequence[str]
) -> tuple[list[GroupListing], list[GroupListing]]:
    """The selected groups that have offsets, and those of other kinds (share groups, Kafka Streams), which have none.
    Failed if one of the latter was asked for by name."""
    chosen = select(groups, words)
    others = [group for group in chosen if group.type not in (CLASSIC, CONSUMER)]
    for group in others:
        if group.group_id in words:
            raise other_kind(group)
    return [group for group in chosen if group not in others], others


def other_kind(group: GroupListing) -> Failed:
    return Failed(
        f"{group.group_id!r} is a {group.type} group.", "klamm group knows the offsets of classic and consumer groups."
    )


def hint_for(error: ClientError, group_id: str) -> str:
    """What to do about the commonest refusals."""
    code = error.code if isinstance(error, BrokerSaid) else ErrorCode.NONE
    if code in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS):
        return f"The group has active members; stop them first. klamm group describe {group_id} --members shows them."
    if code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return "Members read that topic; stop them first."
    return ""


async def view(cluster: Cluster, group: GroupListing, *, times: bool = True) -> GroupView:
    """A group with its members, its offsets, and where the partitions end. `times`: how old the first record is that
    has not been committed, for which single records are read."""
    groups = Groups(cluster)
    answers, offsets = await asyncio.gather(groups.describe_groups([group]), groups.list_group_offsets(group.group_id))
    described = answers[group.group_id]
    owners = {place: member for member in described.members for place in member.assignment}
    topics = await existing(cluster, {topic for topic, _ in (*offsets, *owners)})
    starts, ends = await end_offsets(cluster, topics, EARLIEST), await end_offsets(cluster, topics)
    rows = []
    for place in sorted({*offsets, *owners}):
        at = offsets.get(place)
        rows.append(
            Row(
                place,
                None if at is None else at.offset,
                starts.get(place),
                ends.get(place),
                member=owners.get(place),
                metadata="" if at is None else at.metadata,
                leader_epoch=-1 if at is None else at.leader_epoch,
            )
        )
    if times:
        rows = await _with_times(cluster, rows)
    broker = cluster.brokers.get(group.coordinator)
    return GroupView(group, described, "" if broker is None else str(broker), rows)


async def existing(cluster: Cluster, names: Iterable[str]) -> list[Topic]:
    """Those of these topics that are there."""
    wanted = sorted(names)
    if not wanted:
        return []
    found = (await cluster.metadata(wanted)).topics
    return [topic for name in wanted if (topic := found.get(name)) is not None and not _is_gone(topic)]


def _is_gone(topic: Topic) -> bool:
    return topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _with_times(cluster: Cluster, rows: Sequence[Row]) -> list[Row]:
    behind = {row.place: max(row.current or 0, row.start or 0) for row in rows if (row.lag or 0) > 0}
    times = await first_timestamps(cluster, behind)
    now_ms = cluster.env.clock.time_ms()
    dated = []
    for row in rows:
        if row.lag is None:
            dated.append(row)
        elif row.lag <= 0:
            dated.append(row._replace(lag_ms=0))
        else:
            time_ms = times.get(row.place, -1)
            dated.append(row._replace(lag_ms=max(0, now_ms - time_ms) if time_ms >= 0 else None))
    return dated


def group_json(view: GroupView) -> dict[str, Any]:
    group, described = view.group, view.described
    return {
        "group": group.group_id,
        "type": group.type,
        "protocol_type": described.protocol_type or None,
        "state": described.state,
        "assignor": described.assignor or None,
        "coordinator": {"broker": group.coordinator, "address": view.coordinator or None},
        "lag": view.lag,
        "lag_seconds": seconds_of(view.lag_ms),
        "members": [member_json(member) for member in described.members],
        "partitions": [row_json(row) for row in view.rows],
    }


def member_json(member: MemberDescription) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": [{"topic": topic, "partition": index} for topic, index in member.assignment],
    }


def row_json(row: Row) -> dict[str, Any]:
    topic, index = row.place
    member = row.member
    return {
        "topic": topic,
        "partition": index,
        "current_offset": row.current,
        "log_start_offset": row.start,
        "log_end_offset": row.end,
        "lag": row.lag,
        "lag_seconds": seconds_of(row.lag_ms),
        "metadata": row.metadata or None,
        "leader_epoch": row.leader_epoch if row.leader_epoch >= 0 else None,
        "member": None if member is None else member.member_id,
        "client": None if member is None else member.client_id,
        "host": None if member is None else member.host,
    }


def seconds_of(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _total(numbers: Iterable[int | None]) -> int | None:
    """None if all are unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
