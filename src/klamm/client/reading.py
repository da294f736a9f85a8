"""Taking records out of what was fetched, in the order in which it came, and waiting for more.

One task reads at a time. Before anything is given out the group gets its turn, if it wants one: what was given out
before counts as processed now. Records come before errors: a partition that cannot go on says so when all that was
fetched before is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from klamm.client.cursor import Cursor, Rest
from klamm.client.deserializing import Deserializing
from klamm.client.errors import ClientError, Closed, ConsumerMisuse
from klamm.client.intake import Intake
from klamm.client.news import News
from klamm.client.subscription import Mode, Subscriptions
from klamm.core.ids import TopicPartition
from klamm.records.consuming import ConsumerRecord

if TYPE_CHECKING:
    from klamm.client.cluster import Cluster
    from klamm.client.membership import Membership
    from klamm.records.columnar import Table

T = TypeVar("T")


class Chunk(NamedTuple):
    """Records of one partition that came together."""

    topic: str
    partition: int
    records: list[ConsumerRecord]
    next_offset: int
    high_watermark: int


class Reading:
    """`start` comes before everything else; `changed` whenever the subscriptions are."""

    def __init__(self, subscriptions: Subscriptions, deserializing: Deserializing | None = None) -> None:
        self._subscriptions = subscriptions
        self._deserializing = deserializing
        self._news = News()
        self._intake: Intake | None = None
        self._group: Membership | None = None
        self._current: Cursor | None = None  # the first of what was prefetched when the version was `_seen`
        self._seen = -1
        self._busy = False
        self._done = True
        self._due = False  # the loop should get a turn
        self._closed = False

    def start(
        self,
        cluster: Cluster,
        group: Membership | None,
        *,
        on_trouble: Callable[[ClientError], None] | None = None,
        create: bool = True,
    ) -> None:
        """`create`: a topic that is not there may be made, if the options allow it."""
        self._group = group
        self._intake = Intake(
            cluster,
            self._subscriptions,
            self._news.tell,
            group=group,
            deserializing=self._deserializing,
            on_trouble=on_trouble,
            create=create and cluster.config.allow_auto_create_topics,
        )

    async def close(self) -> None:
        self._closed = True
        self._current = None
        self._news.tell()
        if self._intake is not None:
            await self._intake.close()

    def changed(self) -> None:
        """There is something new: to be read, to be raised, or for the group to do."""
        if self._intake is not None:
            self._intake.look()
        self._news.tell()

    def metrics(self) -> dict[str, float]:
        return self._at_work.metrics()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_done(self) -> bool:
        """Whether the application has come back since it was last given something."""
        return self._done

    # For callers.

    def quick(self) -> ConsumerRecord | None:
        """The next record, if it can be had without looking at anything else."""
        subscriptions, group = self._subscriptions, self._group
        if self._current is None or self._seen != subscriptions.version or (group is not None and group.wants_turn):
            return None
        subscriptions.polls += 1
        self._done = False
        return self._current.take_one()

    async def one(self, timeout_s: float | None = None) -> ConsumerRecord | None:
        return await self.take(Cursor.take_one, timeout_s)

    async def many(self, limit: int, timeout_s: float | None = None) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What there is, of all partitions, up to `limit` records; waits only while there is nothing."""
        _check(limit)
        return await self.take(lambda _: self._take_many(limit), timeout_s) or {}

    async def chunk(self, limit: int, timeout_s: float | None = None) -> Chunk | None:
        _check(limit)

        def take(cursor: Cursor) -> Chunk | None:
            records = cursor.take(limit)
            state = cursor.state
            return Chunk(*state.place, records, state.offset, cursor.answer.high_watermark) if records else None

        return await self.take(take, timeout_s)

    async def rest(self, timeout_s: float | None = None) -> Rest | None:
        """What came together of one partition, undecoded."""
        return await self.take(Cursor.take_rest, timeout_s)

    async def pour(
        self,
        table: Table,
        max_rows: int,
        max_bytes: int,
        timeout_s: float | None = None,
        until: Mapping[tuple[str, int], int] | None = None,
    ) -> bool:
        """Put what there is, of all partitions, into a table of columns; waits only while there is nothing. False when
        the time is up, or when all positions are where `until` says and nothing was to be had on the way."""
        _check(max_rows)
        if self._deserializing is not None:
            raise ConsumerMisuse("Columns are bytes, and this consumer has deserializers.", "Leave them out.")
        if until and self._is_at(until):
            return False
        await self.take(lambda _: self._pour(table, max_rows, max_bytes) or (until and self._is_at(until)), timeout_s)
        return bool(table.rows)

    def _is_at(self, ends: Mapping[tuple[str, int], int]) -> bool:
        partitions = self._subscriptions.partitions
        return all(partitions[TopicPartition(*place)].offset >= end for place, end in ends.items())

    async def until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for something that comes about while records are fetched; raises what keeps it from it."""
        deadline = self._deadline(timeout_s)
        while not is_so():
            seen = self._news.count
            self._raise_errors()
            if not await self._wait(seen, deadline):
                return False
        return True

    # Taking.

    async def take(self, take: Callable[[Cursor], T], timeout_s: float | None) -> T | None:
        """What `take` gets from what came first, unless that is nothing; None when the time is up."""
        if self._busy:
            raise ConsumerMisuse("Another task is reading from this consumer.")
        self._busy = self._done = True
        try:
            deadline = self._deadline(timeout_s)
            while (cursor := await self._first(deadline)) is not None:
                found = take(cursor)
                if cursor.is_finished:
                    self._drop_first(cursor)
                if found:
                    self._done = False
                    return found
            return None
        finally:
            self._busy = False

    def _take_many(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        prefetched = self._at_work.prefetched
        while limit > 0 and (cursor := prefetched.first()) is not None and cursor.is_prepared:
            try:
                records = cursor.take(limit)
            except ClientError:
                if not found:
                    raise
                break  # it will be raised again
            if records:
                limit -= len(records)
                place = cursor.state.place
                if place in found:
                    found[place] += records
                else:
                    found[place] = records
            if not cursor.is_finished:
                break
            self._drop_first(cursor)
        return found

    def _pour(self, table: Table, max_rows: int, max_bytes: int) -> int:
        prefetched = self._at_work.prefetched
        while (cursor := prefetched.first()) is not None:
            try:
                cursor.pour(table, max_rows, max_bytes)
            except ClientError:
                if not table.rows:
                    raise
                break  # it will be raised again
            if not cursor.is_finished:
                break
            self._drop_first(cursor)
        return table.rows

    def _drop_first(self, cursor: Cursor) -> None:
        intake = self._at_work
        if intake.prefetched.first() is not cursor:
            return  # dropped before, or set aside meanwhile
        intake.prefetched.drop_first()
        intake.taken(cursor)
        self._current = None
        self._due = True

    # Waiting.

    async def _first(self, deadline: float | None) -> Cursor | None:
        """What there is to take from; None when the time is up."""
        self._subscriptions.polls += 1
        if self._due:  # so that who always finds something does not keep the answers of brokers from coming in
            self._due = False
            await asyncio.sleep(0)
        prefetched = self._at_work.prefetched
        while True:
            seen = self._news.count
            await self._let_group_work()
            cursor = prefetched.first()
            if cursor is None:
                self._raise_errors()
                if not await self._wait(seen, deadline):
                    return None
            elif cursor.is_prepared:
                self._current, self._seen = cursor, self._subscriptions.version
                return cursor
            else:
                await self._prepare(cursor)

    async def _let_group_work(self) -> None:
        if self._closed:
            raise Closed("This consumer is closed.")
        if self._group is not None:
            if self._group.wants_turn:
                await self._group.turn()
            if self._group.failure is not None:
                raise self._group.failure

    async def _prepare(self, cursor: Cursor) -> None:
        assert self._deserializing is not None
        records = cursor.all_raw()
        await self._deserializing.prepare(records)
        cursor.give_back(*self._deserializing(records))

    def _raise_errors(self) -> None:
        error = self._subscriptions.first_error()
        if error is not None:
            raise error
        self._at_work.raise_failure()
        if self._subscriptions.mode is Mode.NOTHING:
            raise ConsumerMisuse("There is nothing to read.", "Subscribe to topics, or assign partitions, first.")

    def _deadline(self, timeout_s: float | None) -> float | None:
        return None if timeout_s is None else self._at_work.now() + timeout_s

    async def _wait(self, seen: int, deadline: float | None) -> bool:
        """For news. False if there were none in time."""
        left_s = None if deadline is None else deadline - self._at_work.now()
        if left_s is not None and left_s <= 0:
            await asyncio.sleep(0)  # who only looks, again and again, lets others work all the same
            return False
        return await self._news.wait(seen, left_s)

    @property
    def _at_work(self) -> Intake:
        if self._intake is None:
            raise Closed("This consumer is not open.", "Use it in an `async with` block, or call `start` first.")
        return self._intake


def _check(limit: int) -> None:
    if limit < 1:
        raise ConsumerMisuse(f"At most {limit} records is none at all.")
