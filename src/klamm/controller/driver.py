"""Runs the controller's commands: decide, append, and answer once the records are safe and published.

Commands are decided one after another, each on the image that its predecessors will leave (the head), so none waits
for the disk before the next is decided; the store makes a group of them durable with one sync. A long one gives the
loop its turns, and the next command waits for it. A reply, even one that writes nothing, is given only when everything
it was decided on is durable: nobody hears of a topic that a power loss could still undo. The number of commands at a
time is bounded by the requests that the server lets in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from klamm.controller.commands import Decision, ProducerIdBlock, allocate_producer_ids
from klamm.controller.configs import AlteredResource, ResourceChange, alter_configs
from klamm.controller.registration import BrokerRegistration, register_broker
from klamm.controller.topics import (
    CreatedTopic,
    DeletedTopic,
    NewTopic,
    TopicToDelete,
    creating_topics,
    delete_topics,
)
from klamm.core.env import Env
from klamm.core.options import Options
from klamm.core.slices import Sliced, in_slices
from klamm.metadata.entries import encoding_records
from klamm.metadata.image import Image
from klamm.metadata.publisher import Publisher
from klamm.metadata.records import ControllerRecord, MetadataRecord
from klamm.metadata.replay import replaying
from klamm.metadata.store import Entry, Fenced, Store, StoreError

R = TypeVar("R")

_log = logging.getLogger(__name__)


class Controller:
    """What the handlers use: `run` with a command, and the commands that have more than one user, with the failures of
    the store among their results."""

    def __init__(self, env: Env, store: Store, publisher: Publisher, options: Options) -> None:
        self._env = env
        self._store = store
        self._publisher = publisher
        self._head: Image = publisher.image
        self._last_append: asyncio.Future[None] | None = None
        self._epoch: int | None = None
        self._deciding = asyncio.Lock()  # the head does not move while it is held by another
        self._snapshot: asyncio.Task[None] | None = None
        self.options = options  # replaced when a dynamic option changes

    async def start(self, node_id: int) -> bool:
        """Stand for election; whether this node is the controller now. The publisher has the store's image."""
        epoch = await self._store.elect(node_id)
        if epoch is None:
            return False
        self._epoch = epoch
        self._head = self._publisher.image
        self._last_append = None
        await self.run(lambda image: Decision([ControllerRecord(id=node_id)], None))
        return True

    async def register_broker(self, broker: BrokerRegistration) -> int:
        """The broker's epoch. Raises StoreError: a broker that cannot register cannot start."""
        epoch = await self._store.register(broker.id, broker.incarnation_id, self._head.offset + 1)
        return await self.run(lambda image: register_broker(image, broker, epoch=epoch))

    async def create_topics(self, topics: Sequence[NewTopic], validate_only: bool = False) -> list[CreatedTopic]:
        """One result for each name."""

        def decide(image: Image) -> Sliced[Decision[list[CreatedTopic]]]:
            return creating_topics(
                image,
                topics,
                options=self.options,
                rng=self._env.rng,
                new_id=self._env.uuid,
                validate_only=validate_only,
            )

        try:
            return await self.run(decide)
        except StoreError as error:
            return [CreatedTopic(name, error.code, str(error)) for name in dict.fromkeys(t.name for t in topics)]

    async def delete_topics(self, topics: Sequence[TopicToDelete]) -> list[DeletedTopic]:
        """One result for each."""
        try:
            return await self.run(lambda image: delete_topics(image, topics, options=self.options))
        except StoreError as error:
            return [DeletedTopic(topic.name, topic.topic_id, error.code, str(error)) for topic in topics]

    async def alter_configs(
        self, resources: Sequence[ResourceChange], *, node_id: int, validate_only: bool = False
    ) -> list[AlteredResource]:
        """One result for each, in their order."""

        def decide(image: Image) -> Decision[list[AlteredResource]]:
            return alter_configs(image, resources, node_id=node_id, options=self.options, validate_only=validate_only)

        try:
            return await self.run(decide)
        except StoreError as error:
            return [AlteredResource(change.resource, error.code, str(error)) for change in resources]

    async def allocate_producer_ids(self, broker_id: int) -> ProducerIdBlock:
        try:
            return await self.run(lambda image: allocate_producer_ids(image, broker_id=broker_id))
        except StoreError as error:
            return ProducerIdBlock(error.code)

    async def close(self) -> None:
        """Finish what is under way. The store is the caller's to close."""
        self._epoch = None
        if self._last_append is not None and not self._last_append.done():
            await asyncio.wait([self._last_append])
        if self._snapshot is not None:
            await asyncio.wait([self._snapshot])

    async def run(self, decide: Callable[[Image], Decision[R] | Sliced[Decision[R]]]) -> R:
        """Decide on the newest image, one command at a time; the reply once what it rests on is safe and published.

        Raises StoreError where the store does not take the records: an API's `on_error` makes its answer of that."""
        async with self._deciding:
            decided = decide(self._head)
            decision = decided if isinstance(decided, Decision) else await in_slices(decided)
            await self._append(decision.records)
            last = self._last_append
        if last is not None and not last.done():
            await asyncio.shield(last)  # others wait for the same future: a caller that gives up must not cancel it
        elif last is not None:
            last.result()
        self._snapshot_if_due()
        return decision.reply

    async def _append(self, records: Sequence[MetadataRecord]) -> None:
        """One entry, whole: what can be done in slices is done before."""
        epoch, base = self._epoch, self._head
        if epoch is None:
            raise Fenced("this node is not the controller")
        if not records:
            return
        encoded = await in_slices(encoding_records(records))
        entry = Entry(base.offset + 1, epoch, tuple(records), encoded)
        image, delta = await in_slices(replaying(base, entry.records, offset=entry.last_offset, epoch=epoch))
        if self._epoch != epoch:
            raise Fenced("this node is no longer the controller")
        self._last_append = self._store.append(entry)
        self._publisher.expect(entry, base, image, delta)
        self._head = image

    def _snapshot_if_due(self) -> None:
        if self._store.wants_snapshot and (self._snapshot is None or self._snapshot.done()):
            task = asyncio.get_running_loop().create_task(self._store.snapshot(self._publisher.image))
            task.add_done_callback(_report)
            self._snapshot = task


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("metadata snapshot failed", exc_info=error)
