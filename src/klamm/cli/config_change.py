"""Changing options of a resource: what `klamm config set` and `klamm topic alter` share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from klamm.cli import admin
from klamm.cli.parsing import Failed, UsageError, nearest
from klamm.cli.units import explained, plain_value
from klamm.client.errors import ClientError
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k44_incremental_alter_configs import AlterableConfig

if TYPE_CHECKING:
    from klamm.client import Cluster

_MISTAKES = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def changes(
    set_to: Iterable[tuple[str, str]] = (),
    unset: Iterable[str] = (),
    append: Iterable[tuple[str, str]] = (),
    subtract: Iterable[tuple[str, str]] = (),
) -> list[AlterableConfig]:
    """The changes in one list, values in plain numbers; UsageError if an option is named twice."""
    wanted = [(name, Operation.SET, plain_value(name, value)) for name, value in set_to]
    wanted += [(name, Operation.APPEND, value) for name, value in append]
    wanted += [(name, Operation.SUBTRACT, value) for name, value in subtract]
    found = [AlterableConfig(name=name, config_operation=how, value=value) for name, how, value in wanted]
    found += [AlterableConfig(name=name, config_operation=Operation.DELETE, value=None) for name in unset]
    names = [change.name for change in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice; an option can be changed once in a command")
    return found


async def alter(
    cluster: Cluster, resource: admin.Resource, wanted: Sequence[AlterableConfig], dry_run: bool
) -> list[str]:
    """Make the changes, or have them checked; a sentence for each. Failed with the nearest name, where one is wrong."""
    done = await admin.alter_configs(cluster, resource, wanted, validate_only=dry_run)
    if done.code:
        told = "did you mean" in done.text  # our own brokers know the nearest name themselves
        hint = await _nearest_option(cluster, resource, wanted) if done.code in _MISTAKES and not told else ""
        raise Failed(f"{resource} was not changed: {done.text} ({done.code.name})", hint)
    return [_sentence(resource, change, dry_run) for change in wanted]


async def _nearest_option(cluster: Cluster, resource: admin.Resource, wanted: Sequence[AlterableConfig]) -> str:
    try:
        known = {config.name for config in await admin.describe_configs(cluster, resource)}
    except ClientError:
        return ""
    hints = []
    for name in (change.name for change in wanted if change.name not in known):
        close = nearest(name, known)
        hints.append(f"There is no option {name!r}{f'; did you mean {close!r}?' if close else '.'}")
    return " ".join([*hints, "klamm config docs lists the options there are."]) if hints and known else ""


def _sentence(resource: admin.Resource, change: AlterableConfig, dry_run: bool) -> str:
    would = " (checked only)" if dry_run else ""
    value = explained(change.name, change.value or "")
    what = {
        Operation.SET: f"{change.name}={value}",
        Operation.DELETE: f"{change.name} is back to its default",
        Operation.APPEND: f"{change.name} has {value} added",
        Operation.SUBTRACT: f"{change.name} has {value} removed",
    }[Operation(change.config_operation)]
    return f"{resource}: {what}{would}"
