"""What members of a group know of its offsets and generations, and what must therefore be true of them.

Pure: it is told what was asked for and what was answered, in the order of a counter of its own, and raises `Violation`
when two of these cannot both be true. `ownership.py` does the same for who has which partition.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.testing.sim.broker.model import Violation

NEVER = 1 << 60


class Steps:
    """Puts all that happens in one order."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


class Commit:
    """One offset that somebody wants to commit. Its note, which is unique, is its metadata."""

    __slots__ = ("done", "gone", "note", "offset", "refused", "sent")

    def __init__(self, note: str, offset: int, sent: int) -> None:
        self.note = note
        self.offset = offset
        self.sent = sent
        self.done = NEVER  # acknowledged, or seen
        self.refused = False
        self.gone = False


class CommittedOffset:
    """Of one partition: a register. What is read must be what was written last, as far as anybody can tell."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._commits: dict[str, Commit] = {}

    def send(self, note: str, offset: int, step: int) -> Commit:
        commit = self._commits[note] = Commit(note, offset, step)
        return commit

    def read(self, asked: int, step: int, offset: int, note: str, *, settled: bool = False) -> None:
        """`settled`: no commit is on its way, so what is not there now will never be."""
        found = self._commits.get(note) if offset >= 0 else None
        if offset >= 0 and (found is None or found.offset != offset):
            raise Violation(f"{self._name}: nobody committed {offset} with {note!r}")
        if found is not None and (found.refused or found.gone):
            what = "was refused" if found.refused else "was lost or replaced long ago"
            raise Violation(f"{self._name}: the commit of {offset}, {note!r}, {what} and is there")
        written = NEVER if found is None else found.done
        for other in self._commits.values():
            if other.gone or other is found or other.done >= asked:
                continue
            if found is None or written < other.sent:
                raise Violation(f"{self._name}: {offset}, {note!r}, is there instead of {other.offset}, {other.note!r}")
        if found is not None:
            found.done = min(found.done, step)
        if settled:
            for other in self._commits.values():
                other.gone |= other is not found

    def power_lost(self, durable: int) -> None:
        """What was acknowledged after that step may be gone."""
        for commit in self._commits.values():
            if commit.done > durable:
                commit.done = NEVER


class Assignments(NamedTuple):
    """What a leader sent for a generation: the assignment of each member, by its name."""

    generation: int
    of: dict[str, bytes]


class Generations:
    """Of one classic group."""

    def __init__(self, name: str) -> None:
        self.count = 0
        self._name = name
        self._sent: list[Assignments] = []
        self._chosen: dict[int, tuple[Assignments, int]] = {}  # what a generation got, and since when that is known

    def assigning(self, assignments: Assignments) -> None:
        self._sent.append(assignments)

    def joined(self, generation: int, asked: int) -> None:
        """A member was let into this generation; also what it may do in it (heartbeats, commits) must be refused when
        there is a newer one."""
        newer = [number for number, (_, known) in self._chosen.items() if number > generation and known < asked]
        if newer:
            raise Violation(f"{self._name}: generation {generation} goes on, and there was {max(newer)} before")

    def synced(self, generation: int, member: str, assignment: bytes, step: int) -> None:
        chosen = self._chosen.get(generation)
        if chosen is None:
            for one in self._sent:
                if one.generation == generation and one.of.get(member) == assignment:
                    self._chosen[generation] = (one, step)
                    self.count += 1
                    return
            raise Violation(f"{self._name}: {member} got {assignment!r} in {generation}, which no leader sent it")
        if chosen[0].of.get(member) != assignment:
            raise Violation(
                f"{self._name}: {member} got {assignment!r} in {generation}, and others what goes with "
                f"{chosen[0].of.get(member)!r}"
            )

    def power_lost(self, durable: int) -> None:
        self._chosen = {number: chosen for number, chosen in self._chosen.items() if chosen[1] <= durable}
