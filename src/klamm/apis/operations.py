"""What a principal may do with a topic, a group or the cluster: bits of the authorized-operations fields (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm.apis.api import CLUSTER_NAME, Context, Operation, ResourceType

NOT_ASKED_FOR: Final = -(2**31)
"""In place of the bits, where the client did not want to know."""

_TOPIC: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_GROUP: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
_CLUSTER: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def topic_operations(ctx: Context, name: str) -> int:
    return _allowed(ctx, _TOPIC, ResourceType.TOPIC, name)


def group_operations(ctx: Context, group_id: str) -> int:
    return _allowed(ctx, _GROUP, ResourceType.GROUP, group_id)


def cluster_operations(ctx: Context) -> int:
    return _allowed(ctx, _CLUSTER, ResourceType.CLUSTER, CLUSTER_NAME)


def _allowed(ctx: Context, operations: Iterable[Operation], resource: ResourceType, name: str) -> int:
    return sum(1 << operation for operation in operations if ctx.authorize(operation, resource, name))
