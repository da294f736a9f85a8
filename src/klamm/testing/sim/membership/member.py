"""What members of both protocols have in common: they read what is theirs, commit how far they got, and come and go.

A member commits only what it has processed, or less, on purpose. Whatever it is told, it goes on as a careful client
would; what no answer can excuse is a `Violation`.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from klamm import wire
from klamm.core.env import FileRange
from klamm.core.errors import ErrorCode
from klamm.testing.sim.broker import reading
from klamm.testing.sim.broker.client import Lost
from klamm.testing.sim.broker.lab import TRY_AGAIN, Lab, Link, error_code, pause
from klamm.testing.sim.broker.model import Violation
from klamm.testing.sim.membership.group import Group
from klamm.testing.sim.membership.offsets import commit_request, committed, fetch_request
from klamm.wire.messages.k01_fetch import FetchRequest
from klamm.wire.messages.k10_find_coordinator import FindCoordinatorRequest

AGAIN: Final = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""Errors of a coordinator that is not there now. They do not say whether anything was written."""
OUT: Final = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND))
"""The last one is for commits to a group that a power loss has taken."""
STALE: Final = frozenset((ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH))
BEAT_S: Final = 0.3
PATIENCE_S: Final = 60.0
"""How long a group may take, without trouble, to get where it should. More than every time-out together."""
_CALL_S: Final = 3.0
_FETCH_VERSION: Final = 11
_CATCH_UP: Final = 30  # fetches in a row when nothing disturbs any more


class Out(Exception):
    """The member has to begin anew."""


class Gone(Exception):
    """The member is dead, and does not come back."""


class GroupMember:
    """`position`: its generation or epoch once it has all that it was told to have, else None."""

    def __init__(self, lab: Lab, group: Group, name: str) -> None:
        self.name = name
        self.owned: set[int] = set()
        self.position: int | None = None
        self.calm = False  # from now on it stays
        self.doomed = False  # it dies without a word as soon as it has something to leave behind
        self.member_id = ""
        self._lab = lab
        self._group = group
        self._rng = lab.random(name)
        self._link = Link(lab, name)
        self._instance_id = f"{name}-instance" if self._rng.random() < 0.3 else None
        self._offsets: dict[int, int] = {}  # where it reads on, of those partitions that it has begun with
        self._notes = 0
        group.members.append(self)

    async def run(self) -> None:
        while not self._is_done():
            try:
                await self._find()
                await self.stay()
            except Gone:
                self._link.drop()
                return
            except Out as out:
                self._lab.note(self.name, "out", str(out))
            except Lost as lost:
                self.lost(lost)
                await pause(self._rng, 0.2)
        await self.leave_at_last()

    def lost(self, lost: Lost) -> None:
        self._lab.note(self.name, "lost", str(lost))
        self._link.drop()

    # ---- what the protocols differ in

    async def stay(self) -> None:
        """Be a member until it ends in one way or another: returns, `Out` or `Lost`."""
        raise NotImplementedError

    async def leave_at_last(self) -> None:
        raise NotImplementedError

    def epoch(self) -> int:
        raise NotImplementedError

    def granted(self, asked: int) -> None:
        """What it asked for as a member, in that step, was granted."""
        raise NotImplementedError

    # ---- reading and committing

    async def work(self) -> None:
        """A little of it."""
        await pause(self._rng, 0.15)
        if not self.owned:
            return
        partition = self._rng.choice(sorted(self.owned))
        if partition not in self._offsets:
            await self._fetch_committed(partition)
            return
        for _ in range(_CATCH_UP if self.calm else 1):
            if not await self._process(partition):
                break
        if self._rng.random() < 0.4:
            await self._commit(partition)

    def keep_only(self, partitions: set[int]) -> None:
        """What it does not own any more it begins with anew if it gets it back."""
        self.owned = partitions
        self._offsets = {partition: offset for partition, offset in self._offsets.items() if partition in partitions}

    async def _fetch_committed(self, partition: int) -> None:
        asked = self._group.steps.next()
        request, version = fetch_request(self._group, [partition], self.member_id, self.epoch())
        code, found = committed(await self.call(request, version))
        if code in AGAIN | STALE | OUT:
            return
        if code:
            raise Violation(f"{self.name}: no committed offset: {code.name}")
        offset, note = found[partition]
        self._group.offsets[partition].read(asked, self._group.steps.next(), offset, note)
        self._offsets[partition] = max(offset, 0)

    async def _process(self, partition: int) -> bool:
        """Whether there was something."""
        model, offset = self._group.topic.partitions[partition], self._offsets[partition]
        max_bytes = 1 << 20 if self.calm else self._rng.choice((1, 3000, 1 << 20))
        topics = reading.fetch_topics(_FETCH_VERSION, [(model, offset)], max_bytes)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
        data = (await self.call(request, _FETCH_VERSION)).responses[0].partitions[0]
        code = error_code(data.error_code)
        if code in TRY_AGAIN:
            return False
        if code:
            raise Violation(f"{self.name}: {model} at {offset}: {code.name}")
        assert not isinstance(data.records, FileRange)
        entries = reading.read_entries(model, data.records, offset, data.high_watermark)
        self._group.processed(model, offset, len(entries))
        if partition in self._offsets:
            self._offsets[partition] = offset + len(entries)
        return bool(entries)

    async def _commit(self, partition: int) -> None:
        group = self._group
        await self._link.client()  # from here on it goes out at once: what waits for a broker is not on its way
        if partition not in self._offsets:
            return
        if self._rng.random() < 0.05:
            self._offsets[partition] = self._rng.randint(0, self._offsets[partition])  # it wants to read some again
        self._notes += 1
        offset, note = self._offsets[partition], f"{self.name}/{self._notes}"
        group.asked = True
        commit = group.offsets[partition].send(note, offset, group.steps.next())
        request, version = commit_request(
            group, partition, commit, (self.member_id, self._instance_id, self.epoch()), self._rng
        )
        answer = await self.call(request, version)
        code = error_code(answer.topics[0].partitions[0].error_code)
        self._lab.note(self.name, f"commit {code.name}", f"{partition}: {offset}")
        if not code:
            commit.done = min(commit.done, group.steps.next())
            group.commits += 1
            self.granted(commit.sent)
        elif code in STALE | OUT:
            commit.refused = True
        elif code not in AGAIN:
            raise Violation(f"{self.name}: a commit was refused with {code.name}")

    # ---- talking

    async def call(self, request: wire.Request, version: int, timeout_s: float = _CALL_S) -> Any:
        was_calm = self.calm
        try:
            return await (await self._link.client()).call(request, version, timeout_s)
        except Lost as lost:
            if was_calm and str(lost) == "timeout":
                raise Violation(f"{self.name}: nobody answers {type(request).__name__}") from None
            raise

    async def _find(self) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group.id])
        while True:
            code = error_code((await self.call(request, 4)).coordinators[0].error_code)
            if not code:
                return
            if code not in AGAIN:
                raise Violation(f"{self.name}: no coordinator: {code.name}")
            await pause(self._rng, 0.2)

    # ---- coming and going

    def calm_down(self) -> None:
        """Stay from now on; over a new connection, since the old one may be one into nowhere."""
        self.calm = True
        self._link.drop()

    async def be_silent(self) -> None:
        """And then go on as if nothing had been; the others may have by now what it takes for its own."""
        self._lab.note(self.name, "is silent")
        await asyncio.sleep(self._rng.uniform(0.5, 5.0))
        if self._offsets:
            await self._commit(self._rng.choice(sorted(self._offsets)))

    def perhaps_die(self) -> None:
        if self.doomed and self._offsets:
            self._lab.note(self.name, "is dead")
            raise Gone

    async def haunt(self) -> None:
        """Commit as the one that it was, once more. Whether that may be is for `granted` to say."""
        if not self._offsets:
            return  # it gave up all it had before it could die
        try:
            await self._commit(self._rng.choice(sorted(self._offsets)))
        except Lost as lost:
            self.lost(lost)

    def wants(self, probability: float) -> bool:
        return not self.calm and not self._lab.is_over() and self._rng.random() < probability

    def _is_done(self) -> bool:
        return self._lab.is_over() and self._group.is_drained

    @staticmethod
    def time() -> float:
        return asyncio.get_running_loop().time()
