"""Partitions that come and go: the application's callbacks, and what is committed before something is given up.

What goes is held first: the application gets nothing of it any more. When it comes back, what it was given is done, and
is committed if that is automatic. Then the callback runs, which may commit itself; only then is it given up. What comes
is given at once and held until its callback runs, which may ask where it begins, and seek in it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from klamm.client.errors import ClientError
from klamm.client.group.turns import Turns
from klamm.client.membership import Offset
from klamm.client.subscription import Callback, Listener, PartitionState, Subscriptions
from klamm.core.ids import TopicPartition

log = logging.getLogger("klamm.client")


class Handover:
    """`commit` is None unless commits are automatic; `is_member` says whether the group still counts us in; `on_lost`
    hears at once of what is somebody else's."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        turns: Turns,
        wake: Callable[[], None],
        commit: Callable[[Mapping[TopicPartition, Offset]], Awaitable[None]] | None,
        is_member: Callable[[], bool],
        on_lost: Callable[[list[TopicPartition]], None] = lambda places: None,
    ) -> None:
        self._subscriptions = subscriptions
        self._turns = turns
        self._wake = wake
        self._commit = commit
        self._is_member = is_member
        self._on_lost = on_lost
        self._states: dict[TopicPartition, PartitionState] = {}
        self._listener = Listener()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What this member has by its group's word; the application may have unsubscribed meanwhile."""
        return frozenset(self._states)

    async def revoke(self, places: Iterable[TopicPartition]) -> None:
        """Give these up, as soon as the application is there. It does not wait for the commit: it can go on with what
        stays."""
        going = sorted(self.owned.intersection(places))
        if not going:
            return
        self._hold(going)
        done: dict[TopicPartition, Offset] = {}

        async def look() -> None:
            done.update(self._positions(going))

        await self._turns.ask(look)
        if self._is_member():
            await self._commit_positions(done)
        if self._listener.lost is None and self._listener.revoked is None:
            self._drop(going)
        else:
            await self._turns.ask(partial(self._tell_gone, going))

    async def lose(self, places: Iterable[TopicPartition]) -> None:
        """These are no longer ours: somebody else may read them by now. Nothing can be committed for them."""
        gone = sorted(self.owned.intersection(places))
        if not gone:
            return
        self._on_lost(gone)
        self._hold(gone)
        if self._listener.lost is None and self._listener.revoked is None:
            self._drop(gone)
        else:
            await self._turns.ask(partial(self._tell_lost, gone))

    async def adopt(self, places: Iterable[TopicPartition]) -> None:
        """All that is ours from now on. (What is to go has been revoked before.)"""
        if not self._subscriptions.is_subscribed:
            return  # the application has unsubscribed while this was on its way
        everything = sorted(places)
        coming = sorted(set(everything) - self.owned)
        listener = self._listener = self._subscriptions.listener
        self._subscriptions.given(everything, held=listener.assigned is not None)
        self._subscriptions.release(self.owned.intersection(everything))  # a revocation that was called off
        self._states = dict(self._subscriptions.partitions)
        self._wake()
        if listener.assigned is not None:
            await self._turns.ask(partial(self._tell_assigned, listener.assigned, coming))

    # In the application's turn.

    async def give_up(self, places: list[TopicPartition]) -> None:
        """The same at once, when the application itself ends its membership."""
        if self._is_member():
            await self._commit_positions(self._positions(places))
        await self._tell_gone(places)

    async def _tell_gone(self, places: list[TopicPartition]) -> None:
        if not self._is_member():  # it was thrown out while this waited
            await self._tell_lost(places)
        elif going := self._still(places):
            try:
                await _call(self._listener.revoked, going)
            finally:
                self._drop(going)

    def _still(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """Without those that went while this waited for its turn: each is told of once."""
        return [place for place in places if place in self._states]

    def _positions(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Of states that are kept here: an `unsubscribe` forgets them."""
        states = [(place, self._states[place]) for place in places if place in self._states]
        return {place: Offset(*at) for place, state in states if (at := state.position) is not None}

    async def _commit_positions(self, positions: Mapping[TopicPartition, Offset]) -> None:
        if self._commit is None or not positions:
            return
        try:
            await self._commit(positions)
        except ClientError as error:
            log.warning("Positions could not be committed before a rebalance; some records come again: %s", error)

    async def _tell_lost(self, places: list[TopicPartition]) -> None:
        listener = self._listener
        if gone := self._still(places):
            try:
                await _call(listener.lost or listener.revoked, gone)
            finally:
                self._drop(gone)

    async def _tell_assigned(self, callback: Callback, places: list[TopicPartition]) -> None:
        # Released first: the callback may ask for positions, which then have to be looked up. The application is in
        # here, so it gets no records before it is out again.
        self._subscriptions.release(places)
        self._wake()
        await _call(callback, places)

    def _hold(self, places: list[TopicPartition]) -> None:
        self._subscriptions.hold(places)
        self._wake()

    def _drop(self, places: list[TopicPartition]) -> None:
        for place in places:
            self._states.pop(place, None)
        if self._subscriptions.is_subscribed:  # else they are gone, or others were assigned by hand
            self._subscriptions.taken(places)
        self._wake()


async def _call(callback: Callback | None, places: list[TopicPartition]) -> None:
    if callback is not None:
        result = callback(list(places))
        if inspect.isawaitable(result):
            await result
