"""Who has which partition of a consumer group (KIP-848), by what its members were told.

A partition may have two owners only in the mind of a member that is out and does not know yet: one that may have been
removed by now, and whose next word the coordinator refuses. Everything else is a `Violation`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.membership.ledger import Steps


class Standing:
    """What a member can be sure of: how long it is in, whatever happens."""

    def __init__(self, name: str, session_s: float, rebalance_s: float) -> None:
        self.name = name
        self._session_s = session_s
        self._rebalance_s = rebalance_s
        self._heard = -math.inf  # when the last heartbeat was sent that was answered
        self._unanswered = math.inf  # when the first one since was sent, which may have been answered with a revocation
        self._owing = math.inf  # since when it is to give up partitions

    def asks(self, time: float) -> None:
        self._unanswered = min(self._unanswered, time)

    def is_in(self, sent: float, *, owes: bool) -> None:
        """A heartbeat of that time was answered."""
        self._heard = sent
        self._owing = min(self._owing, self._unanswered) if owes else math.inf
        self._unanswered = math.inf

    def is_out(self) -> None:
        self._heard = -math.inf
        self._unanswered = self._owing = math.inf

    def is_surely_in(self, time: float) -> bool:
        return time < self._heard + self._session_s and time < min(self._owing, self._unanswered) + self._rebalance_s


class Claim:
    __slots__ = ("asked", "told", "trusted")

    def __init__(self, asked: int, told: int) -> None:
        self.asked = asked
        self.told = told
        self.trusted = True  # until a power loss, before which nothing of it may have been flushed


class Ownership:
    """Of one group: the claims of its members on each partition."""

    def __init__(self, name: str, steps: Steps) -> None:
        self._name = name
        self._steps = steps
        self._claims: dict[int, dict[Standing, Claim]] = {}

    def given(self, member: Standing, partitions: Iterable[int], asked: int, time: float) -> None:
        """The member was told that these are its own, in answer to what it asked in that step."""
        told = self._steps.next()
        for partition in partitions:
            claims = self._claims.setdefault(partition, {})
            mine = claims.get(member)
            if mine is not None and mine.trusted:
                continue
            for other, claim in claims.items():
                if other is not member and claim.trusted and other.is_surely_in(time):
                    raise Violation(
                        f"{self._name}: partition {partition} was given to {member.name}, and {other.name} has it"
                    )
            claims[member] = Claim(asked, told)

    def gave_up(self, member: Standing, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._claims.get(partition, {}).pop(member, None)

    def is_out(self, member: Standing) -> None:
        for claims in self._claims.values():
            claims.pop(member, None)

    def may_go_on(self, member: Standing, asked: int) -> None:
        """What the member asked in that step was granted: it is no zombie, so nobody else has what it has."""
        for partition, claims in self._claims.items():
            mine = claims.get(member)
            if mine is None or not mine.trusted:
                continue
            for other, claim in claims.items():
                if claim.trusted and claim.asked > mine.told and claim.told < asked:
                    raise Violation(
                        f"{self._name}: {member.name} may go on with partition {partition}, which {other.name} has"
                    )

    def power_lost(self) -> None:
        for claims in self._claims.values():
            for claim in claims.values():
                claim.trusted = False
