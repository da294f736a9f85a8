"""Our side of an incremental fetch session with one broker (KIP-227): name only what has changed since the last fetch.

Pure. A session begins with a full request; the broker's answer gives it an id, and from then on epochs count the
requests. Whenever the two sides may differ (an answer was lost, the broker has forgotten us, a topic has another id) it
begins anew, which costs one full request. A broker that gives no session gets full requests for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

NO_ID: Final = 0
FIRST_EPOCH: Final = 0
NO_SESSION_EPOCH: Final = -1
_MAX_EPOCH: Final = 0x7FFFFFFF


class Want(NamedTuple):
    place: TopicPartition
    offset: int
    leader_epoch: int


class Turn(NamedTuple):
    """What one request says: the session, what to name, and what no longer belongs to it, each with its topic's id."""

    session_id: int
    epoch: int
    wants: Sequence[Want]
    forgotten: Sequence[tuple[TopicPartition, bytes]] = ()


class FetchSession:
    __slots__ = ("_epoch", "_id", "_ids", "_known")

    def __init__(self) -> None:
        self._id = NO_ID
        self._epoch = FIRST_EPOCH
        self._known: dict[TopicPartition, Want] = {}
        self._ids: dict[str, bytes] = {}

    @property
    def is_open(self) -> bool:
        return self._id != NO_ID

    def next(self, wants: Sequence[Want], ids: Mapping[str, bytes]) -> Turn:
        """The request for all of `wants`, whose topics have these ids. After it comes `answered` or `lost`."""
        if self._epoch != FIRST_EPOCH and any(self._ids.get(name, known) != known for name, known in ids.items()):
            self.lost()
        if self._epoch == FIRST_EPOCH:
            self._known = {want.place: want for want in wants}
            self._ids = dict(ids)
            return Turn(self._id, FIRST_EPOCH, wants)
        wanted = {want.place for want in wants}
        forgotten = [(place, self._ids[place.topic]) for place in self._known if place not in wanted]
        changed = [want for want in wants if self._known.get(want.place) != want]
        for place, _ in forgotten:
            del self._known[place]
        self._known.update((want.place, want) for want in changed)
        self._ids.update(ids)
        return Turn(self._id, self._epoch, changed, forgotten)

    def answered(self, code: ErrorCode, session_id: int) -> None:
        """What the broker made of it."""
        if code is ErrorCode.NONE:
            self._epoch = FIRST_EPOCH if session_id == NO_ID else self._epoch % _MAX_EPOCH + 1
            self._id = session_id
        else:
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_ID
            self.lost()

    def lost(self) -> None:
        """Nobody knows what the broker knows. The next request ends what there is under our id and begins anew."""
        self._epoch = FIRST_EPOCH
