"""Incremental fetch sessions (KIP-227): what a fetcher wants is remembered, so that its requests name only what
changed and its answers carry only what changed.

A pure state machine: requests and results in, decisions out; the time is an argument, ids come from the given random
source. The cache is bounded in sessions and in partitions; a fetcher that gets no session simply sends full fetches.
This module must never read a log or look at the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from klamm.core.errors import ErrorCode
from klamm.replica.fetch import Fetched, Wanted

NO_SESSION = 0
INITIAL_EPOCH = 0  # asks for a session
FINAL_EPOCH = -1  # wants none, and ends the one it names
MAX_EPOCH = 2**31 - 1

DEFAULT_SLOTS = 1000
EVICTION_MS = 120_000  # as in Kafka: idle this long means gone; alive this long means it may be displaced
MAX_PARTITIONS = 500_000  # in all sessions together, about 100 MB; Kafka has no such bound

Key: TypeAlias = tuple[str | bytes, int]
"""A partition within a session: topic name (fetch below v13) or topic id, and index."""


def next_epoch(epoch: int) -> int:
    """Epochs wrap to 1: 0 and -1 have meanings of their own."""
    return 1 if epoch == MAX_EPOCH else epoch + 1


class Session:
    """One fetcher's partitions, in the order in which they get their share of the next answer."""

    __slots__ = ("by_id", "created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged", "size")

    def __init__(self, id: int, by_id: bool, privileged: bool, now_ms: int) -> None:  # noqa: A002 - the field's name
        self.id = id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.by_id = by_id
        self.privileged = privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: dict[Key, Wanted] = {}
        self.size = 0  # partitions counted in the cache's total, as of the last touch

    def update(self, wanted: Sequence[Wanted], forgotten: Sequence[Key]) -> None:
        partitions = self.partitions
        for new in wanted:
            key = new.key
            old = partitions.get(key)
            if old is not None:
                new.sent_high_watermark = old.sent_high_watermark
                new.sent_log_start = old.sent_log_start
            partitions[key] = new  # an update keeps its place in the order
        for key in forgotten:
            partitions.pop(key, None)

    def changed(self, results: Sequence[Fetched]) -> list[Fetched]:
        """The results that the fetcher does not know yet. Partitions with data go to the end of the order, so that
        a small max_bytes starves nobody."""
        news = []
        partitions = self.partitions
        rotate = len(partitions) > 1
        for result in results:
            if not _is_news(result.wanted, result):
                continue
            news.append(result)
            if rotate and result.records is not None:
                key = result.wanted.key
                # The partition may have been forgotten, or replaced, while the fetch was held.
                if partitions.get(key) is result.wanted:
                    del partitions[key]
                    partitions[key] = result.wanted
        return news


def _is_news(wanted: Wanted, result: Fetched) -> bool:
    """Whether an incremental answer must carry this; remembers what it then says."""
    news = (
        result.records is not None
        or result.high_watermark != wanted.sent_high_watermark
        or result.log_start_offset != wanted.sent_log_start
        or result.diverging is not None
        or result.preferred_replica >= 0
    )
    if result.error:
        wanted.sent_high_watermark = -1  # so that the first answer without the error is news again
        return True
    wanted.sent_high_watermark = result.high_watermark
    wanted.sent_log_start = result.log_start_offset
    return news


class Turn:
    """One request and its answer within (or without) a session."""

    __slots__ = ("_sessions", "by_id", "creates", "epoch", "privileged", "session", "wanted")

    def __init__(
        self,
        sessions: FetchSessions,
        wanted: Sequence[Wanted],
        *,
        session: Session | None = None,
        creates: bool = False,
        by_id: bool = False,
        privileged: bool = False,
    ) -> None:
        self._sessions = sessions
        self.wanted = wanted
        self.session = session
        self.epoch = 0 if session is None else session.epoch
        self.creates = creates
        self.by_id = by_id
        self.privileged = privileged

    def answer(self, results: Sequence[Fetched], now_ms: int) -> tuple[ErrorCode, int, Sequence[Fetched]]:
        """(error, session id, results to send) for the results of all wanted partitions."""
        session = self.session
        if session is not None:
            if session.epoch != self.epoch:  # a later request of this session has overtaken a held one
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION, ()
            return ErrorCode.NONE, session.id, session.changed(results)
        if self.creates:
            created = self._sessions.create(self.wanted, self.by_id, self.privileged, now_ms)
            if created is not None:
                for result in results:
                    _is_news(result.wanted, result)
                return ErrorCode.NONE, created.id, results
        return ErrorCode.NONE, NO_SESSION, results


class FetchSessions:
    """The cache of sessions. `random_id` gives integers from 1 to 2**31 - 1."""

    __slots__ = ("_by_id", "_max_partitions", "_partitions", "_random_id", "_slots", "evictions")

    def __init__(
        self, random_id: Callable[[], int], slots: int = DEFAULT_SLOTS, max_partitions: int = MAX_PARTITIONS
    ) -> None:
        self._random_id = random_id
        self._slots = slots
        self._max_partitions = max_partitions
        self._by_id: dict[int, Session] = {}  # in the order of last use
        self._partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def partition_count(self) -> int:
        return self._partitions

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: Sequence[Wanted],
        forgotten: Sequence[Key],
        *,
        by_id: bool,
        privileged: bool = False,
        now_ms: int,
    ) -> Turn | ErrorCode:
        """What a request means. `privileged` marks a follower: its sessions are not displaced by consumers'."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._remove(session_id)
            return Turn(self, wanted, creates=epoch == INITIAL_EPOCH, by_id=by_id, privileged=privileged)
        session = self._by_id.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if wanted or forgotten:
            session.update(wanted, forgotten)
            if not session.partitions:  # nothing left to remember: the session ends, the request is a plain one
                self._remove(session_id)
                return Turn(self, wanted)
            self._partitions += len(session.partitions) - session.size
            session.size = len(session.partitions)
            if self._partitions > self._max_partitions:
                self._remove(session_id)
                return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        self._touch(session, now_ms)
        session.epoch = next_epoch(epoch)
        return Turn(self, tuple(session.partitions.values()), session=session)

    def create(self, wanted: Sequence[Wanted], by_id: bool, privileged: bool, now_ms: int) -> Session | None:
        """A new session for these partitions, or None where there is no room for it."""
        if self._partitions + len(wanted) > self._max_partitions:
            return None
        if len(self._by_id) >= self._slots and not self._evict_for(len(wanted), privileged, now_ms):
            return None
        session_id = self._random_id()
        while session_id in self._by_id:
            session_id = self._random_id()
        session = Session(session_id, by_id, privileged, now_ms)
        session.partitions = {w.key: w for w in wanted}
        session.size = len(session.partitions)
        self._partitions += session.size
        self._by_id[session_id] = session
        return session

    def _evict_for(self, size: int, privileged: bool, now_ms: int) -> bool:
        """Make room, if somebody is worth less: first whoever is idle, then the smallest that had its time."""
        oldest = next(iter(self._by_id.values()), None)
        if oldest is None:
            return False
        victim: Session | None = oldest
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            victim = min(
                (s for s in self._by_id.values() if _may_displace(s, privileged, now_ms)),
                key=lambda s: (s.privileged, s.size, s.id),
                default=None,
            )
            if victim is None or (privileged, size) < (victim.privileged, victim.size):
                return False
        assert victim is not None
        self._remove(victim.id)
        self.evictions += 1
        return True

    def _touch(self, session: Session, now_ms: int) -> None:
        session.last_used_ms = now_ms
        if len(self._by_id) > 1:
            del self._by_id[session.id]
            self._by_id[session.id] = session

    def _remove(self, session_id: int) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            self._partitions -= session.size


def _may_displace(session: Session, privileged: bool, now_ms: int) -> bool:
    """A follower's new session displaces any consumer's; otherwise a session is safe until it is EVICTION_MS old."""
    return (privileged and not session.privileged) or now_ms - session.created_ms > EVICTION_MS
