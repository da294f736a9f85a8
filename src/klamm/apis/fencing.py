"""How a producer is told that another one has its transactional id: older clients know only the older word for it."""

from __future__ import annotations

from klamm.core.errors import ErrorCode


def fenced(code: ErrorCode, version: int, *, since: int) -> ErrorCode:
    """`since`: the first version of the message whose clients know PRODUCER_FENCED."""
    if code == ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
