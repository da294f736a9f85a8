"""Who reads what in a classic group: `partition.assignment.strategy`.

    Consumer("orders", group_id="billing", partition_assignment_strategy="cooperative-sticky", ...)
    Consumer("orders", group_id="billing", partition_assignment_strategy=[MyAssignor()], ...)

Names are range, roundrobin, sticky and cooperative-sticky, or those of Java's classes. In groups of the newer protocol
(group.protocol=consumer) the broker assigns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from klamm.client.assignors.assignor import Assignment, Assignor, Member
from klamm.client.assignors.plain import RangeAssignor, RoundRobinAssignor
from klamm.client.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from klamm.client.errors import ConfigError

__all__ = [
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "Member",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "resolve",
]

_KINDS: Final = (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
_JAVA: Final = "org.apache.kafka.clients.consumer."


def resolve(given: str | Assignor | Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors that an option stands for, best first. `ConfigError` if one is not known."""
    if isinstance(given, str):
        given = [name for part in given.split(",") if (name := part.strip())]
    elif isinstance(given, Assignor):
        given = [given]
    found = tuple(item if isinstance(item, Assignor) else _by_name(item) for item in given)
    if not found:
        raise ConfigError("partition.assignment.strategy is empty.")
    if len({assignor.name for assignor in found}) < len(found):
        raise ConfigError("partition.assignment.strategy names an assignor twice.")
    return found


def _by_name(name: str) -> Assignor:
    for kind in _KINDS:
        if name in (kind.name, f"{_JAVA}{kind.__name__}"):
            return kind()
    known = ", ".join(kind.name for kind in _KINDS)
    raise ConfigError(f"partition.assignment.strategy={name} is not known.", f"It is one of {known}, or an Assignor.")
