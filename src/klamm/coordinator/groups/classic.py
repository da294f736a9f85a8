"""The classic protocol: members join, one of them assigns, all of them sync. (Being written.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from klamm.coordinator.machine import Answer, Now, Outcome, Producer, Record
from klamm.wire.messages.coordinator import GroupMetadataKey

if TYPE_CHECKING:
    from klamm.coordinator.groups.machine import GroupMachine
    from klamm.coordinator.groups.timers import TimerKey
    from klamm.core.errors import ErrorCode
    from klamm.metadata.image import Image
    from klamm.metadata.replay import Delta
    from klamm.wire.schema import Struct


class ClassicGroups:
    name: ClassVar[str] = "classic"
    keys: ClassVar[tuple[type[Struct], ...]] = (GroupMetadataKey,)

    def __init__(self, machine: GroupMachine) -> None:
        self._machine = machine

    def replay(self, record: Record, producer: Producer | None = None) -> None: ...

    def without_members(self, group_id: str) -> None:
        """Make the group if it is not there: one that is known for its offsets alone. For their replay."""

    def loaded(self, now: Now) -> Outcome:
        return Outcome()

    def fire(self, timer: TimerKey, now: Now) -> Outcome:
        return Outcome()

    def image_changed(self, image: Image, delta: Delta, now: Now) -> Outcome:
        return Outcome()

    def resigned(self, error: ErrorCode) -> list[Answer]:
        return []
