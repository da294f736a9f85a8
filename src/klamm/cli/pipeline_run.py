"""`klamm pipeline run`: a pipeline on Spark, until it is done, fails or is stopped."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from klamm.cli.output import plural, remark
from klamm.cli.parsing import Failed
from klamm.cli.pipeline_load import load_pipeline

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

    from klamm.spark.pipelines.model import Pipeline
    from klamm.spark.pipelines.run import Running

LOG_LEVELS: Final = ("error", "warn", "info", "debug")
_LOG: Final = "spark.log"
_INTERRUPTED: Final = 130


def run_run(args: argparse.Namespace) -> int:
    pipeline = load_pipeline(args.folder, args.bootstrap, args.checkpoints)
    if pipeline is None:
        return 2
    from klamm.client.errors import ClientError
    from klamm.spark.pipelines.run import PipelineFailed

    signals = Signals()
    log = _log_of(pipeline) if args.log_level == "error" else None
    try:
        spark = _session(pipeline, args, log)
        try:
            signals.install()  # Spark has put its own in place
            return _run(pipeline, spark, signals, args.once)
        finally:
            spark.stop()
    except PipelineFailed as error:
        if args.log_level == "debug":
            remark(error.details)
        more = "" if log is None else f"More is in {os.path.relpath(log)}, or is shown with --log-level debug."
        raise Failed(f"{error.text}", f"{error.hint} {more}".strip()) from None
    except ClientError as error:
        raise Failed(error.text, error.hint) from None


def _run(pipeline: Pipeline, spark: SparkSession, signals: Signals, once: bool) -> int:
    from klamm.spark.pipelines.run import run

    running = run(pipeline, spark, once=once)
    what = ", ".join(flow.name for flow, _ in pipeline.outputs)
    ends = "until all that is there now is read" if once else "until Ctrl-C"
    remark(f"{pipeline.name} is running ({what}), with {pipeline.bootstrap}, {ends}.")
    signals.stop_then(running)
    running.wait()
    _tell(running)
    return signals.code


def _tell(running: Running) -> None:
    """What it has done, flow by flow."""
    for one in running.status().queries:
        what = f"dead letters of {one.name}" if one.is_dead_letters else one.name
        remark(f"{what}: {plural(one.rows_in, 'row')} in, {plural(one.rows_out, 'row')} out.")


class Stops(Protocol):
    def stop(self) -> None: ...


class Signals:
    """SIGTERM is a wish to stop and no failure. A second Ctrl-C does not wait for anything."""

    def __init__(self) -> None:
        self.code = 0
        self._running: Stops | None = None
        self._is_asked = False
        signal.signal(signal.SIGTERM, _leave)

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)

    def stop_then(self, running: Stops) -> None:
        self._running = running
        if self._is_asked:
            running.stop()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.code == _INTERRUPTED:
                os._exit(_INTERRUPTED)
            self.code = _INTERRUPTED
        self._is_asked = True
        if self._running is not None:
            self._running.stop()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _session(pipeline: Pipeline, args: argparse.Namespace, log: str | None) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    import klamm.spark
    from klamm.spark.pipelines.failures import plain

    settings = dict(pipeline.spark)
    master = args.master or settings.pop("spark.master", None)
    with errors_into(log):
        try:
            spark = klamm.spark.session(pipeline.name, master, **settings)
        except (PySparkException, Py4JError) as error:
            where = "" if log is None else f"What it said is in {os.path.relpath(log)}."
            raise Failed(f"Spark cannot be started: {plain(str(error))}", where) from error
    if log is None:
        spark.sparkContext.setLogLevel(args.log_level.upper())
    return spark


def _log_of(pipeline: Pipeline) -> str:
    from klamm.spark.pipelines.status import path_of

    folder = os.path.dirname(path_of(pipeline))
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, _LOG)


@contextmanager
def errors_into(path: str | None) -> Iterator[None]:
    """What is started meanwhile has this file for its standard error: Spark's machine, which tells of its workers' ends
    there with tracebacks that nobody can do anything about."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with open(path, "wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
