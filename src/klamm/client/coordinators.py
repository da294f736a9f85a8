"""Asking the coordinator of a group or of a transactional id, wherever it is at the moment.

Who it is is remembered until somebody says that it is not, or cannot be reached. `ask` asks again where that may help:
all that goes through it does no harm if it arrives twice. `ask_once` is for callers who know better what to do next.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING, Any, Final

from klamm.client.errors import BrokerSaid, ClientError, error_code
from klamm.client.nodes import Lane
from klamm.client.retrying import Retrying
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from klamm import wire
    from klamm.client.cluster import Cluster

_FIRST_WITH_MANY_KEYS: Final = 4
_MARKERS_S: Final = 0.02
"""How long to wait while the last transaction is being completed: that is a matter of milliseconds."""
_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Kind(IntEnum):
    """The numbers are FindCoordinator's."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator:
    """The one of this group or transactional id. `timeout_ms` is how long it may take to get an answer to a question,
    with everything that may go wrong in between."""

    def __init__(self, cluster: Cluster, kind: Kind, key: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self._kind = kind
        self._key = key
        self._timeout_ms = timeout_ms
        self._node: int | None = None

    async def ask(
        self, message: wire.Request, code_of: Callable[[Any], int], *, at_most: int | None = None
    ) -> tuple[Any, ErrorCode]:
        """The answer and its error code (by `code_of`), which is none that passes by itself. `TimedOut` if only such
        came. `at_most` is the highest version to use."""
        what = f"{type(message).__name__.removesuffix('Request')} of {self._key}"
        retrying = Retrying(self._cluster.env, self._cluster.config, what, self._timeout_ms)
        while True:
            try:
                node = await self.node()
                connection = await self._cluster.connection(node)
                version = connection.versions.best(type(message), at_most)
                answer = await self._cluster.request(message, node=node, version=version)
            except ClientError as error:
                self._node = None
                await retrying.pause(error)
                continue
            code = error_code(code_of(answer))
            if not code.retriable:
                return answer, code
            if code in _MOVED:
                self._node = None
            soon = code is ErrorCode.CONCURRENT_TRANSACTIONS
            await retrying.pause(BrokerSaid(code, self._key), at_most_s=_MARKERS_S if soon else inf)

    async def ask_once(
        self,
        message: wire.Request,
        *,
        version: int | None = None,
        lane: Lane = Lane.MAIN,
        timeout_ms: int | None = None,
    ) -> Any:
        """The answer, whatever it says. An error of the connection forgets who it is."""
        try:
            return await self._cluster.request(
                message, node=await self.node(), version=version, lane=lane, timeout_ms=timeout_ms
            )
        except ClientError as error:
            if error.retriable:
                self.forget()
            raise

    async def version(self, message: type[wire.Request], *, at_most: int | None = None) -> int:
        """The highest version that it and we have."""
        try:
            connection = await self._cluster.connection(await self.node())
        except ClientError:
            self.forget()
            raise
        return connection.versions.best(message, at_most)

    def forget(self) -> None:
        """It said, or its silence does, that it is another one."""
        self._node = None

    async def node(self) -> int:
        """Its id; asked for if it is not known. `BrokerSaid` if there is none."""
        if self._node is None:
            self._node = await self._find()
        return self._node

    async def _find(self) -> int:
        version = await self._cluster.version(FindCoordinatorRequest)
        if version >= _FIRST_WITH_MANY_KEYS:
            request = FindCoordinatorRequest(coordinator_keys=[self._key], key_type=self._kind)
        else:
            request = FindCoordinatorRequest(key=self._key, key_type=self._kind)
        answer: FindCoordinatorResponse = await self._cluster.request(request, version=version)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            raise BrokerSaid(error_code(found.error_code), self._key, found.error_message)
        if found.node_id not in self._cluster.brokers:
            await self._cluster.metadata(())
        return found.node_id
