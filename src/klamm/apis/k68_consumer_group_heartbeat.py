"""ConsumerGroupHeartbeat (key 68), versions 0-1: a member of a consumer group (KIP-848) joins, goes on, or leaves, and
gets its assignment.

Unusual: what the member is to do is in its epoch: 0 joins, -1 leaves, -2 leaves for a moment (static members). From v1
on members make their own ids. Where the feature `group.version` is at 0, the answer is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.apis.api import Answer, Api, Context, Operation, ResourceType, error_text
from klamm.coordinator.groups.consumer.heartbeat import Client
from klamm.coordinator.groups.consumer.member import JOINING, LEAVING, STATIC_LEAVING
from klamm.core.errors import ErrorCode
from klamm.metadata.features import GROUP_VERSION
from klamm.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.machine import Now, Outcome, Reply

_OWN_IDS = 1


def handle(ctx: Context, request: ConsumerGroupHeartbeatRequest) -> Answer:
    if not ctx.broker.image.features.get(GROUP_VERSION, 0):
        return _error(ErrorCode.UNSUPPORTED_VERSION)
    if not ctx.authorize(Operation.READ, ResourceType.GROUP, request.group_id):
        return _error(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def may_see(topic: str) -> bool:
        return ctx.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    if request.subscribed_topic_names and not all(map(may_see, request.subscribed_topic_names)):
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    problem = _problem(request, ctx.api_version)
    if problem is not None:
        return _error(ErrorCode.INVALID_REQUEST, problem)
    assignors = ctx.broker.options.get_list("group.consumer.assignors")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = f"There is no assignor {request.server_assignor}, but: {', '.join(assignors)}."
        return _error(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    client = Client(ctx.client_id or "", f"/{ctx.peer.host}", may_see)

    def decide(machine: GroupMachine, reply: Reply, now: Now) -> Outcome:
        return machine.consumer.heartbeat(request, client, reply, now)

    return ctx.broker.groups.call(request.group_id, decide, _error)


def _problem(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """What is wrong with the request, whatever the group is like."""
    epoch = request.member_epoch
    if not request.member_id and (version >= _OWN_IDS or epoch > JOINING or epoch == LEAVING):
        return "The member id is empty."
    for name, value in (
        ("group id", request.group_id),
        ("instance id", request.instance_id),
        ("rack id", request.rack_id),
    ):
        if value == "":
            return f"The {name} is empty."
    if epoch == JOINING:
        return _problem_of_join(request)
    if epoch == STATIC_LEAVING and request.instance_id is None:
        return "Only a member with an instance id can leave for a moment."
    return "There is no such member epoch." if epoch < STATIC_LEAVING else None


def _problem_of_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "A member that joins must give its rebalance time-out."
    if request.topic_partitions is None or request.topic_partitions:
        return "A member that joins must own no partitions."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "A member that joins must subscribe, be it to nothing."
    return None


def _error(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=error_text(code, message))


def on_error(request: ConsumerGroupHeartbeatRequest, version: int, code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return _error(code)


API = Api(ConsumerGroupHeartbeatRequest, handle, key=68, versions=(0, 1), on_error=on_error)
