"""What an answer of a coordinator means for a member: one word, which both protocols share. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

from klamm.client.errors import BrokerSaid
from klamm.core.errors import ErrorCode


class Verdict(Enum):
    FINE = "fine"
    AGAIN = "again"
    """Ask the same again, after a pause: this passes."""
    ELSEWHERE = "elsewhere"
    """Find the coordinator first, then ask again."""
    REJOIN = "rejoin"
    """The group rebalances: join again, as the member that this is."""
    OUT = "out"
    """The group went on without this member: what it had is lost; it may join as a new one."""


PASSING: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: Verdict.AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.ELSEWHERE,
    ErrorCode.NOT_COORDINATOR: Verdict.ELSEWHERE,
}
"""What any request to a coordinator may be answered."""

_HINTS: Final = {
    ErrorCode.FENCED_INSTANCE_ID: "Another member of the group has the same group.instance.id; it must be unique.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another member of the group has the same group.instance.id; it must be unique.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "All members need an assignor in common (partition.assignment.strategy), "
    "and the same group.protocol.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The broker's bounds are group.min.session.timeout.ms and "
    "group.max.session.timeout.ms.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has as many members as the broker allows.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "Check group.remote.assignor.",
}


def refusal(code: ErrorCode, group_id: str, message: str | None = None) -> BrokerSaid:
    """The error for what no waiting helps against."""
    return BrokerSaid(code, f"group {group_id}", message, _HINTS.get(code, ""))
