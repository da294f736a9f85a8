"""An application of nothing but a group member: it comes for its turns, and reads what it is told it did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from klamm.client import ClientConfig, Cluster
from klamm.client.group import member_of
from klamm.client.membership import Membership
from klamm.client.reset import LATEST_RESET
from klamm.client.subscription import Listener, Subscriptions
from klamm.core.env import Env
from klamm.core.ids import TopicPartition

QUICK: dict[str, object] = {
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 50,
    "heartbeat.interval.ms": 50,
}
WAIT_S = 30


class Reader:
    """`history` has what its callbacks were told: ("assigned" | "revoked" | "lost", partitions)."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.subscriptions = Subscriptions(LATEST_RESET)
        self.history: list[tuple[str, list[TopicPartition]]] = []
        self.errors: list[BaseException] = []
        self._news = asyncio.Event()
        self._changed = asyncio.Condition()
        self.member: Membership = member_of(cluster, self.subscriptions, self._wake)
        self._polling = asyncio.Event()
        self._polling.set()
        self._app = asyncio.ensure_future(self._run())

    @classmethod
    async def start(cls, bootstrap: str, env: Env, group_id: str = "g", **options: object) -> Reader:
        given = {name.replace("_", "."): value for name, value in options.items()}
        config = ClientConfig.from_mapping({"bootstrap.servers": bootstrap, "group.id": group_id, **QUICK, **given})
        return cls(await Cluster.connect(config, env))

    def _wake(self) -> None:
        self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            await self._polling.wait()
            self._news.clear()
            self.subscriptions.polls += 1
            if self.member.wants_turn:
                try:
                    await self.member.turn()
                except Exception as error:
                    self.errors.append(error)
            async with self._changed:
                self._changed.notify_all()

    def stop_polling(self) -> None:
        self._polling.clear()

    def poll_again(self) -> None:
        self._polling.set()

    def listener(self) -> Listener:
        def told(kind: str) -> Callable[[list[TopicPartition]], Any]:
            return lambda places: self.history.append((kind, places))

        return Listener(told("assigned"), told("revoked"), told("lost"))

    def subscribe(self, *topics: str, listener: Listener | None = None) -> None:
        self.subscriptions.subscribe(topics, listener or self.listener())
        self.member.changed()

    @property
    def mine(self) -> set[int]:
        """The partitions of one topic that may be read."""
        return {place.partition for place, state in self.subscriptions.partitions.items() if not state.held}

    @property
    def places(self) -> set[TopicPartition]:
        return {place for place, state in self.subscriptions.partitions.items() if not state.held}

    async def until(self, holds: Callable[[], bool], limit_s: float = WAIT_S) -> None:
        async with asyncio.timeout(limit_s), self._changed:
            await self._changed.wait_for(lambda: self.member.failure is not None or holds())
        if self.member.failure is not None and not holds():
            raise self.member.failure

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.history]

    async def close(self) -> None:
        await self.member.close()
        await self.vanish()

    async def vanish(self) -> None:
        """As a process that is killed: no goodbye."""
        self._app.cancel()
        for task in [*self.member._tasks, self.member._belonging]:  # type: ignore[attr-defined]
            if task is not None:
                task.cancel()
        await asyncio.wait([self._app])
        await self.cluster.close()


async def until_shared(count: int, *readers: Reader, limit_s: float = WAIT_S) -> None:
    """Until these have all partitions of one topic between them, each exactly once and nearly as many."""
    async with asyncio.timeout(limit_s):
        while True:
            held = sorted(partition for reader in readers for partition in reader.mine)
            sizes = [len(reader.mine) for reader in readers]
            if held == list(range(count)) and max(sizes) - min(sizes) <= 1:
                return
            waits = [asyncio.ensure_future(_next(reader)) for reader in readers]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            for reader in readers:
                if reader.member.failure is not None:
                    raise reader.member.failure


async def _next(reader: Reader) -> None:
    async with reader._changed:
        await reader._changed.wait()
