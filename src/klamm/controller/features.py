"""The levels of features that all brokers use. A change is one for all features of a request, or none.

Which levels there are is what the brokers said when they registered; a feature that a broker did not name has level 0
there alone, which is off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from klamm.controller.commands import Decision
from klamm.core.errors import BrokerError, ErrorCode
from klamm.metadata.image import BrokerState, Image
from klamm.metadata.records import FeatureRecord, MetadataRecord


class Upgrade(IntEnum):
    """What a change may do; Kafka's codes. Nothing is lost by any downgrade here, so both kinds are the same."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade: int = Upgrade.UPGRADE


def update_features(image: Image, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> Decision[None]:
    """BrokerError if one of them cannot be: then nothing changes."""
    if len({update.name for update in updates}) != len(updates):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the request names a feature more than once")
    for update in updates:
        problem = _problem(image, update)
        if problem is not None:
            message = f"feature {update.name} cannot be at level {update.level}: {problem}; no feature was changed"
            raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, message)
    records: list[MetadataRecord] = [
        FeatureRecord(name=update.name, level=update.level)
        for update in updates
        if update.level != image.features.get(update.name, 0)
    ]
    return Decision([] if validate_only else records, None)


def first_levels(image: Image, broker: BrokerState) -> Iterator[FeatureRecord]:
    """A broker registers. The features that are new with it are used from here on, at their highest level, if it is the
    only one: a new cluster has them all, and so has a single broker after an upgrade. Several brokers are upgraded one
    by one, and when all of them have it, somebody has to say so. What was switched off is not new, and stays off."""
    if any(other != broker.id for other in image.brokers):
        return
    before = image.brokers.get(broker.id)
    known = () if before is None else [name for name, _, _ in before.features]
    for name, _, highest in broker.features:
        if name not in known and name not in image.features and highest > 0:
            yield FeatureRecord(name=name, level=highest)


def _problem(image: Image, update: FeatureUpdate) -> str | None:
    if update.upgrade not in Upgrade._value2member_map_:
        return f"there is no upgrade type {update.upgrade}"
    if update.level < 0:
        return "levels begin with 0, which switches it off"
    for _, broker in sorted(image.brokers.items()):
        low, high = _supported(broker, update.name)
        if not low <= update.level <= high:
            offers = f"has levels {low} to {high}" if high else "does not have it"
            return f"broker {broker.id} {offers}"
    current = image.features.get(update.name, 0)
    if update.level < current and update.upgrade == Upgrade.UPGRADE:
        return f"it is at {current}, and going back has to be asked for as a downgrade"
    if update.level > current and update.upgrade != Upgrade.UPGRADE:
        return f"it is at {current}, so this is no downgrade"
    return None


def _supported(broker: BrokerState, name: str) -> tuple[int, int]:
    for feature, low, high in broker.features:
        if feature == name:
            return low, high
    return 0, 0
