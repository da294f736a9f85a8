"""What the four APIs of options share: the kinds of resources that have options, and who may see or change them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from klamm.apis.api import CLUSTER_NAME, Context, Operation, ResourceType
from klamm.controller.config_rules import is_broker_id
from klamm.core.errors import BrokerError, ErrorCode


class ConfigType(IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_OWNERS: dict[int, tuple[ResourceType, ErrorCode]] = {
    ConfigType.TOPIC: (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ConfigType.GROUP: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def denial(ctx: Context, operation: Operation, config_type: int, name: str) -> ErrorCode:
    """NONE if this principal may do it. Brokers, their loggers and client metrics are the cluster's; what is of no kind
    that we know is nobody's, and refused by whoever looks at it next."""
    owner = _OWNERS.get(config_type)
    if owner is not None:
        return ErrorCode.NONE if ctx.authorize(operation, owner[0], name) else owner[1]
    if ctx.authorize(operation, ResourceType.CLUSTER, CLUSTER_NAME):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def check_broker(name: str, node_id: int, *, all_allowed: bool = False) -> None:
    """BrokerError unless this is the broker whose name was given."""
    if not name and all_allowed:
        return
    if not is_broker_id(name):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name!r} is no broker's id; give a number")
    if int(name) != node_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"this is broker {node_id}; ask broker {name} itself")


def chosen(names: Iterable[str], keys: list[str] | None) -> list[str]:
    """The names that were asked for; none asked for means all. Unknown ones are left out, as Kafka does."""
    if not keys:
        return list(names)
    wanted = frozenset(keys)
    return [name for name in names if name in wanted]
