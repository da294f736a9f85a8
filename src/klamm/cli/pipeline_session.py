"""The session that the verbs of `klamm pipeline` run on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from klamm.cli.parsing import Failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from klamm.spark.pipelines.model import Pipeline

_SHOWN: Final = 2000
"""So many characters at most of what Spark said when it could not start."""


def start_session(pipeline: Pipeline, master: str | None, log: str | None, settings: Mapping[str, str]) -> SparkSession:
    """What Spark and its machine say goes into the file `log`, or where everything goes. `Failed` if there is none, and
    `Mistakes` if a setting of the pipeline is the reason."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    import klamm.spark
    from klamm.client.errors import ClientError
    from klamm.spark.pipelines.mistakes import Mistake, Mistakes
    from klamm.spark.pipelines.said import bad_setting, plain, without_traces

    try:
        with errors_into(log):
            spark = klamm.spark.session(pipeline.name, master, **settings)
    except ClientError as error:  # no Java, say
        raise Failed(error.text, error.hint) from None
    except (PySparkException, Py4JError) as error:
        said = _said(log)
        if (found := bad_setting(settings, str(error), said)) is not None:
            raise Mistakes([Mistake(pipeline.at(f"spark.{found[0]}"), found[1])]) from None
        raise Failed(f"Spark cannot be started: {plain(str(error))}", without_traces(said)) from error
    _hush(spark)
    return spark


def _hush(spark: SparkSession) -> None:
    """PySpark has a thread that hears from Spark's machine, and prints a traceback if that goes before it does."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, client_address: None


def _said(log: str | None) -> str:
    if log is None:
        return ""
    with open(log, "rb") as file:
        return file.read()[-_SHOWN:].decode(errors="replace").strip()


@contextmanager
def errors_into(path: str | None) -> Iterator[None]:
    """What is started meanwhile has this file for its standard error: Spark's machine, which tells of its workers' ends
    there with tracebacks that nobody can do anything about. What was said by the run before is kept beside it."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with suppress(FileNotFoundError):
        os.replace(path, f"{path}.1")
    with open(path, "wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
