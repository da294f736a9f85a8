"""`klamm pipeline run`: a pipeline on Spark, until it is done, fails or is stopped."""

from __future__ import annotations

import argparse
import os
import signal
from typing import TYPE_CHECKING, Final, Protocol

from klamm.cli.output import plural, remark
from klamm.cli.parsing import Failed
from klamm.cli.pipeline_check import tell_mistakes
from klamm.cli.pipeline_load import load_pipeline
from klamm.cli.pipeline_session import start_session

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

    from klamm.core.env import Lock
    from klamm.spark.pipelines.model import Pipeline
    from klamm.spark.pipelines.run import Running

LOG_LEVELS: Final = ("error", "warn", "info", "debug")
_LOG: Final = "spark.log"
_INTERRUPTED: Final = 130


def run_run(args: argparse.Namespace) -> int:
    pipeline = load_pipeline(args.folder, args.bootstrap, args.checkpoints)
    if pipeline is None:
        return 2
    from py4j.protocol import Py4JError

    from klamm.client.errors import ClientError
    from klamm.spark.pipelines.mistakes import Mistakes
    from klamm.spark.pipelines.run import PipelineFailed, claim
    from klamm.spark.pipelines.topics import look_up

    signals = Signals()
    log = _log_of(pipeline) if args.log_level == "error" else None
    more = "" if log is None else f"More is in {os.path.relpath(log)}, or is shown with --log-level debug."
    try:
        lock = claim(pipeline)  # whoever runs it already has the log, too
        if tell_mistakes(look_up(pipeline).mistakes):
            return 2
        settings = dict(pipeline.spark)
        master = args.master or settings.pop("spark.master", None)
        spark = start_session(pipeline, master, log, settings)
        try:
            signals.install()  # Spark has put its own in place
            if log is None:
                spark.sparkContext.setLogLevel(args.log_level.upper())
            return _run(pipeline, spark, lock, signals, args.once)
        finally:
            spark.stop()
    except Mistakes as mistakes:
        tell_mistakes(mistakes.found)
        return 2
    except PipelineFailed as error:
        if args.log_level == "debug":
            remark(error.details)
        raise Failed(error.text, f"{error.hint} {more}".strip()) from None
    except ClientError as error:
        raise Failed(error.text, error.hint) from None
    except (Py4JError, ConnectionError) as error:
        if signals.code == 0 and not signals.is_asked:
            raise Failed("Spark's Java process does not answer any more: it has ended, or was killed.", more) from error
        return signals.code


def _run(pipeline: Pipeline, spark: SparkSession, lock: Lock, signals: Signals, once: bool) -> int:
    from klamm.spark.pipelines.analysis import analyze
    from klamm.spark.pipelines.queries import quiet
    from klamm.spark.pipelines.run import prepare

    with quiet():
        if tell_mistakes(analyze(pipeline, spark).mistakes):
            return 2
        running = prepare(pipeline, spark, lock, once=once)
        signals.stop_then(running)
        running.start()
        what = ", ".join(flow.name for flow, _ in pipeline.outputs)
        ends = "until all that is there now is read" if once else "until Ctrl-C"
        remark(f"{pipeline.name} is running ({what}), with {pipeline.bootstrap}, {ends}.")
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
        self.is_asked = False
        signal.signal(signal.SIGTERM, _leave)

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)

    def stop_then(self, running: Stops) -> None:
        self._running = running
        if self.is_asked:
            running.stop()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.code == _INTERRUPTED:
                os._exit(_INTERRUPTED)
            self.code = _INTERRUPTED
        self.is_asked = True
        if self._running is not None:
            self._running.stop()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _log_of(pipeline: Pipeline) -> str:
    from klamm.spark.pipelines.status import path_of

    return os.path.join(os.path.dirname(path_of(pipeline)), _LOG)
