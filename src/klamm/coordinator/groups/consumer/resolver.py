"""Carries out `ResolveRegexes`: finds topics in slices of the loop's time, and tells the shard what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from klamm.coordinator.groups.consumer.regexes import ResolveRegexes, resolving
from klamm.core.errors import BrokerError
from klamm.core.slices import in_slices

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.machine import Now, Outcome
    from klamm.coordinator.runtime import Coordinator
    from klamm.metadata.image import Image

_logger = logging.getLogger(__name__)


class RegexResolver:
    """For the `on_effect` of the group coordinator. As many at a time as there are groups with something to resolve:
    the machine has one under way for each."""

    def __init__(self, groups: Coordinator[GroupMachine], image: Callable[[], Image]) -> None:
        self._groups = groups
        self._image = image
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, partition: int, effect: object) -> None:
        assert isinstance(effect, ResolveRegexes), effect
        task = asyncio.get_running_loop().create_task(self._resolve(partition, effect))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": f"regular expressions could not be resolved: {error}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    async def _resolve(self, partition: int, effect: ResolveRegexes) -> None:
        image = self._image()
        found: dict[str, frozenset[str]] | None = None
        try:
            matched = await in_slices(resolving(effect.expressions, image.topics))
            found = {
                expression: frozenset(filter(effect.may_see, sorted(topics))) for expression, topics in matched.items()
            }
        finally:  # whatever went wrong with it, the group shall not wait for it for ever

            def decide(machine: GroupMachine, now: Now) -> Outcome:
                return machine.consumer.resolved(effect.group_id, found, image.offset, now)

            try:
                await self._groups.run(partition, decide)
            except BrokerError as error:  # the shard has gone; the next one asks again
                _logger.info("group %s: resolved expressions were not kept: %s", effect.group_id, error)
