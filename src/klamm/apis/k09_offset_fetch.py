"""OffsetFetch (key 9), versions 1-10: positions that groups have stored; many groups from v8 on, topic ids from v10 on.

Unusual: a group that is not there has no offsets, which is no error. Without topics (v2 and later) all offsets are
answered, of topics that the principal may describe. With `require_stable`, a partition for which a transaction is open
is answered with UNSTABLE_OFFSET_COMMIT. Before v2 an error of the group is one of each partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType
from klamm.apis.gather import gathered
from klamm.coordinator.groups.offsets_fetch import Wanted, all_offsets, some_offsets
from klamm.coordinator.machine import Answer as Given
from klamm.coordinator.machine import Now, Outcome, Reply
from klamm.core.errors import ErrorCode
from klamm.core.ids import NO_TOPIC_ID
from klamm.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine

_ERROR_OF_GROUP = 2
_MANY_GROUPS = 8
_BY_ID = 10
_NO_OFFSET = -1


def handle(ctx: Context, request: OffsetFetchRequest) -> Answer:
    answers = [_fetch(ctx, group, request.require_stable) for group in _groups(request, ctx.api_version)]
    return gathered(answers, lambda parts: _merged(parts, ctx))


def _groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """Older versions are read as a list of one."""
    if version >= _MANY_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in request.topics]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _merged(parts: Sequence[OffsetFetchResponse], ctx: Context) -> OffsetFetchResponse:
    groups = [group for part in parts for group in part.groups]
    if ctx.api_version >= _MANY_GROUPS:
        return OffsetFetchResponse(throttle_time_ms=ctx.throttle_time_ms, groups=groups)
    return _of_one_group(groups[0], ctx.throttle_time_ms)


def _of_one_group(group: OffsetFetchResponseGroup, throttle_time_ms: int = 0) -> OffsetFetchResponse:
    """The answer as older versions have it."""
    return OffsetFetchResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def _fetch(ctx: Context, asked: OffsetFetchRequestGroup, stable: bool) -> Answer:
    """An answer with this group alone."""
    version = ctx.api_version

    def refuse(code: ErrorCode) -> OffsetFetchResponse:
        return OffsetFetchResponse(groups=[_group_error(asked, version, code)])

    if not ctx.authorize(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def decide(machine: GroupMachine, reply: Reply, now: Now) -> Outcome:
        code = machine.offsets.fetch_error(asked.group_id, asked.member_id, asked.member_epoch)
        if code:
            return Outcome(answers=(Given(reply, refuse(code)),))
        find = _all if asked.topics is None else _some
        group = OffsetFetchResponseGroup(group_id=asked.group_id, topics=find(ctx, machine, asked, stable))
        return Outcome(answers=(Given(reply, OffsetFetchResponse(groups=[group])),))

    return ctx.broker.groups.call(asked.group_id, decide, refuse)


def _all(
    ctx: Context, machine: GroupMachine, asked: OffsetFetchRequestGroup, stable: bool
) -> list[OffsetFetchResponseTopics]:
    """A topic that is not there has no id: from v10 on it cannot be told of."""
    image, topics = ctx.broker.image, []
    for topic in all_offsets(machine.offsets.store, asked.group_id, stable):
        state = image.topic(topic.name)
        topic.topic_id = NO_TOPIC_ID if state is None else state.id
        if state is None and ctx.api_version >= _BY_ID:
            continue
        if ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics.append(topic)
    return topics


def _some(
    ctx: Context, machine: GroupMachine, asked: OffsetFetchRequestGroup, stable: bool
) -> list[OffsetFetchResponseTopics]:
    image, wanted, refused = ctx.broker.image, [], []
    by_id = ctx.api_version >= _BY_ID
    for topic in asked.topics or ():
        state = image.topic_by_id(topic.topic_id) if by_id else image.topic(topic.name)
        name = topic.name if state is None else state.name
        if by_id and state is None:
            refused.append(_topic_error(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, name):
            refused.append(_topic_error(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        else:
            wanted.append(Wanted(name, NO_TOPIC_ID if state is None else state.id, topic.partition_indexes))
    return some_offsets(machine.offsets.store, asked.group_id, wanted, stable) + refused


def _topic_error(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _group_error(asked: OffsetFetchRequestGroup, version: int, code: ErrorCode) -> OffsetFetchResponseGroup:
    if version >= _ERROR_OF_GROUP:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
    topics = [_topic_error(topic, code) for topic in asked.topics or ()]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def on_error(request: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
    groups = [_group_error(group, version, code) for group in _groups(request, version)]
    return OffsetFetchResponse(groups=groups) if version >= _MANY_GROUPS else _of_one_group(groups[0])


API = Api(OffsetFetchRequest, handle, key=9, versions=(1, 10), on_error=on_error)
