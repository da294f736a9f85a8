"""What members of both protocols have in common: tasks in the background, automatic commits, and a watch over the
application, which must come for records now and then.

`_main` is a loop around `_belong`, which a protocol fills: it joins, stays a member, and does not end by itself. It is
cancelled when the application no longer wants to be a member, or does not come any more. What a member is and has
survives that in the protocol's pure state and in `handover`, so that starting over goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from klamm.client.backoff import Backoff
from klamm.client.cluster import Cluster
from klamm.client.coordinators import Coordinator, Kind
from klamm.client.errors import ClientError, CommitFailed
from klamm.client.group.handover import Handover
from klamm.client.group.interest import Interest
from klamm.client.group.offsets import Offsets
from klamm.client.group.turns import Turns
from klamm.client.membership import GroupMetadata, Offset
from klamm.client.subscription import Subscriptions
from klamm.core.errors import ErrorCode
from klamm.core.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSE_TIMEOUT_MS: Final = 10_000
"""How long closing waits for a coordinator at most, unless it is told: for the last commits and for leaving together.
So does leaving for other reasons."""
LEAST_INTERVAL_S: Final = 0.01
"""What is done regularly is not done more often, whatever an option says."""
WATCH_STEPS: Final = 8
"""The application is looked for so many times in max.poll.interval.ms, and is asked for when half of them are over."""

log = logging.getLogger("klamm.client")


class GroupMember:
    """`klamm.client.membership.Membership`, but for what a protocol does."""

    def __init__(self, cluster: Cluster, subscriptions: Subscriptions, wake: Callable[[], None]) -> None:
        config = cluster.config
        self._cluster = cluster
        self._config = config
        self._subscriptions = subscriptions
        self._wake = wake
        self.failure: ClientError | None = None
        self.wants_turn = False  # no property: the consumer looks at it for every record
        self._turns = Turns(self._set_wants_turn)
        self._coordinator = Coordinator(cluster, Kind.GROUP, config.group_id, config.default_api_timeout_ms)
        self._offsets = Offsets(cluster, self._coordinator, self._commits_as, self._not_committed)
        self._interest = Interest(cluster, subscriptions)
        self._handover = Handover(
            subscriptions,
            self._turns,
            wake,
            self._commit_now if config.enable_auto_commit else None,
            self._is_member,
            self._offsets.lose,
        )
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, cluster.env.rng)
        self._news = asyncio.Event()
        """Something for `_belong` to look at."""
        self._absent = False
        """The application did not come for too long."""
        self._quits = False
        """It no longer wants what it has, whatever it wants next."""
        self._committed: dict[TopicPartition, Offset] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._belonging: asyncio.Task[None] | None = None
        self._quitting: asyncio.Task[None] | None = None
        self._closed = False
        self._close_by: float | None = None
        self._commits = config.enable_auto_commit
        """Positions, by itself."""

    # For a protocol to fill.

    async def _belong(self) -> None:
        raise NotImplementedError

    def _is_member(self) -> bool:
        raise NotImplementedError

    def metadata(self) -> GroupMetadata:
        raise NotImplementedError

    async def _say_goodbye(self, why: str) -> None:
        """Tell the coordinator, if it knows of us, and be nobody."""
        raise NotImplementedError

    def _subscription_changed(self) -> None:
        self._news.set()

    # What the consumer asks.

    def _set_wants_turn(self, wanted: bool) -> None:
        self.wants_turn = wanted
        if wanted:
            self._wake()

    async def turn(self) -> None:
        await self._turns.run()

    def changed(self) -> None:
        if self._closed:
            return
        self.failure = None
        self._start()
        if self._subscriptions.is_subscribed:
            self._subscription_changed()
        else:
            self._quits = True
            self._interrupt()

    async def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Offset | None]:
        return await self._offsets.committed(places)

    async def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        await self._offsets.commit(offsets, self._left_s())
        self._committed.update(offsets)

    def commit_soon(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self._offsets.commit_soon(offsets)
        self._committed.update(offsets)

    async def _commit_now(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        if self._commits:
            await self._offsets.commit(offsets, self._left_s())

    def _not_committed(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """So that the next automatic commit has them again."""
        for place in offsets:
            self._committed.pop(place, None)

    def _commits_as(self) -> GroupMetadata:
        """Whoever shares topics commits as a member only. Others, who chose their partitions, need no membership."""
        if self._is_member():
            return self.metadata()
        if self._subscriptions.is_subscribed or self._handover.owned:
            raise CommitFailed(ErrorCode.UNKNOWN_MEMBER_ID, self._config.group_id)
        return GroupMetadata(self._config.group_id)

    async def close(self, timeout_ms: int | None = None, *, commit: bool = True) -> None:
        self._closed = True
        self._commits = self._commits and commit
        limit_ms = CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms
        self._close_by = self._cluster.env.clock.monotonic() + limit_ms / 1000
        tasks = [task for task in (*self._tasks, self._belonging) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        try:
            if self._quitting is not None:
                await self._wait_for_quitting(self._quitting)
            await self._turns.settle(self._left_s())
            await self._settle_commits()
            await self._give_back("the consumer was closed")
        finally:
            await self._offsets.close()

    def _left_s(self) -> float | None:
        """For whatever closing still waits for; None while it is not closed."""
        if self._close_by is None:
            return None
        return max(0.0, self._close_by - self._cluster.env.clock.monotonic())

    async def _wait_for_quitting(self, quitting: asyncio.Task[None]) -> None:
        """It began before the consumer was closed, with other limits."""
        done, _ = await asyncio.wait((quitting,), timeout=self._left_s())
        if not done:
            quitting.cancel()
            await asyncio.wait((quitting,))

    async def _settle_commits(self) -> None:
        """What was to be committed soon, and automatically of partitions chosen by hand. (What the group assigned is
        committed when it is given up.)"""
        if not self._handover.owned:
            self._commit_positions()
        try:
            async with asyncio.timeout(self._left_s()):
                await self._offsets.settle()
        except TimeoutError:
            log.warning("Offsets of group %s could not be committed in time.", self._config.group_id)

    # The background.

    def _start(self) -> None:
        if self._tasks:
            return
        work = [self._main(), self._watch_application()]
        if self._config.enable_auto_commit:
            work.append(self._commit_regularly())
        self._tasks = [asyncio.ensure_future(one) for one in work]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(ClientError(f"The member of group {self._config.group_id} broke: {error!r}."))
            raise error  # to the loop's handler: this is a bug of ours

    def _fail(self, error: ClientError) -> None:
        self.failure = error
        self._wake()

    def _interrupt(self) -> None:
        self._news.set()
        if self._belonging is not None:
            self._belonging.cancel()

    async def _main(self) -> None:
        while True:
            if self._quits:
                self._quits = False
                await self._quit()
            if self._absent or not self._subscriptions.is_subscribed:
                self._news.clear()
                await self._news.wait()
                continue
            self._belonging = asyncio.ensure_future(self._belong())
            await asyncio.wait((self._belonging,))
            done, self._belonging = self._belonging, None
            if done.cancelled():
                continue
            error = done.exception()
            if error is None:
                continue
            if not isinstance(error, ClientError):
                raise error
            if not error.retriable:
                await self._wait_after(error)
                continue
            log.info("The member of group %s tries again: %s", self._config.group_id, error)
            await asyncio.sleep(self._backoff.next_s())

    async def _wait_after(self, error: ClientError) -> None:
        """The application gets to hear of it, and may subscribe to something else."""
        log.error("The membership in group %s ends: %s", self._config.group_id, error)
        self._fail(error)
        self._subscriptions.hold(self._handover.owned)
        await self._leave("the member failed")
        while self.failure is not None:
            self._news.clear()
            await self._news.wait()

    async def _quit(self) -> None:
        """A task of its own, which goes to its end. What a callback raises in it has nobody else to go to."""
        self._quitting = asyncio.ensure_future(self._give_back("the application unsubscribed"))
        await asyncio.wait((self._quitting,))
        if not self._quitting.cancelled() and (error := self._quitting.exception()) is not None:
            log.error("Giving back the partitions of group %s failed.", self._config.group_id, exc_info=error)
        self._quitting = None

    async def _give_back(self, why: str) -> None:
        """What the application no longer wants: commit, callbacks, and goodbye. Not in its turn: it asked for this."""
        try:
            await self._handover.give_up(sorted(self._handover.owned))
        finally:
            await self._leave(why)

    async def _leave(self, why: str) -> None:
        """As well as it goes: who does not say goodbye is missed after the session's time."""
        try:
            left_s = self._left_s()
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000 if left_s is None else left_s):
                await self._say_goodbye(why)
        except (ClientError, TimeoutError) as error:
            log.info("Group %s was left without a goodbye: %s", self._config.group_id, error)

    # Automatic commits.

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(max(self._config.auto_commit_interval_ms / 1000, LEAST_INTERVAL_S))
            await self._turns.ask(self._commit_in_turn)

    async def _commit_in_turn(self) -> None:
        self._commit_positions()

    def _commit_positions(self) -> None:
        """Those that are new since the last time. The application is here: it has done what it was given."""
        if not self._commits or (self._subscriptions.is_subscribed and not self._is_member()):
            return
        now = {place: Offset(*at) for place, at in self._subscriptions.consumed().items()}
        new = {place: at for place, at in now.items() if self._committed.get(place) != at}
        self._committed = now
        if new:
            self._offsets.commit_soon(new)

    # Whether anybody is there.

    async def _watch_application(self) -> None:
        """It comes for records, or waits for them, which a turn tells. If it does neither for max.poll.interval.ms,
        its partitions are for others: the member leaves, and joins again when it comes back."""
        step_s = self._config.max_poll_interval_ms / 1000 / WATCH_STEPS
        quiet = 0
        seen = self._signs()
        while True:
            await asyncio.sleep(step_s)
            quiet = 0 if self._signs() != seen or not self._subscriptions.is_subscribed else quiet + 1
            if quiet >= WATCH_STEPS // 2:
                if not await self._comes_within(step_s * (WATCH_STEPS // 2)):
                    await self._wait_for_application()
                quiet = 0
            seen = self._signs()

    def _signs(self) -> tuple[int, int]:
        return self._subscriptions.polls, self._turns.taken

    async def _comes_within(self, limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._turns.ask(_nothing)
        except TimeoutError:
            return False
        return True

    async def _wait_for_application(self) -> None:
        log.warning(
            "The application asked for no records for %g s (max.poll.interval.ms): it leaves group %s until it does.",
            self._config.max_poll_interval_ms / 1000,
            self._config.group_id,
        )
        self._absent = True
        self._interrupt()
        self._subscriptions.hold(self._handover.owned)
        await self._leave("the application asked for no records for max.poll.interval.ms")
        await self._handover.lose(self._handover.owned)
        await self._turns.ask(_nothing)
        self._absent = False
        self._news.set()


async def _nothing() -> None:
    """A turn for its own sake."""


def shown(places: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(places))) or "nothing"
