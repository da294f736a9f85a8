"""The broker that coordinates a group (or a transactional id): found when it is needed, forgotten when it was wrong.

Nothing is retried here; a caller that gets an error worth it calls `forget`, waits and asks again.
"""

from __future__ import annotations

from typing import Any, Final

from klamm import wire
from klamm.client.cluster import Cluster
from klamm.client.errors import BrokerSaid, ClientError, error_code
from klamm.client.nodes import Lane
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest

GROUP: Final = 0
TRANSACTION: Final = 1
_MANY_KEYS: Final = 4
"""FindCoordinator takes several keys at once from this version on."""


class Coordinator:
    def __init__(self, cluster: Cluster, key: str, kind: int = GROUP) -> None:
        self._cluster = cluster
        self._key = key
        self._kind = kind
        self._node: int | None = None

    def forget(self) -> None:
        """It did not answer, or said that it is another one."""
        self._node = None

    async def node(self) -> int:
        """Its broker id. `BrokerSaid` if there is none at the moment, which passes."""
        if self._node is None:
            self._node = await self._find()
        return self._node

    async def _find(self) -> int:
        cluster = self._cluster
        version = await cluster.version(FindCoordinatorRequest)
        if version < _MANY_KEYS:
            message = FindCoordinatorRequest(key=self._key, key_type=self._kind)
        else:
            message = FindCoordinatorRequest(coordinator_keys=[self._key], key_type=self._kind)
        answer = await cluster.request(message, version=version)
        found = answer if version < _MANY_KEYS else answer.coordinators[0]
        if found.error_code:
            raise BrokerSaid(error_code(found.error_code), f"the coordinator of {self._key}", found.error_message)
        node: int = found.node_id
        if node not in cluster.brokers:
            await cluster.refresh()
            if node not in cluster.brokers:
                raise BrokerSaid(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator of {self._key}")
        return node

    async def version(self, message: type[wire.Request], *, at_most: int | None = None) -> int:
        connection = await self._cluster.connection(await self.node())
        return connection.versions.best(message, at_most)

    async def ask(
        self,
        message: wire.Request,
        *,
        version: int | None = None,
        lane: Lane = Lane.MAIN,
        timeout_ms: int | None = None,
    ) -> Any:
        """Ask it once. An error of the connection forgets where it is."""
        try:
            return await self._cluster.request(
                message, node=await self.node(), version=version, lane=lane, timeout_ms=timeout_ms
            )
        except ClientError as error:
            if error.retriable:
                self.forget()
            raise
