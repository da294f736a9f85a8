"""Changing client quotas: which entities and keys there are, and which values they may have, as with Kafka.

An entity is a user, a client id, both, or an address; each by name, or (None) all that have no quota of their own. They
are stored; holding clients to them is another matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.controller.commands import Decision
from klamm.core.errors import BrokerError, ErrorCode
from klamm.metadata.image import Image, quota_record
from klamm.metadata.quotas import CLIENT_ID, IP, USER, QuotaEntity, entity
from klamm.metadata.records import MetadataRecord

MAX_CHANGES_PER_REQUEST = 10_000

_ANY_NUMBER: Final = math.inf
_CLIENT_KEYS: Final = {  # largest whole number; _ANY_NUMBER: fractions are fine too
    "producer_byte_rate": 2.0**63,
    "consumer_byte_rate": 2.0**63,
    "request_percentage": _ANY_NUMBER,
    "controller_mutation_rate": _ANY_NUMBER,
}
_IP_KEYS: Final = {"connection_creation_rate": 2.0**31 - 1}
_FRACTION: Final = 1e-6  # what arithmetic may have left of a whole number


class QuotaChange(NamedTuple):
    """New values for an entity's keys; None removes."""

    parts: Sequence[tuple[str, str | None]]
    values: Sequence[tuple[str, float | None]]


class ChangedQuota(NamedTuple):
    parts: Sequence[tuple[str, str | None]]
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_quotas(
    image: Image, changes: Sequence[QuotaChange], *, validate_only: bool = False
) -> Decision[list[ChangedQuota]]:
    """A result for each entity in the order of the request; one that is there twice has one result, an error.
    BrokerError if it is too much for one request."""
    if sum(len(change.values) for change in changes) > MAX_CHANGES_PER_REQUEST:
        message = f"a request may change {MAX_CHANGES_PER_REQUEST} quotas at most"
        raise BrokerError(ErrorCode.POLICY_VIOLATION, message)
    by_entity = {entity(change.parts): change for change in changes}
    counts = Counter(entity(change.parts) for change in changes)
    records: list[MetadataRecord] = []
    results: list[ChangedQuota] = []
    for whom, change in by_entity.items():
        try:
            if counts[whom] > 1:
                raise _refused("the request names the same entity more than once")
            keys = _keys_for(whom)
            records.extend(_decide(image, whom, change, keys))
        except BrokerError as error:
            results.append(ChangedQuota(change.parts, error.code, str(error)))
        else:
            results.append(ChangedQuota(change.parts))
    return Decision([] if validate_only else records, results)


def _keys_for(whom: QuotaEntity) -> Mapping[str, float]:
    types = [kind for kind, _ in whom]
    if not types:
        raise _refused("a quota needs an entity: user, client-id or ip")
    if len(set(types)) != len(types):
        raise _refused(f"the entity has a type twice: {', '.join(types)}")
    for kind, name in whom:
        if kind not in (USER, CLIENT_ID, IP):
            raise _refused(f"there are no quotas for a {kind!r}; there are user, client-id and ip")
        if name == "":
            raise _refused(f"the name of the {kind} is empty; leave it out for the default")
    if IP not in types:
        return _CLIENT_KEYS
    if len(types) > 1:
        raise _refused("an ip cannot be combined with a user or a client-id")
    _check_address(whom[0][1])
    return _IP_KEYS


def _check_address(name: str | None) -> None:
    """A command asks no name server, so it must be an address."""
    from ipaddress import ip_address  # 2 ms that a start does not have to pay

    if name is not None:
        try:
            ip_address(name)
        except ValueError:
            raise _refused(f"{name!r} is no IP address") from None


def _decide(
    image: Image, whom: QuotaEntity, change: QuotaChange, keys: Mapping[str, float]
) -> Iterable[MetadataRecord]:
    """The records for what really changes."""
    current = image.quotas.get(whom, {})
    values = dict(change.values)
    if len(values) != len(change.values):
        raise _refused("the request sets a quota of the entity more than once")
    for key, value in values.items():
        if value is not None:
            _check_value(key, value, keys)
    return [
        quota_record(whom, key, value)
        for key, value in values.items()
        if current.get(key) != value  # None: not there, and to be removed
    ]


def _check_value(key: str, value: float, keys: Mapping[str, float]) -> None:
    largest = keys.get(key)
    if largest is None:
        raise _refused(f"there is no quota {key!r} for this entity; there are {', '.join(keys)}")
    if not value > 0 or math.isinf(value):  # not a number is not above 0 either
        raise _refused(f"{key}={value:g} must be a number above 0")
    if value > largest:
        raise _refused(f"{key}={value:g} is too large: the most is {largest:.0f}")
    if largest != _ANY_NUMBER and abs(value - round(value)) > _FRACTION:
        raise _refused(f"{key}={value:g} must be a whole number")


def _refused(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
