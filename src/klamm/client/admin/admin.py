"""The administrator's client: all parts together, with a connection of their own."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from klamm.client.admin.acls import Acls
from klamm.client.admin.clusters import Clusters
from klamm.client.admin.configs import Configs
from klamm.client.admin.groups import Groups
from klamm.client.admin.placement import Placement
from klamm.client.admin.topics import Topics
from klamm.client.admin.transactions import Transactions
from klamm.client.admin.users import Users
from klamm.client.cluster import Cluster
from klamm.client.config import ClientConfig
from klamm.client.errors import ClientError, Closed

if TYPE_CHECKING:
    from klamm.core.env import Env


class Admin(Topics, Configs, Groups, Acls, Users, Placement, Transactions, Clusters):
    """Options are Kafka's, as keyword arguments with underscores, or with dots in `config`."""

    def __init__(self, *, config: Mapping[str, object] | None = None, env: Env | None = None, **options: Any) -> None:
        self.config = ClientConfig.from_options(config, options)
        self._own_env = env is None
        self._env = env
        self._connected: Cluster | None = None

    async def __aenter__(self) -> Admin:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect. `NotReachable` if there is no broker to be found."""
        if self._connected is not None:
            raise ClientError("This admin client is open already.")
        if self._env is None:
            from klamm.core.env.real import real_env

            self._env = real_env()
        try:
            self._connected = await Cluster.connect(self.config, self._env)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._connected is not None:
            await self._connected.close()
        if self._own_env and self._env is not None:
            self._env.executor.close()
            self._env = None
        self._connected = None

    @property
    def _cluster(self) -> Cluster:  # type: ignore[override]  # the parts have one that is there from the beginning
        if self._connected is None:
            raise Closed("This admin client is not open.", "Use it in an `async with` block, or call `start` first.")
        return self._connected

    def metrics(self) -> dict[str, float]:
        """What this client has counted of its connections, by the names that Java's clients have for it."""
        return self._cluster.metrics()
