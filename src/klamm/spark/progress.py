"""How far queries have got, as the committed offsets of groups: `klamm group describe` shows their lag.

The group of a query is `kafka.group.id` of its source, else `<groupIdPrefix>-<name or id of the query>`. It has no
members, and is only for looking at: where a query goes on is in its checkpoint, and never here.

A listener hears of each batch when it is done. What it is told are offsets; which brokers they belong to stands in the
options of the query's sources, which are found in its plan when it starts. What goes wrong here is logged: a query must
never fail of it, nor wait for it, so brokers are talked to in a thread of its own, which skips what is out of date.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from klamm.admin import CommittedOffset
from klamm.blocking import Admin
from klamm.client.errors import ClientError
from klamm.core.ids import TopicPartition
from klamm.spark.offsets import Places, Position
from klamm.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("klamm.spark")

SOURCE: Final = "klamm"
_NAMED: Final = "CTERelationRef"
_LEAVING_S: Final = 5.0
"""How long the end of the program waits for what is still to be committed."""


@dataclass(frozen=True)
class Group:
    """Where the progress of a source is shown."""

    name: str
    client: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, given: Mapping[str, str], query: str) -> Group:
        options = SourceOptions.parse(given, streaming=True)
        name = options.group_id or f"{options.group_prefix}-{query}"
        return cls(name, tuple(sorted(options.client.items())))


def positions(groups: Iterable[Group | None], ends: Iterable[str | None]) -> dict[Group, Places]:
    """What to commit: `groups` and `ends` are of the sources of a query, one by one. Of two that read the same
    partition for one group, the one that is behind counts."""
    found: dict[Group, dict[TopicPartition, int]] = {}
    for group, end in zip(groups, ends, strict=True):
        data = json.loads(end) if end else None
        if group is None or not isinstance(data, dict):
            continue
        so_far = found.setdefault(group, {})
        for place, offset in Position.from_json(data).at.items():
            so_far[place] = min(offset, so_far.get(place, offset))
    return {group: places for group, places in found.items() if places}


def groups_of(leaves: Iterable[Any], query: str) -> list[Group | None]:
    """For each source of a query, in the order in which Spark reports them, its group; None for those of others.
    `leaves` are those of its analyzed plan. A source that is there twice in the same way is one for Spark. That a view
    of WITH is named is a leaf, too, and a streaming one, but no source."""
    seen: list[Any] = []
    for leaf in leaves:
        is_source = leaf.isStreaming() and leaf.getClass().getSimpleName() != _NAMED
        if is_source and not any(leaf.equals(other) for other in seen):
            seen.append(leaf)
    return [Group.of(_options(leaf), query) if _is_ours(leaf) else None for leaf in seen]


def _is_ours(leaf: Any) -> bool:
    return bool(leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() == SOURCE)


def _options(leaf: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in leaf.extraOptions().asCaseSensitiveMap().items()}


class Progress(StreamingQueryListener):
    """Of all queries of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark
        self._groups: dict[str, list[Group | None]] = {}  # by the id of a run
        self._commits = Commits()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names)
        self._quietly(lambda: self._started(event))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self._quietly(lambda: self._progressed(event))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._groups.pop(str(event.runId), None)
        if not any(any(groups) for groups in self._groups.values()):
            self._commits.rest()

    def _started(self, event: QueryStartedEvent) -> None:
        found = self._session._jsparkSession.streams().get(str(event.id))
        leaves = found.streamingQuery().analyzedPlan().collectLeaves()
        each = (leaves.apply(number) for number in range(leaves.size()))
        self._groups[str(event.runId)] = groups_of(each, event.name or str(event.id))

    def _progressed(self, event: QueryProgressEvent) -> None:
        groups = self._groups.get(str(event.progress.runId))
        sources = event.progress.sources
        if not groups or not any(groups):
            return
        if len(groups) != len(sources):
            raise LookupError(f"its plan has {len(groups)} sources, and {len(sources)} are reported")
        self._commits.put(positions(groups, [source.endOffset for source in sources]))

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not worth a query
            log.warning("The progress of a query cannot be shown as a group's: %s", error)


class Commits:
    """A thread that commits the latest offsets of each group."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[Group, Places] = {}
        self._done: dict[Group, Places] = {}
        self._failed: set[Group] = set()
        self._admins: dict[tuple[tuple[str, str], ...], Admin] = {}
        self._is_resting = False
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def put(self, offsets: Mapping[Group, Places]) -> None:
        with self._changed:
            self._waiting.update(offsets)
            self._is_resting = False
            if self._thread is None and self._waiting and not self._is_closing:
                self._thread = threading.Thread(target=self._run, name="klamm-progress", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def rest(self) -> None:
        """There is no query now: when all is committed, connections are given up."""
        with self._changed:
            self._is_resting = True
            self._changed.notify_all()

    def close(self) -> None:
        """When what was put is committed, or at least tried for some seconds."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_LEAVING_S)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            for group, offsets in work.items():
                if self._done.get(group) != offsets:
                    self._commit(group, offsets)
            if not work:
                self._let_go()
        self._let_go()

    def _next(self) -> Mapping[Group, Places] | None:
        """What is to be committed; nothing when it is time to rest, None when it is the end."""
        with self._changed:
            while not self._waiting and not self._is_closing and not (self._is_resting and self._admins):
                self._changed.wait()
            if not self._waiting and self._is_closing:
                return None
            work, self._waiting = self._waiting, {}
            return work

    def _commit(self, group: Group, offsets: Places) -> None:
        wanted: dict[tuple[str, int], int | CommittedOffset] = dict(offsets.items())
        try:
            self._admin(group).alter_group_offsets(group.name, wanted).check()
        except (ClientError, OSError) as error:
            if group not in self._failed and not self._is_closing:  # once, and not for each batch, nor at the end
                log.warning("The progress of a query cannot be shown as group %s: %s", group.name, error)
            self._failed.add(group)
            return
        self._failed.discard(group)
        self._done[group] = offsets

    def _admin(self, group: Group) -> Admin:
        found = self._admins.get(group.client)
        if found is None:
            found = Admin(config=dict(group.client))
            found.start()
            self._admins[group.client] = found
            atexit.unregister(self.close)
            atexit.register(self.close)  # after the client's own, so that it comes before it
        return found

    def _let_go(self) -> None:
        for admin in self._admins.values():
            try:
                admin.close()
            except ClientError as error:
                log.debug("A client of progress was closed before: %s", error)
        self._admins.clear()
        self._done.clear()
