"""Requests and events on their way through a shard: what waits for the log, and the errors that it may end with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm.core.errors import BrokerError, ErrorCode
from klamm.replica.pending import Pending

if TYPE_CHECKING:
    import asyncio

    from klamm.coordinator.machine import Outcome
    from klamm.wire.schema import Response

_AS_COORDINATOR: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def as_coordinator(code: ErrorCode) -> ErrorCode:
    """What a client of a coordinator is told when an append failed: the code of a partition means nothing to it."""
    return _AS_COORDINATOR.get(code, code)


def fail(done: asyncio.Future[None], code: ErrorCode) -> None:
    """What somebody may wait for will not be. It is no mistake if nobody does."""
    done.set_exception(BrokerError(code))
    done.exception()


class Uncommitted(NamedTuple):
    """What is to be done when the high watermark has passed an offset."""

    offset: int
    outcome: Outcome
    done: asyncio.Future[None] | None


class Call(Pending):
    """A request that a shard has taken: where its answer goes, and what to answer if there is none."""

    __slots__ = ("refuse",)

    def __init__(self, refuse: Callable[[ErrorCode], Response]) -> None:
        super().__init__()
        self.refuse = refuse

    def take(self) -> Response | None:
        """The answer, if it is there. Then nobody else gets it."""
        response, self._response = self._response, None
        return response
