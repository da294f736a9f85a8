"""A member of a classic group: what it told us when it joined, what it was assigned, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from klamm.wire.codec import decode
from klamm.wire.errors import ProtocolError
from klamm.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from klamm.wire.messages.coordinator import MemberMetadata
from klamm.wire.messages.k11_join_group import JoinGroupResponseMember
from klamm.wire.messages.k15_describe_groups import DescribedGroupMember

if TYPE_CHECKING:
    from klamm.coordinator.machine import Reply

MAX_REASON = 255
"""Characters of a client's reason that are logged."""


def reason_text(reason: str | None) -> str:
    """A client's reason (KIP-800), for the log. It may be of any length."""
    return f"reason: {reason[:MAX_REASON]}" if reason else "no reason given"


class Joining(NamedTuple):
    """A JoinGroup, as far as the coordinator needs it."""

    group_id: str
    member_id: str
    """Empty: it has none yet."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: dict[str, bytes]
    """Name and metadata, in the order of the member's preference."""
    version: int
    reason: str | None = None

    @property
    def why(self) -> str:
        return reason_text(self.reason)


class Member:
    """`protocols` and the times are of its last JoinGroup; after a restart only the protocol in use is known."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client: tuple[str, str],
        times_ms: tuple[int, int],
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        """`client`: id and host. `times_ms`: session and rebalance."""
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id, self.client_host = client
        self.session_timeout_ms, self.rebalance_timeout_ms = times_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join: Reply | None = None
        """Who waits for the rebalance."""
        self.sync: Reply | None = None
        """Who waits for the leader's assignment."""
        self.is_new = False
        """It has not been in a generation yet, so it sends no heartbeats."""

    @classmethod
    def joins(cls, member_id: str, joining: Joining) -> Member:
        member = cls(
            member_id,
            joining.instance_id,
            (joining.client_id, joining.client_host),
            (joining.session_timeout_ms, joining.rebalance_timeout_ms),
            joining.protocols,
        )
        member.is_new = True
        return member

    @classmethod
    def load(cls, saved: MemberMetadata, protocol: str) -> Member:
        rebalance_ms = saved.session_timeout if saved.rebalance_timeout == -1 else saved.rebalance_timeout
        return cls(
            saved.member_id,
            saved.group_instance_id,
            (saved.client_id, saved.client_host),
            (saved.session_timeout, rebalance_ms),
            {protocol: saved.subscription},
            saved.assignment,
        )

    def update(self, joining: Joining) -> None:
        self.protocols = joining.protocols
        self.session_timeout_ms = joining.session_timeout_ms
        self.rebalance_timeout_ms = joining.rebalance_timeout_ms

    def heir(self, member_id: str) -> Member:
        """The same static member under a new id, as after its restart."""
        return Member(
            member_id,
            self.instance_id,
            (self.client_id, self.client_host),
            (self.session_timeout_ms, self.rebalance_timeout_ms),
            self.protocols,
            self.assignment,
        )

    def offers(self, protocols: dict[str, bytes]) -> bool:
        """The very same protocols, in the same order."""
        return self.protocols == protocols and list(self.protocols) == list(protocols)

    def vote(self, candidates: Iterable[str]) -> str:
        return next(name for name in self.protocols if name in candidates)

    @property
    def proves_alive(self) -> bool:
        """It waits for us, so its silence means nothing. A new one may be gone without our knowing."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def subscribed_topics(self, protocol: str) -> list[str] | None:
        """What a consumer's metadata says; None if it is not understood. All versions begin like the first."""
        try:
            return decode(ConsumerProtocolSubscription, self.protocols[protocol], 0, 2, allow_trailing=True).topics
        except ProtocolError:
            return None

    def saved(self, protocol: str, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.protocols[protocol],
            assignment=assignment,
        )

    def for_leader(self, protocol: str) -> JoinGroupResponseMember:
        return JoinGroupResponseMember(
            member_id=self.member_id, group_instance_id=self.instance_id, metadata=self.protocols[protocol]
        )

    def describe(self, protocol: str | None) -> DescribedGroupMember:
        """Without a protocol in use there is no metadata to show."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol is None else self.protocols[protocol],
            member_assignment=self.assignment,
        )
