"""What a group is to others than its own protocol: the offsets, the listing, its deletion. Both kinds implement it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from klamm.core.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.coordinator.machine import Record
    from klamm.wire.schema import Struct

PartitionCheck: TypeAlias = Callable[[str, bytes, int], ErrorCode]
"""Whether a member may commit for a partition: topic, topic id, partition."""

CONSUMER_PROTOCOL_TYPE = "consumer"


class Group(Protocol):
    group_id: str

    @property
    def type(self) -> str:
        """As ListGroups has it: `classic` or `consumer`."""

    @property
    def protocol_type(self) -> str:
        """`consumer`, or whatever its members say; empty for a group that never had any (offsets alone)."""

    @property
    def state(self) -> str:
        """Kafka's name for it: Empty, PreparingRebalance, Stable, Assigning..."""

    @property
    def members(self) -> Mapping[str, object]:
        """By their ids."""

    @property
    def is_empty(self) -> bool:
        """It has no members."""

    def may_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool = False, version: int = -1
    ) -> ErrorCode | PartitionCheck:
        """Whether offsets may be committed: NONE or the error for all of them, or a check to be made for each. `epoch`
        is a generation or a member epoch, -1 if none is given; `version` that of OffsetCommit."""

    def may_fetch_offsets(self, member_id: str | None, epoch: int) -> ErrorCode: ...

    def may_delete(self) -> ErrorCode:
        """Whether it may be deleted as a whole."""

    def may_delete_offsets(self) -> ErrorCode:
        """Whether single offsets may be deleted; those of subscribed topics may not."""

    def subscribes(self, topic: str) -> bool: ...

    def retention_start_ms(self, committed_ms: int) -> int | None:
        """From which moment on the time counts after which an offset that was committed at this moment is dropped, if
        nobody subscribes to its topic; None: not as things are."""

    def tombstones(self) -> list[Record]:
        """What deletes it, but for its offsets."""

    def describe(self) -> Struct:
        """A `DescribedGroup` of DescribeGroups (classic) or of ConsumerGroupDescribe (consumer)."""
