"""How the connections of one client are protected, and how it logs in; made once, used by all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm.client.connection_options import ConnectionOptions
from klamm.core.env import Env, Tls

if TYPE_CHECKING:
    from ssl import SSLContext

    from klamm.client.sasl.credentials import Credentials
    from klamm.client.tls import Keys


class Security:
    """`credentials` are there if a connection has to log in."""

    credentials: Credentials | None = None

    def __init__(self, env: Env, config: ConnectionOptions) -> None:
        self._env = env
        self._config = config
        self._context: tuple[Keys, SSLContext] | None = None
        self._lock = asyncio.Lock()
        if config.uses_sasl:
            from klamm.client.sasl.credentials import Credentials

            self.credentials = Credentials(env, config)

    @classmethod
    def of(cls, env: Env, config: ConnectionOptions) -> Security | None:
        """None for plain text, which needs nothing of this."""
        return cls(env, config) if config.uses_tls or config.uses_sasl else None

    async def tls(self, host: str) -> Tls | None:
        """`ConfigError` if keys or certificates cannot be used. Files are looked at for every connection, because
        certificates are replaced while programs run."""
        if not self._config.uses_tls:
            return None
        async with self._lock:
            # In a thread: the system's authorities alone take tens of milliseconds.
            self._context = await self._env.executor.submit(self._newest)
        return Tls(self._context[1], host)

    def _newest(self) -> tuple[Keys, SSLContext]:
        from klamm.client.tls import make_context, read_keys

        keys = read_keys(self._env.files, self._config)
        if self._context is not None and self._context[0] == keys:
            return self._context
        return keys, make_context(self._config, keys)
