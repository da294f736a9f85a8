"""Groups, their members, and what they have committed. A group's coordinator answers for it; which groups there are
only all brokers together know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klamm.client.admin.asking import Part, ask_brokers, ask_coordinator, by_topic, each, needs, places, several
from klamm.client.admin.group_members import (
    CLASSIC,
    CONSUMER,
    GroupDescription,
    MemberDescription,
    classic_group,
    consumer_group,
)
from klamm.client.admin.results import Results, failure
from klamm.client.coordinators import Kind
from klamm.client.errors import BrokerSaid, ClientError, UnsupportedVersion
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from klamm.wire.messages.k09_offset_fetch import OffsetFetchRequest
    from klamm.wire.schema import Request

_STATE_FILTER: Final = 4  # ListGroups: the filters that came with versions
_TYPE_FILTER: Final = 5
_LAST_WITH_NAMES: Final = 9  # OffsetCommit and OffsetFetch: topics have ids after it
_MANY_GROUPS: Final = 8
_STABLE: Final = 7
_MANY_MEMBERS: Final = 3  # LeaveGroup: before it, a member could only take leave itself
_NOT_A_CONSUMER_GROUP: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True, order=True)
class GroupListing:
    group_id: str
    type: str
    """`classic` where the cluster is too old to know another."""
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A static member by its `instance_id`, any other by its `member_id`."""

    instance_id: str | None = None
    member_id: str = ""


class Groups(Part):
    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """All groups of all brokers, by name; only those in one of these states (`Stable`, `Empty` ...) and of one of
        these types (`classic`, `consumer` ...), if any are given."""
        from klamm.wire.messages.k16_list_groups import ListGroupsRequest

        in_states, of_types = list(several(states)), list(several(types))

        async def ask(node: int) -> list[GroupListing]:
            version = await self._cluster.version(ListGroupsRequest, node=node)
            needs(version, _STATE_FILTER if in_states else 0, "to choose groups by their states")
            needs(version, _TYPE_FILTER if of_types else 0, "to choose groups by their types")
            request = ListGroupsRequest(states_filter=in_states, types_filter=of_types)
            answer = await self._cluster.request(request, node=node, version=version)
            if (error := failure(answer.error_code, f"the groups of broker {node}")) is not None:
                raise error
            return [
                GroupListing(g.group_id, (g.group_type or CLASSIC).lower(), g.protocol_type, g.group_state, node)
                for g in answer.groups
            ]

        return sorted(group for part in await ask_brokers(self._cluster, ask) for group in part)

    async def describe_groups(self, groups: Iterable[str | GroupListing]) -> Results[str, GroupDescription]:
        """With their members and what is assigned to them. Who names a group as it was listed spares the question of
        which type it is."""
        types = {
            g if isinstance(g, str) else g.group_id: None if isinstance(g, str) else g.type for g in several(groups)
        }
        return await each(types, lambda group_id: self._describe(group_id, types[group_id]))

    async def _describe(self, group_id: str, kind: str | None) -> GroupDescription:
        if kind == CONSUMER:
            return await self._describe_consumer(group_id)
        if kind is None:
            try:
                return await self._describe_consumer(group_id)
            except UnsupportedVersion:
                pass  # so old that it knows classic groups only
            except BrokerSaid as error:
                if error.code not in _NOT_A_CONSUMER_GROUP:
                    raise
        return await self._describe_classic(group_id)

    async def _describe_consumer(self, group_id: str) -> GroupDescription:
        from klamm.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        node, answer = await self._ask(group_id, ConsumerGroupDescribeRequest, lambda _: request, _codes_of_groups)
        return consumer_group(answer.groups[0], node)

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        from klamm.wire.messages.k15_describe_groups import DescribeGroupsRequest

        request = DescribeGroupsRequest(groups=[group_id])
        node, answer = await self._ask(group_id, DescribeGroupsRequest, lambda _: request, _codes_of_groups)
        return classic_group(answer.groups[0], node)

    async def delete_groups(self, group_ids: Iterable[str]) -> Results[str, None]:
        """With all that they have committed. They must have no members."""
        from klamm.wire.messages.k42_delete_groups import DeleteGroupsRequest

        async def delete(group_id: str) -> None:
            request = DeleteGroupsRequest(groups_names=[group_id])
            await self._ask(
                group_id,
                DeleteGroupsRequest,
                lambda _: request,
                lambda answer: [answer.results[0].error_code],
                reading=False,
            )

        return await each(several(group_ids), delete)

    async def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove] | None = None, *, reason: str = ""
    ) -> Results[MemberToRemove, None]:
        """Put these members, or all, out of a classic group; its others share what they had. They come back if nobody
        stops them."""
        from klamm.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity

        if members is None:
            described = (await self.describe_groups([group_id]))[group_id]
            wanted = [_to_remove(member) for member in described.members]
        else:
            wanted = list(dict.fromkeys(members))
        if not wanted:
            return Results({})
        identities = [
            MemberIdentity(member_id=one.member_id, group_instance_id=one.instance_id, reason=reason or None)
            for one in wanted
        ]

        def request(version: int) -> LeaveGroupRequest:
            needs(version, _MANY_MEMBERS, "to remove members of groups")
            return LeaveGroupRequest(group_id=group_id, members=identities)

        _, answer = await self._ask(group_id, LeaveGroupRequest, request, _code_of_answer, reading=False)
        names = {(one.instance_id, "" if one.instance_id else one.member_id): one for one in wanted}
        told: dict[MemberToRemove, ClientError | None] = {}
        for member in answer.members:
            instance = member.group_instance_id
            one = names.get((instance, "" if instance else member.member_id))
            if one is not None:
                told[one] = failure(member.error_code, f"member {one.instance_id or one.member_id} of {group_id}")
        return Results.of(wanted, told)

    # Offsets.

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]] | None = None, *, require_stable: bool = False
    ) -> Results[TopicPartition, CommittedOffset]:
        """What a group has committed, by topic and partition: in these, or in all. A partition without an offset is
        left out. With `require_stable`, the end of transactions that commit offsets is waited for; asked for all,
        brokers leave out partitions whose first offset is still in one, so name those that matter."""
        from klamm.wire.messages.k09_offset_fetch import OffsetFetchRequest

        wanted = None if partitions is None else places(partitions)
        _, answer = await self._ask(
            group_id,
            OffsetFetchRequest,
            lambda version: _offset_fetch(group_id, wanted, version, require_stable),
            _codes_of_offsets,
            moves=lambda answer: [*_codes_of_offsets(answer), *_codes_of_committed(answer)],
            last_version=_LAST_WITH_NAMES,
        )
        told: dict[TopicPartition, CommittedOffset | ClientError] = {}
        for topic in _committed(answer):
            for p in topic.partitions:
                place = TopicPartition(topic.name, p.partition_index)
                if p.error_code or p.committed_offset >= 0:
                    told[place] = failure(p.error_code, place) or CommittedOffset(
                        p.committed_offset, p.committed_leader_epoch, p.metadata or ""
                    )
        return Results.of(sorted(told), told)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[tuple[str, int], int | CommittedOffset]
    ) -> Results[TopicPartition, None]:
        """Set these offsets, for a group without members; one that is not there comes into being."""
        from klamm.wire.messages.k08_offset_commit import (
            OffsetCommitRequest,
            OffsetCommitRequestPartition,
            OffsetCommitRequestTopic,
        )

        wanted = {
            TopicPartition(*place): CommittedOffset(given) if isinstance(given, int) else given
            for place, given in offsets.items()
        }

        def partition(topic: str, index: int) -> OffsetCommitRequestPartition:
            one = wanted[TopicPartition(topic, index)]
            return OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )

        topics = [
            OffsetCommitRequestTopic(name=name, partitions=[partition(name, index) for index in indexes])
            for name, indexes in by_topic(wanted).items()
        ]
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        _, answer = await self._ask(
            group_id,
            OffsetCommitRequest,
            lambda _: request,
            lambda answer: (),
            moves=_codes_of_partitions,
            last_version=_LAST_WITH_NAMES,
        )
        return Results.of(wanted, _by_partition(answer))

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> Results[TopicPartition, None]:
        """Forget these offsets. No member may be subscribed to their topics."""
        from klamm.wire.messages.k47_offset_delete import (
            OffsetDeleteRequest,
            OffsetDeleteRequestPartition,
            OffsetDeleteRequestTopic,
        )

        wanted = places(partitions)
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in by_topic(wanted).items()
        ]
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        _, answer = await self._ask(group_id, OffsetDeleteRequest, lambda _: request, _code_of_answer)
        return Results.of(wanted, _by_partition(answer))

    async def _ask(
        self,
        group_id: str,
        kind: type[Request],
        request: Callable[[int], Request],
        codes: Callable[[Any], Iterable[int]],
        *,
        moves: Callable[[Any], Iterable[int]] | None = None,
        last_version: int | None = None,
        reading: bool = True,
    ) -> tuple[int, Any]:
        """Ask the group's coordinator. `codes` are the errors of the whole answer, one of which is raised; `moves`, if
        others are to be looked at too, those that may say that the coordinator moves."""
        node, answer = await ask_coordinator(
            self._cluster,
            Kind.GROUP,
            group_id,
            kind,
            request,
            moves or codes,
            last_version=last_version,
            reading=reading,
        )
        for code in codes(answer):
            if (error := failure(code, f"group {group_id}")) is not None:
                raise error
        return node, answer


def _to_remove(member: MemberDescription) -> MemberToRemove:
    if member.instance_id is not None:
        return MemberToRemove(instance_id=member.instance_id)
    return MemberToRemove(member_id=member.member_id)


def _code_of_answer(answer: Any) -> list[int]:
    return [answer.error_code]


def _codes_of_groups(answer: Any) -> list[int]:
    return [group.error_code for group in answer.groups]


def _codes_of_offsets(answer: Any) -> list[int]:
    return _codes_of_groups(answer) if answer.groups else [answer.error_code]


def _committed(answer: Any) -> Any:
    return answer.groups[0].topics if answer.groups else answer.topics


def _codes_of_committed(answer: Any) -> list[int]:
    return [p.error_code for topic in _committed(answer) for p in topic.partitions]


def _codes_of_partitions(answer: Any) -> list[int]:
    return [p.error_code for topic in answer.topics for p in topic.partitions]


def _by_partition(answer: Any) -> dict[TopicPartition, ClientError | None]:
    return {
        (place := TopicPartition(topic.name, p.partition_index)): failure(p.error_code, place)
        for topic in answer.topics
        for p in topic.partitions
    }


def _offset_fetch(
    group_id: str, wanted: list[TopicPartition] | None, version: int, require_stable: bool
) -> OffsetFetchRequest:
    from klamm.wire.messages.k09_offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )

    if require_stable:
        needs(version, _STABLE, "to wait for the end of transactions")
    topics = None if wanted is None else by_topic(wanted).items()
    if version < _MANY_GROUPS:
        old = None if topics is None else [OffsetFetchRequestTopic(name=n, partition_indexes=i) for n, i in topics]
        return OffsetFetchRequest(group_id=group_id, topics=old, require_stable=require_stable)
    new = None if topics is None else [OffsetFetchRequestTopics(name=n, partition_indexes=i) for n, i in topics]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=new)], require_stable=require_stable
    )
