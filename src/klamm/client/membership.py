"""What a consumer asks of its group: an interface, which `klamm.client.group` fills.

Heartbeats and the talk with the coordinator go on in the background. But partitions change hands, callbacks run and
positions are committed automatically only while the application waits in the consumer for records: what it was given
before counts as processed then, and nothing is taken from under its hands. So a member that has such work sets
`wants_turn` and calls the `wake` that it was made with; the consumer then awaits `turn` before it gives out records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from klamm.client.errors import ClientError
from klamm.core.ids import TopicPartition


class Offset(NamedTuple):
    """A committed offset: that of the next record to read, the leader epoch of the one before it, and a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """What a transactional producer needs to commit offsets for this member (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Membership(Protocol):
    """Made by `klamm.client.group.member_of(cluster, subscriptions, wake)` once the consumer has started, if there is a
    group.id. Which protocol it speaks, and whether it has joined yet, is its own business."""

    failure: ClientError | None
    """Why there will be no more records, if so; raised to whoever asks for some."""

    @property
    def wants_turn(self) -> bool:
        """Something waits for the application to come back."""

    async def turn(self) -> None:
        """Rebalance with callbacks, automatic commit: whatever was waiting. Called by one task at a time. Waits for
        brokers no longer than it must: fetching goes on meanwhile."""

    def changed(self) -> None:
        """The subscription is another one now (also none: then leave, and give back what was assigned), or partitions
        were assigned by hand."""

    async def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Offset | None]:
        """What the group has committed; retried within default.api.timeout.ms."""

    async def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit, and wait for the answer."""

    def commit_soon(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit without waiting; what fails is logged, and a later commit makes good for it."""

    def metadata(self) -> GroupMetadata: ...

    async def close(self, timeout_ms: int | None = None, *, commit: bool = True) -> None:
        """Commit if that is automatic (and wanted), run the callbacks for what is given up, leave. Brokers are waited
        for no longer than `timeout_ms`."""
