"""One member of a group of the consumer protocol (KIP-848): what its heartbeats say, and what the answers mean. Pure.

There are no rounds: the coordinator gives each member a target, the member gets there (it gives up first, and says so,
then takes), and meanwhile all the others read on. A heartbeat says only what has changed since the last one that was
answered; after one that was not, everything, because nobody knows what arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from klamm.client.errors import BrokerSaid, error_code
from klamm.client.group.verdict import PASSING, Verdict, refusal
from klamm.core.errors import ErrorCode
from klamm.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN: Final = 0
LEAVE: Final = -1
LEAVE_STATIC: Final = -2
"""A static member goes, and comes back under the same instance id."""

CLIENT_NAMES_ITSELF: Final = 1
"""From this version on member ids are made by clients, and there are regular expressions."""

Ids: TypeAlias = frozenset[tuple[bytes, int]]
"""Partitions by topic id."""


class Terms(NamedTuple):
    group_id: str
    instance_id: str | None
    rebalance_timeout_ms: int
    rack: str | None
    assignor: str | None


class Wish(NamedTuple):
    """What the application subscribes to."""

    topics: frozenset[str]
    regex: str | None = None


class ConsumerMember:
    def __init__(self, terms: Terms, member_id: str, first_interval_ms: int) -> None:
        self.terms = terms
        self.member_id = member_id
        self.epoch = JOIN
        self.target: Ids | None = None
        """What the coordinator wants this member to have; None as long as it has not said."""
        self.owned: Ids = frozenset()
        """What the member has, as it says to the coordinator: set when giving up or taking is done."""
        self.interval_ms = first_interval_ms
        self.may_leave = False
        """Whether the coordinator may know of this member: a heartbeat may have arrived without our knowing."""
        self._has_reached = False
        self._told_wish: Wish | None = None
        self._told_owned: tuple[Ids, int] | None = None
        self._turn = 0  # goes up with every target that is reached, also where it changes nothing: it is acknowledged

    @property
    def is_in(self) -> bool:
        return self.epoch > JOIN

    def heartbeat(self, wish: Wish, version: int) -> ConsumerGroupHeartbeatRequest:
        terms = self.terms
        joins = self.epoch == JOIN
        first = version < CLIENT_NAMES_ITSELF and joins
        message = ConsumerGroupHeartbeatRequest(
            group_id=terms.group_id, member_id="" if first else self.member_id, member_epoch=self.epoch
        )
        message.instance_id = terms.instance_id
        if joins or self._told_wish is None:
            message.rebalance_timeout_ms = terms.rebalance_timeout_ms
            message.rack_id = terms.rack
            message.server_assignor = terms.assignor
        if joins or self._told_wish != wish:
            message.subscribed_topic_names = sorted(wish.topics)
            before = self._told_wish and self._told_wish.regex
            if version >= CLIENT_NAMES_ITSELF and (wish.regex or before or not joins):
                message.subscribed_topic_regex = wish.regex or ""
        if joins:
            message.topic_partitions = []
        elif self._told_owned != (self.owned, self._turn):
            message.topic_partitions = _by_topic(self.owned)
        self._told_wish = wish
        self._told_owned = self.owned, self._turn
        self.may_leave = True
        return message

    def leave(self) -> ConsumerGroupHeartbeatRequest:
        epoch = LEAVE if self.terms.instance_id is None else LEAVE_STATIC
        return ConsumerGroupHeartbeatRequest(
            group_id=self.terms.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.terms.instance_id,
        )

    def answered(self, asked: ConsumerGroupHeartbeatRequest, answer: ConsumerGroupHeartbeatResponse) -> Verdict:
        """FINE: `epoch`, `interval_ms` and maybe `target` are new. Raises what cannot be helped."""
        code = error_code(answer.error_code)
        if asked.member_epoch != self.epoch:
            return Verdict.FINE  # it left, or joined anew, before this came
        if code is ErrorCode.NONE:
            self.member_id = answer.member_id or self.member_id
            self.epoch = answer.member_epoch
            self.interval_ms = answer.heartbeat_interval_ms
            if answer.assignment is not None:
                self.target = _ids(answer.assignment.topic_partitions)
            return Verdict.FINE
        self.unanswered()
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.reset()
            return Verdict.OUT
        verdict = PASSING.get(code)
        if verdict is None:
            raise self._refusal(code, answer.error_message)
        return verdict

    def _refusal(self, code: ErrorCode, message: str | None) -> BrokerSaid:
        return refusal(code, self.terms.group_id, message)

    def unanswered(self) -> None:
        """The last heartbeat may have arrived or not: the next one says everything."""
        self._told_wish = self._told_owned = None

    def reached(self, owned: Ids) -> None:
        """The member has this now, and the next heartbeat says so."""
        self.owned = owned
        self._has_reached = True
        self._turn += 1

    def is_news(self, places: Ids) -> bool:
        """Whether having these would change anything. The first time it does, also if there are none."""
        return places != self.owned or not self._has_reached

    @property
    def is_on_its_way(self) -> bool:
        return self.is_in and self.target is not None and self.is_news(self.target)

    @property
    def has_news(self) -> bool:
        """Whether there is something that the coordinator waits for."""
        return self.is_in and self._told_owned is not None and self._told_owned != (self.owned, self._turn)

    def reset(self) -> None:
        """Out of the group, and with nothing. The name stays."""
        self.epoch = JOIN
        self.target = None
        self.owned = frozenset()
        self.may_leave = self._has_reached = False
        self.unanswered()


def _by_topic(places: Ids) -> list[TopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]


def _ids(topics: Iterable[TopicPartitions]) -> Ids:
    return frozenset((bytes(topic.topic_id), partition) for topic in topics for partition in topic.partitions)


def resolve(target: Ids, names: Mapping[bytes, str]) -> tuple[Ids, set[bytes]]:
    """The part of a target whose topics have names here, and the topic ids that have none."""
    unknown = {topic_id for topic_id, _ in target if topic_id not in names}
    return frozenset(place for place in target if place[0] not in unknown), unknown
