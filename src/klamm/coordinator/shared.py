"""What the shards of one coordinator share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from klamm.coordinator.counters import Counters
    from klamm.coordinator.loading import Loaded, Turns
    from klamm.coordinator.records import RecordFormat
    from klamm.core.env import Env
    from klamm.metadata.image import Image


class Services(NamedTuple):
    env: Env
    loop: asyncio.AbstractEventLoop
    known: RecordFormat
    turns: Turns
    counters: Counters
    image: Callable[[], Image]
    on_loaded: Callable[[Loaded], None]
    on_effect: Callable[[int, object], None]
