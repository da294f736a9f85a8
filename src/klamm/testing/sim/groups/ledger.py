"""What the members of a group were told, and what may never be: two assignments of one generation, a partition that two
members have in it, a committed offset that is lost, or taken back by a member of the past."""

from __future__ import annotations

from typing import NamedTuple

from klamm.testing.sim.broker.model import Violation


class Assignment(NamedTuple):
    """As a leader writes it, for one member. The tag is new with every attempt to assign."""

    tag: int
    partitions: tuple[int, ...]

    def encode(self) -> bytes:
        return f"{self.tag}:{','.join(map(str, self.partitions))}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Assignment | None:
        """None for one whom the leader did not know of."""
        if not data:
            return None
        tag, _, partitions = data.decode().partition(":")
        return cls(int(tag), tuple(int(p) for p in partitions.split(",") if p))


class _Offset:
    __slots__ = ("acknowledged", "attempted")

    def __init__(self) -> None:
        self.acknowledged = -1
        self.attempted = -1


class Ledger:
    def __init__(self, partitions: int) -> None:
        self.generations = 0
        """How many were assigned."""
        self.commits = 0
        self._tags: dict[int, int] = {}
        self._owners: dict[tuple[int, int], str] = {}
        self._offsets = [_Offset() for _ in range(partitions)]

    def assigned(self, generation: int, member: str, assignment: Assignment) -> None:
        """`member` by its member id, or by its instance id, under which it lives on."""
        if generation not in self._tags:
            self._tags[generation] = assignment.tag
            self.generations += 1
        if self._tags[generation] != assignment.tag:
            raise Violation(f"generation {generation} was assigned twice")
        for partition in assignment.partitions:
            owner = self._owners.setdefault((generation, partition), member)
            if owner != member:
                raise Violation(f"{owner} and {member} both have partition {partition} in generation {generation}")

    def commits_next(self, partition: int, offset: int) -> None:
        """It is sent; nobody knows yet."""
        one = self._offsets[partition]
        one.attempted = max(one.attempted, offset)

    def committed(self, partition: int, offset: int) -> None:
        self.commits += 1
        one = self._offsets[partition]
        one.acknowledged = max(one.acknowledged, offset)

    def acknowledged(self, partition: int) -> int:
        return self._offsets[partition].acknowledged

    def found(self, partition: int, offset: int, at_least: int) -> None:
        """Read, by a request that was sent when `at_least` was acknowledged."""
        if not at_least <= offset <= self._offsets[partition].attempted:
            raise Violation(
                f"partition {partition}: committed is {offset}, acknowledged was {at_least}, "
                f"and {self._offsets[partition].attempted} is the highest that anybody tried"
            )
