"""Changing options of topics, brokers, groups and client metrics: changes in, records and one result per resource out.

The rules and the error codes are Kafka's. A resource is changed as a whole or not at all. What is refused, and with
which code, differs by the kind of resource, because it does in Kafka: an option of a topic that cannot be is
INVALID_CONFIG, one of a broker INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from klamm.controller.commands import Decision
from klamm.controller.config_rules import SCHEMAS, Schema
from klamm.core.errors import BrokerError, ErrorCode
from klamm.core.options import Kind, Options
from klamm.metadata.image import ConfigResource, Image
from klamm.metadata.records import ConfigRecord, MetadataRecord

MAX_CHANGES_PER_REQUEST = 10_000
"""Kafka's bound as well: so many changes are one entry of the metadata log."""


class ConfigOperation(IntEnum):
    """What a change does; the numbers are those of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """`operation` is a ConfigOperation, or whatever number the client has sent."""

    name: str
    operation: int
    value: str | None


class ResourceChange(NamedTuple):
    """`replace`: what is not among the changes is taken back (AlterConfigs)."""

    resource: ConfigResource
    changes: Sequence[ConfigChange]
    replace: bool = False


class AlteredResource(NamedTuple):
    resource: ConfigResource
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_configs(
    image: Image, resources: Sequence[ResourceChange], *, node_id: int, options: Options, validate_only: bool = False
) -> Decision[list[AlteredResource]]:
    """A result for each in the order of the request. `options` are those of the broker that was asked (`node_id`),
    which is the only one whose own options it may judge."""
    counts = Counter(change.resource for change in resources)
    too_much = sum(len(change.changes) for change in resources) > MAX_CHANGES_PER_REQUEST
    records: list[MetadataRecord] = []
    results: list[AlteredResource] = []
    for change in resources:
        try:
            if too_much:
                message = f"more than {MAX_CHANGES_PER_REQUEST} changes in one request are too many"
                raise BrokerError(ErrorCode.POLICY_VIOLATION, message)
            if counts[change.resource] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "each resource may be in a request only once")
            records.extend(_alter(image, change, node_id, options))
        except BrokerError as error:
            results.append(AlteredResource(change.resource, error.code, str(error)))
        else:
            results.append(AlteredResource(change.resource))
    return Decision([] if validate_only else records, results)


def _alter(image: Image, change: ResourceChange, node_id: int, options: Options) -> list[ConfigRecord]:
    resource, changes = change.resource, change.changes
    check_form(changes)
    schema = SCHEMAS.get(resource.type)
    if schema is None:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"there is no resource type {resource.type} whose options change")
    schema.check_name(resource.name, node_id)
    before = image.configs.get(resource, {})
    after = {} if change.replace else dict(before)
    for one in changes:
        value = _changed(schema, one, after.get(one.name))
        if value is None:
            after.pop(one.name, None)
        else:
            after[one.name] = value
    schema.check_configs(image, resource, after, options)
    return [_record(resource, name, value) for name, value in _difference(before, after)]


def check_form(changes: Sequence[ConfigChange]) -> None:
    """BrokerError if the changes of a resource are not what a request may hold, whatever they are about."""
    twice = [name for name, count in Counter(one.name for one in changes).items() if count > 1]
    if twice:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)} is changed more than once")
    empty = [one.name for one in changes if one.value is None and one.operation != ConfigOperation.DELETE]
    if empty:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{', '.join(empty)} has no value; to take an option back, delete")


def _changed(schema: Schema, change: ConfigChange, now: str | None) -> str | None:
    """The text of the option after the change; None: it is not set any more."""
    match change.operation:
        case ConfigOperation.SET:
            return change.value
        case ConfigOperation.DELETE:
            return None
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            return _changed_list(schema, change, now)
    raise BrokerError(
        ErrorCode.INVALID_REQUEST, f"there is no operation {change.operation} on options (0 set to 3 subtract)"
    )


def _changed_list(schema: Schema, change: ConfigChange, now: str | None) -> str:
    """A list that is not set has its default to begin with, whatever the broker's options say. It may become empty,
    and is set to that."""
    option = schema.find(change.name)
    if option is None or option.kind is not Kind.LIST:
        why = schema.unknown(change.name) if option is None else f"{change.name} is not a list"
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{why}: only lists can be appended to or subtracted from")
    if now is None:
        default = option.default
        items = list(default) if isinstance(default, tuple) else []
    else:
        items = _items(now)
    others = _items(change.value or "")
    if change.operation == ConfigOperation.APPEND:
        items += [item for item in others if item not in items]
    else:
        items = [item for item in items if item not in others]
    return ",".join(items)


def _items(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[str, str | None]]:
    changed: list[tuple[str, str | None]] = [(n, value) for n, value in after.items() if before.get(n) != value]
    return changed + [(name, None) for name in before if name not in after]


def _record(resource: ConfigResource, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
