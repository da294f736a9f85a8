"""The brokers that are known, and the connections to them: one for each broker and lane, made when first asked for.

A broker answers a connection's requests strictly in order, so a fetch that waits for records would hold up all that
is behind it. Such requests have a lane, which is a connection, of their own.

A broker that could not be reached is left alone for a while, longer each time; a failed attempt is shared by all who
waited for it. Nothing is retried here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from klamm.client.backoff import MAX_DOUBLINGS, Backoff
from klamm.client.config import ClientConfig
from klamm.client.connection import Connection
from klamm.client.connection_options import CANONICAL
from klamm.client.errors import (
    AuthenticationFailed,
    ClientError,
    Closed,
    ConfigError,
    ConnectionLost,
    NotReachable,
    TlsFailed,
)
from klamm.client.metadata import Broker
from klamm.client.reaching import reason_of
from klamm.client.security import Security
from klamm.client.stats import Stats
from klamm.core.env import Env

FATAL: Final = (AuthenticationFailed, ConfigError, TlsFailed)
"""What no other address and no waiting helps against, unless it says that it is worth another try."""

log = logging.getLogger("klamm.client")


def is_fatal(error: ClientError) -> bool:
    """Whether it is for somebody else to do something about it."""
    return isinstance(error, FATAL) and not error.retriable


class Lane(Enum):
    MAIN = "main"
    FETCH = "fetch"
    GROUP = "group"


class Key(NamedTuple):
    """`node` is a broker's id, or below zero an address from bootstrap.servers."""

    node: int
    lane: Lane


class _Trouble(NamedTuple):
    backoff: Backoff
    until: float


class Nodes:
    def __init__(self, env: Env, config: ClientConfig) -> None:
        self.stats = Stats()
        self._env = env
        self._config = config
        self._security = Security.of(env, config)
        self._bootstrap = {-1 - i: Broker(-1 - i, host, port) for i, (host, port) in enumerate(config.addresses())}
        self._brokers: Mapping[int, Broker] = {}
        self._open: dict[Key, Connection] = {}
        self._opening: dict[Key, asyncio.Task[Connection]] = {}
        self._trouble: dict[int, _Trouble] = {}
        self._closed = False

    def update(self, brokers: Mapping[int, Broker]) -> None:
        """Take over a newer list. A broker that has moved gets a new connection when it is next asked for."""
        for key, connection in list(self._open.items()):
            if key.node >= 0 and brokers.get(key.node) != self._brokers.get(key.node):
                del self._open[key]
                connection.close()
        self._brokers = brokers
        for node in [node for node in self._trouble if node >= 0 and node not in brokers]:
            del self._trouble[node]

    def candidates(self) -> list[int]:
        """Whom to ask what anybody can answer, best first: connected ones, then brokers in any order, then, should
        they all be gone, the addresses that we began with."""
        connected = [key.node for key, made in self._open.items() if key.lane is Lane.MAIN and made.lost is None]
        connected.sort(key=lambda node: self._open[Key(node, Lane.MAIN)].in_flight)
        others = [node for node in self._brokers if node not in connected]
        self._env.rng.shuffle(others)
        others.sort(key=lambda node: node in self._trouble)
        return [*connected, *others, *(node for node in self._bootstrap if node not in connected)]

    def address(self, node: int) -> str:
        broker = self._broker(node)
        return f"broker {node}" if broker is None else str(broker)

    def _broker(self, node: int) -> Broker | None:
        return self._brokers.get(node) or self._bootstrap.get(node)

    def existing(self, node: int, lane: Lane = Lane.MAIN) -> Connection | None:
        """The connection, if there is one that looks good."""
        found = self._open.get(Key(node, lane))
        return found if found is not None and found.lost is None else None

    async def connection(self, node: int, lane: Lane = Lane.MAIN) -> Connection:
        """A connection that looks good. `NotReachable` if there is none to be had."""
        key = Key(node, lane)
        found = self.existing(node, lane)
        if found is not None:
            return found
        if self._closed:
            raise Closed("This cluster is closed.")
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.ensure_future(self._connect(key))
            task.add_done_callback(lambda done: self._opened(key, done))
        # Shielded: a caller that gives up must not take the connection away from the others.
        return await asyncio.shield(task)

    async def _connect(self, key: Key) -> Connection:
        broker = self._broker(key.node)
        if broker is None:
            raise NotReachable([(f"broker {key.node}", "the cluster does not list it")])
        trouble = self._trouble.get(key.node)
        if trouble is not None:
            await asyncio.sleep(max(0.0, trouble.until - self._env.clock.monotonic()))
        try:
            made = await self._open_to(broker, trouble)
        except ClientError as error:
            self._failed(broker, error)
            if is_fatal(error):
                raise
            raise NotReachable([(str(broker), error.text.rstrip("."))], error.hint) from None
        if trouble is not None:
            self._trouble.pop(key.node, None)
            log.info("%s is reachable again, after %d failed attempts.", _name(broker), trouble.backoff.failures)
        else:
            log.debug("Connected to %s.", _name(broker))
        return made

    async def _open_to(self, broker: Broker, trouble: _Trouble | None) -> Connection:
        config = self._config
        failures = 0 if trouble is None else trouble.backoff.failures
        timeout_ms = config.socket_connection_setup_timeout_ms << min(failures, MAX_DOUBLINGS)
        most_ms = max(config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms)
        hosts = [broker.host]
        if broker.id < 0 and config.client_dns_lookup == CANONICAL:
            try:
                hosts = await self._env.network.resolve(broker.host, canonical=True)
            except OSError as error:
                raise ConnectionLost(reason_of(error)) from None
        for i, host in enumerate(hosts):
            try:
                return await Connection.open(
                    self._env,
                    host,
                    broker.port,
                    client_id=config.client_id,
                    timeout_ms=min(timeout_ms, most_ms),
                    max_idle_ms=config.connections_max_idle_ms,
                    security=self._security,
                    stats=self.stats,
                )
            except ClientError:
                if i == len(hosts) - 1:
                    raise
        raise AssertionError("a host without addresses is an error of its own")

    def _failed(self, broker: Broker, error: ClientError) -> None:
        """People are told of the first failure in a row; the others are for those who look closely."""
        self.stats.connections_failed += 1
        before = self._trouble.get(broker.id)
        config = self._config
        level = logging.WARNING if before is None else logging.DEBUG
        reason = error.text.rstrip(".") + (f". {error.hint}" if error.hint else "")
        log.log(level, "%s cannot be used: %s", _name(broker), reason)
        backoff = before.backoff if before else Backoff(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, self._env.rng
        )  # fmt: skip
        self._trouble[broker.id] = _Trouble(backoff, self._env.clock.monotonic() + backoff.next_s())

    def _opened(self, key: Key, task: asyncio.Task[Connection]) -> None:
        del self._opening[key]
        if task.cancelled() or task.exception() is not None:
            return
        if self._closed:
            task.result().close()
        else:
            self._open[key] = task.result()

    async def close(self) -> None:
        self._closed = True
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        await asyncio.sleep(0)  # the transports' last callbacks


def _name(broker: Broker) -> str:
    return f"The broker at {broker}" if broker.id < 0 else f"Broker {broker.id} at {broker}"
