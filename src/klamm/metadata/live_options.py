"""The broker's options in force: what it was started with, and over that what the image has for all brokers and for
this one.

A subscriber of the image, and the first one: whoever follows has the new options before the partitions hear of the
image that brought them. It never refuses anything: what is in the image was decided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from klamm.core.options import Options, find_option
from klamm.metadata.image import BROKER_RESOURCE, ConfigResource, Image
from klamm.metadata.replay import Delta

Follower: TypeAlias = Callable[[Options], None]

_log = logging.getLogger(__name__)


class LiveOptions:
    """`current` is replaced, never changed: take it once for what must be of one piece."""

    __slots__ = ("_followers", "_mine", "_node_id", "_seen", "current")

    def __init__(self, node_id: int, options: Options) -> None:
        self.current = options.base
        self._node_id = node_id
        self._mine = (ConfigResource(BROKER_RESOURCE, ""), ConfigResource(BROKER_RESOURCE, str(node_id)))
        self._followers: list[Follower] = []
        self._seen: Mapping[str, str] = {}

    def follow(self, follower: Follower) -> None:
        """Call `follower(options)` with the options now, and whenever they change. It must not raise."""
        self._followers.append(follower)
        follower(self.current)

    def apply(self, image: Image, delta: Delta) -> None:
        if not any(resource in self._mine for resource in delta.configs):
            return
        for_all, for_this = image.broker_configs(None), image.broker_configs(self._node_id)
        self.current, problems = self.current.dynamic(for_all, for_this)
        for problem in problems:
            _log.error("an option that was set while the broker ran cannot be used: %s", problem)
        given = {**for_all, **for_this}
        changed = [name for name in {**self._seen, **given} if self._seen.get(name) != given.get(name)]
        self._seen = given
        if changed:
            _log.info("options changed: %s", ", ".join(f"{name}={self._shown(name)}" for name in changed))
        if idle := list(_idle(name for name in changed if name in given)):
            _log.warning("set, but without effect in Klamm: %s", ", ".join(idle))
        for follower in self._followers:
            follower(self.current)

    def _shown(self, name: str) -> str:
        option = find_option(name)
        return "[hidden]" if option is None or option.sensitive else str(self._seen.get(name, "(not set)"))


def _idle(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        option = find_option(name)
        if option is None or not option.honoured:
            yield name
