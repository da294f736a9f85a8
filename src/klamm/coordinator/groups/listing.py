"""Groups from the outside, whatever their protocol: which there are, what one is like, and their deletion."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from klamm.coordinator.machine import Answer, Outcome, Reply
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k15_describe_groups import DescribedGroup
from klamm.wire.messages.k16_list_groups import ListedGroup
from klamm.wire.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from klamm.coordinator.groups.group import Group
    from klamm.coordinator.groups.machine import GroupMachine

CLASSIC = "classic"
DEAD = "Dead"


def listed(groups: Iterable[Group], states: Collection[str], types: Collection[str]) -> Iterator[ListedGroup]:
    """Those in one of these states and of one of these types, both in lower case; none given: any."""
    for group in groups:
        state = group.state
        if (not states or state.lower() in states) and (not types or group.type in types):
            yield ListedGroup(
                group_id=group.group_id, protocol_type=group.protocol_type, group_state=state, group_type=group.type
            )


def described(machine: GroupMachine, group_id: str) -> DescribedGroup:
    """As DescribeGroups tells it, which knows of classic groups only."""
    group = machine.groups.get(group_id)
    if group is None:
        return not_found(group_id, f"Group {group_id} not found.")
    if group.type != CLASSIC:
        return not_found(group_id, f"Group {group_id} is not a classic group.")
    answer = group.describe()
    assert isinstance(answer, DescribedGroup)
    return answer


def not_found(group_id: str, message: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id, group_state=DEAD, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message
    )


def delete(machine: GroupMachine, group_id: str, reply: Reply) -> Outcome:
    """A group without members, with everything it has committed."""
    group = machine.groups.get(group_id)
    code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.may_delete()
    result = DeletableGroupResult(group_id=group_id, error_code=code)
    answer = Answer(reply, DeleteGroupsResponse(results=[result]))
    if code or group is None:
        return Outcome(answers=(answer,))
    return Outcome(machine.offsets.tombstones(group_id) + group.tombstones(), (answer,), only_records=True)
