"""A pipeline that runs: one query of Structured Streaming for each flow with an output, and one for the dead letters of
each input that can have them.

All queries are made before the first is started, so that a mistake in the last flow starts none. They live and die
together: when one fails, the others are stopped.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf
from pyspark.sql.streaming.listener import StreamingQueryListener

import klamm.spark
from klamm.core.env.real import real_env
from klamm.spark.errors import SparkError
from klamm.spark.pipelines import dead_letters, outputs, status
from klamm.spark.pipelines.flows import BadFlow, Views
from klamm.spark.pipelines.model import Flow, Input, Output, Pipeline
from klamm.spark.pipelines.queries import wrong_mode
from klamm.spark.pipelines.said import failure, plain
from klamm.spark.pipelines.status import Meter, State, Status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from klamm.core.env import Lock

_STATE: Final = "spark.sql.streaming.stateStore"
DEFAULTS: Final = {
    # State on disk: it need not fit into memory, and transformWithState asks for it. Only changes are uploaded.
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    # Times in a topic are the same wherever the pipeline runs.
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of a pipeline's queries that it does not have itself."""
_OBSERVED: Final = "klamm"
_STATUS_S: Final = 1.0
_POLL_S: Final = 0.05
_TRIES: Final = 5
"""So often in a row a query is started again that failed because a Python process was not there in time. It goes on
from its checkpoint; a busy machine is no reason to end a pipeline."""
_NO_WATERMARK_YET: Final = "1970-01-01T00:00:00.000Z"
_INITIALIZING: Final = "Initializing"
_NO_WORKER: Final = "Timed out while waiting for the Python worker to connect back"
_HEARING_S: Final = 60.0
"""So long at most. On a busy machine many queries take more than some seconds to be told of, and figures would miss."""
_DEEPEST: Final = 20


class PipelineFailed(SparkError):
    """A query has failed, and with it the pipeline. `details` is all that Spark said."""

    def __init__(self, text: str, hint: str = "", details: str = "") -> None:
        super().__init__(text, hint)
        self.details = details


class AlreadyRuns(SparkError):
    """Somebody else runs this pipeline."""


class OthersCheckpoints(SparkError):
    """What is in the folder was remembered by another pipeline."""


class NoCheckpoints(SparkError):
    """Nothing can be written where the queries are to remember what they have done."""


@dataclass(frozen=True)
class Planned:
    """A query to be."""

    meter: Meter
    what: str
    writer: DataStreamWriter
    checkpoint: str


def run(pipeline: Pipeline, spark: SparkSession, *, once: bool = False) -> Running:
    """Start it; see `Running`. `once`: the queries end when they have read what is there now."""
    running = prepare(pipeline, spark, claim(pipeline), once=once)
    running.start()
    return running


def prepare(pipeline: Pipeline, spark: SparkSession, lock: Lock, *, once: bool = False) -> Running:
    """All but the start, for those who want to be able to stop it in the midst of that.

    The queries are in a session of their own: views and settings of a pipeline are nobody else's."""
    try:
        session = spark.newSession()
        klamm.spark.register(session)
        for name, value in {**DEFAULTS, **pipeline.spark}.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
        return Running(pipeline, session, plan(pipeline, session, once=once), lock)
    except BaseException:
        lock.release()
        raise


def claim(pipeline: Pipeline) -> Lock:
    """Two processes on one checkpoint would be in each other's way; Spark only finds out when both write. And what
    another pipeline remembers of its topics would only be wrong here."""
    files = real_env().files
    path = status.path_of(pipeline)
    try:
        files.make_dirs(os.path.dirname(path))
        lock = files.lock(os.path.join(os.path.dirname(path), "lock"))
    except OSError as error:
        raise NoCheckpoints(
            f"The folder for checkpoints, {os.path.dirname(path)}, cannot be used: {error.strerror}.",
            "Name another one with --checkpoints, or in pipeline.yml.",
        ) from None
    found = status.read(files, pipeline)
    if lock is None:
        who = f", process {found.pid}" if found is not None else ""
        raise AlreadyRuns(f"The pipeline {pipeline.name} is running already{who}.", "Stop that one first.")
    if found is not None and found.pipeline != pipeline.name:
        lock.release()
        raise OthersCheckpoints(
            f"The checkpoints in {os.path.dirname(path)} are those of the pipeline {found.pipeline}, and this is "
            f"{pipeline.name}.",
            "Name another folder with --checkpoints, or remove this one if nobody needs it.",
        )
    return lock


def plan(pipeline: Pipeline, spark: SparkSession, *, once: bool) -> list[Planned]:
    """Nothing runs yet. Whatever Spark finds wrong with a flow is told here, or by `start`."""
    found = [
        _dead_letters(pipeline, spark, one, once)
        for one in pipeline.inputs
        if one.can_fail and one.dead_letters is not None
    ]
    return found + [_flow(pipeline, spark, flow, output, once) for flow, output in pipeline.outputs]


def _flow(pipeline: Pipeline, spark: SparkSession, flow: Flow, output: Output, once: bool) -> Planned:
    name = f"{pipeline.name}.{flow.name}"
    frame = Views(spark, pipeline, name).frame(flow.name)
    if (mistake := wrong_mode(spark, flow, frame)) is not None:
        raise BadFlow(mistake)
    rows = _observed(frame)
    writer = outputs.writer(rows, output, flow.mode, pipeline.client, name)
    if once or flow.available_now:
        writer = writer.trigger(availableNow=True)
    elif flow.trigger is not None:
        writer = writer.trigger(processingTime=flow.trigger)
    return Planned(Meter(flow.name, name), f"The flow {flow.name}", writer.queryName(name), flow.checkpoint)


def _dead_letters(pipeline: Pipeline, spark: SparkSession, one: Input, once: bool) -> Planned:
    name = f"{pipeline.name}.{one.name}.dead_letters"
    output = Output("topic", one.place, {}, topic=one.dead_letters, format="raw")
    rows = _observed(dead_letters.dead_letters(spark, pipeline, one, name))
    writer = outputs.writer(rows, output, "append", pipeline.client, name)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=dead_letters.TRIGGER)
    meter = Meter(one.name, name, is_dead_letters=True)
    checkpoint = f"{pipeline.checkpoints.rstrip('/')}/{one.name}.dead_letters"
    return Planned(meter, f"The query for dead letters of {one.name}", writer.queryName(name), checkpoint)


def _observed(rows: DataFrame) -> DataFrame:
    """Spark does not count what goes out in every mode."""
    return rows.observe(_OBSERVED, sf.count(sf.lit(1)).alias("rows"))


class Running:
    """A pipeline's queries, from their start to their end. Whoever has it calls `start` and `wait`, in one thread;
    `stop` may come from anywhere, a signal handler too."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, planned: list[Planned], lock: Lock) -> None:
        self.pipeline = pipeline
        self.queries: dict[str, StreamingQuery] = {}
        self._planned = {one.meter.group: one for one in planned}
        self._lock = lock
        self._spark = spark
        self._env = real_env()
        self._started_ms = self._env.clock.time_ms()
        self._woken = threading.Event()
        self._is_stopping = False
        self._heard: set[str] = set()
        self._names: dict[str, str] = {}  # of the queries, by their runs
        self._failures: Counter[str] = Counter()
        self._listener = _Listener(self)

    def start(self) -> None:
        """One after the other; none any more once somebody has called `stop`."""
        self._write("starting")
        self._spark.streams.addListener(self._listener)
        with self._ending_on_error():
            for name, one in self._planned.items():
                if not self._is_stopping:
                    self.queries[name] = self._start(one)
            self._write("running")

    @contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._end("failed")
            raise

    def _start(self, one: Planned) -> StreamingQuery:
        """And wait until its sources are there. Each begins with a Python process, and Spark gives up on one that has
        not answered within ten seconds: if all were started at once, that would not be long."""
        query = _start(one)
        while not self._is_stopping and query.isActive and query.status["message"].startswith(_INITIALIZING):
            self._woken.wait(_POLL_S)
            self._woken.clear()
        return query

    def stop(self) -> None:
        """Let `wait` stop everything and return. What a query has begun and not written, it does again next time."""
        self._is_stopping = True
        self._woken.set()

    def wait(self) -> None:
        """Until all queries have ended, or somebody has called `stop`. `PipelineFailed` if one has failed."""
        with self._ending_on_error():
            while not self._is_stopping and self._look():
                self._woken.wait(_STATUS_S)
                self._woken.clear()
                self._write("running")
        self._end("stopped" if self._is_stopping else "done")

    def _look(self) -> bool:
        """Whether a query is still running."""
        ended = [name for name, query in self.queries.items() if not query.isActive]
        for name in ended:
            one, causes = self._planned[name], _causes(self.queries[name])
            if any(_NO_WORKER in cause for cause in causes) and self._failures[name] < _TRIES:
                self._failures[name] += 1
                self.queries[name] = self._start(one)
                return True
            if causes:
                failed = _failure(one, causes)
                one.meter.state, one.meter.error = "failed", failed.text
                raise failed
            one.meter.state = "done"
        return len(ended) < len(self.queries)

    def _end(self, state: State) -> None:
        try:
            self._stop_queries()
        finally:  # also if there is no Spark any more
            self._write(state)
            self._lock.release()

    def _stop_queries(self) -> None:
        for name, one in self._planned.items():
            query = self.queries.get(name)
            if query is None or query.isActive:
                one.meter.state = "stopped"
            if query is not None:
                query.stop()
        self._hear_all()
        self._spark.streams.removeListener(self._listener)

    def _hear_all(self) -> None:
        """Spark tells of batches some time after they are done; of the end of a query after all of its batches."""
        deadline_s = self._env.clock.monotonic() + _HEARING_S
        runs = {str(query.runId) for query in self.queries.values()}
        while not runs <= self._heard and (left_s := deadline_s - self._env.clock.monotonic()) > 0:
            self._woken.wait(left_s)
            self._woken.clear()

    # Figures, from a thread of Spark's.

    def progressed(self, progress: StreamingQueryProgress) -> None:
        one = self._planned.get(progress.name or "")
        if one is not None:
            self._failures.pop(one.meter.group, None)
            one.meter.add(self._env.clock.monotonic(), *_figures(progress))

    def started(self, run_id: str, name: str) -> None:
        self._names[run_id] = name

    def idle(self, run_id: str) -> None:
        """There is nothing to read: of that Spark tells in another way."""
        one = self._planned.get(self._names.get(run_id, ""))
        if one is not None:
            one.meter.is_up()

    def ended(self, run_id: str) -> None:
        self._heard.add(run_id)
        self._woken.set()

    def status(self, state: State = "running") -> Status:
        clock = self._env.clock
        queries = tuple(one.meter.figures(clock.monotonic()) for one in self._planned.values())
        return Status(
            self.pipeline.name,
            self.pipeline.bootstrap,
            os.uname().nodename,
            os.getpid(),
            self._started_ms,
            clock.time_ms(),
            state,
            queries,
        )

    def _write(self, state: State) -> None:
        self._env.files.write_atomically(status.path_of(self.pipeline), self.status(state).to_bytes())


class _Listener(StreamingQueryListener):
    """Called from a thread of Spark's."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names)
        self._running.started(str(event.runId), event.name or "")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self._running.progressed(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        self._running.idle(str(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._running.ended(str(event.runId))


def _figures(progress: StreamingQueryProgress) -> tuple[int, int, Mapping[str, Any]]:
    observed = progress.observedMetrics.get(_OBSERVED)
    rows_out = int(observed["rows"]) if observed is not None else max(0, progress.sink.numOutputRows)
    states = [one.numRowsTotal for one in progress.stateOperators]
    watermark = progress.eventTime.get("watermark")
    last = {
        "batch": progress.batchId,
        "batch_ms": progress.durationMs.get("triggerExecution"),
        "batch_rows": progress.numInputRows,
        "state_rows": sum(states) if states else None,
        "watermark": None if watermark == _NO_WATERMARK_YET else watermark,
    }
    return progress.numInputRows, rows_out, last


def _start(one: Planned) -> StreamingQuery:
    try:
        return one.writer.option("checkpointLocation", one.checkpoint).start()
    except AnalysisException as error:
        raise PipelineFailed(f"{one.what} cannot be started: {plain(str(error))}", details=str(error)) from error


def _failure(one: Planned, causes: list[str]) -> PipelineFailed:
    text, hint = failure(causes, one.checkpoint)
    return PipelineFailed(f"{one.what} has failed: {text}", hint, "\n".join(causes))


def _causes(query: StreamingQuery) -> list[str]:
    """What it has failed of, the outermost first; nothing if it has not."""
    found = query._jsq.exception()
    error = found.get() if found.isDefined() else None
    causes: list[str] = []
    while error is not None and len(causes) < _DEEPEST:
        causes.append(str(error.getMessage() or error.toString()))
        error = error.getCause()
    return causes
