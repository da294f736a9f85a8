"""Changing options of a resource: what `klamm config set` and `klamm topic alter` share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from klamm.cli.parsing import Failed, UsageError, nearest
from klamm.cli.units import explained, plain_value
from klamm.client.admin.configs import ConfigChange, ConfigOperation, Configs, Resource
from klamm.client.errors import BrokerSaid, ClientError
from klamm.core.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.client import Cluster

_MISTAKES = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)


def changes(
    set_to: Iterable[tuple[str, str]] = (),
    unset: Iterable[str] = (),
    append: Iterable[tuple[str, str]] = (),
    subtract: Iterable[tuple[str, str]] = (),
) -> list[ConfigChange]:
    """The changes in one list, values in plain numbers; UsageError if an option is named twice."""
    found = [ConfigChange(name, plain_value(name, value)) for name, value in set_to]
    found += [ConfigChange(name, value, ConfigOperation.APPEND) for name, value in append]
    found += [ConfigChange(name, value, ConfigOperation.SUBTRACT) for name, value in subtract]
    found += [ConfigChange(name, None, ConfigOperation.DELETE) for name in unset]
    names = [change.name for change in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice; an option can be changed once in a command")
    return found


async def alter(cluster: Cluster, resource: Resource, wanted: Sequence[ConfigChange], dry_run: bool) -> list[str]:
    """Make the changes, or have them checked; a sentence for each. Failed with the nearest name, where one is wrong."""
    try:
        (await Configs(cluster).alter_configs({resource: wanted}, validate_only=dry_run)).check()
    except BrokerSaid as error:
        told = "did you mean" in error.text  # our own brokers know the nearest name themselves
        hint = await _nearest_option(cluster, resource, wanted) if error.code in _MISTAKES and not told else ""
        raise Failed(f"{resource} was not changed: {error.text.removeprefix(f'{resource}: ')}", hint) from None
    return [_sentence(resource, change, dry_run) for change in wanted]


async def _nearest_option(cluster: Cluster, resource: Resource, wanted: Sequence[ConfigChange]) -> str:
    try:
        known = set((await Configs(cluster).describe_configs([resource]))[resource])
    except ClientError:
        return ""
    hints = []
    for name in (change.name for change in wanted if change.name not in known):
        close = nearest(name, known)
        hints.append(f"There is no option {name!r}{f'; did you mean {close!r}?' if close else '.'}")
    return " ".join([*hints, "klamm config docs lists the options there are."]) if hints and known else ""


def _sentence(resource: Resource, change: ConfigChange, dry_run: bool) -> str:
    would = " (checked only)" if dry_run else ""
    value = explained(change.name, change.value or "")
    what = {
        ConfigOperation.SET: f"{change.name}={value}",
        ConfigOperation.DELETE: f"{change.name} is back to its default",
        ConfigOperation.APPEND: f"{change.name} has {value} added",
        ConfigOperation.SUBTRACT: f"{change.name} has {value} removed",
    }[change.operation]
    return f"{resource}: {what}{would}"
