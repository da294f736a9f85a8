"""What a query leaves behind when it is stopped in the middle of a batch: open transactions of tasks that Spark has
killed. They have no time limit, and readers of what is committed would wait in front of them until the query goes on,
which may be never. So the driver looks for them when a run has ended, and when the program does, and ends them.

It only helps: what is exactly once does not depend on it, and a driver that was killed has done nothing of this. Which
brokers a query writes to stands in the options of its sink, which Spark gives nobody: they are read from its object.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from klamm.spark.options import Guarantee, SinkOptions
from klamm.spark.sink.decisions import of_query
from klamm.spark.sink.driver import give_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("klamm.spark")

SINK: Final = "klamm"
_FIRST_KIND: Final = "org.apache.spark.sql.execution.streaming.Sink"


@dataclass(frozen=True)
class Run:
    sink: str
    run: str
    client: Mapping[str, str]

    @classmethod
    def of(cls, query_id: str, run_id: str, given: Mapping[str, str]) -> Run | None:
        """None if it leaves no transactions."""
        options = SinkOptions.parse(given)
        if options.guarantee is Guarantee.AT_LEAST_ONCE:
            return None
        return cls(of_query(query_id), run_id, options.client)


class Stopped(StreamingQueryListener):
    """Of all queries of a session that write to topics."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark
        self._leaving = Leaving()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names)
        try:
            options = self._options(str(event.id))
            if options is not None and (run := Run.of(str(event.id), str(event.runId), options)) is not None:
                self._leaving.began(run)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not worth a query
            log.warning("What a query leaves open when it is stopped will stay so: %s", error)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        run_id = str(event.runId)
        self._leaving.ended(run_id, are_at_work=event.exception is not None or self._has_tasks(run_id))

    def _has_tasks(self, run_id: str) -> bool:
        """Whether tasks of a run may still be at work: its last job was cancelled, and not done."""
        try:
            jobs = self._session.sparkContext.statusTracker()
            ids = jobs.getJobIdsForGroup(run_id)
            last = jobs.getJobInfo(max(ids)) if ids else None
            return last is not None and last.status != "SUCCEEDED"
        except Exception:  # noqa: BLE001 - Spark itself may be at its end
            return True

    def _options(self, query_id: str) -> dict[str, str] | None:
        """Of the sink, if it is ours. Those of Spark's first kind, as that of foreachBatch is, have not even a name."""
        found: Any = self._session._jsparkSession.streams().get(query_id).streamingQuery()
        sink = found.sink()
        if is_instance_of(self._session.sparkContext._gateway, sink, _FIRST_KIND) or sink.name() != SINK:
            return None
        field = found.getClass().getDeclaredField("extraOptions")
        field.setAccessible(True)
        pairs = field.get(found).toSeq()
        return {str(pair._1()): str(pair._2()) for pair in (pairs.apply(at) for at in range(pairs.size()))}


class Leaving:
    """Gives up what runs leave, each in a thread. The end of the program waits for it, and does the same for runs that
    have not ended by then: a thread that is no daemon waits for the end of the main one."""

    def __init__(self, give_up_: Callable[..., None] = give_up) -> None:
        self._give_up = give_up_
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._waits = False

    def began(self, run: Run) -> None:
        with self._lock:
            self._runs[run.run] = run
            if not self._waits:
                self._waits = True
                threading.Thread(target=self._at_the_end, name="klamm-leaving", daemon=False).start()

    def ended(self, run_id: str, *, are_at_work: bool = True) -> None:
        with self._lock:
            run = self._runs.pop(run_id, None)
        if run is not None:
            threading.Thread(target=self._leave, args=(run, are_at_work), name="klamm-stopped", daemon=False).start()

    def _at_the_end(self) -> None:
        threading.main_thread().join()
        with self._lock:
            left = list(self._runs)
        for run_id in left:
            self.ended(run_id)

    def _leave(self, run: Run, are_at_work: bool) -> None:
        try:
            is_needed = partial(self._is_needed, run.sink)
            self._give_up(run.client, run.sink, run.run, are_at_work=are_at_work, is_needed=is_needed)
        except Exception as error:  # noqa: BLE001 - nobody is there to be told
            log.warning("Transactions of %s may be open: %s", run.sink, error)

    def _is_needed(self, sink: str) -> bool:
        """The query does not run again."""
        with self._lock:
            return all(run.sink != sink for run in self._runs.values())
