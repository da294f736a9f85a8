"""A Spark session that knows `format("klamm")`, with what it needs to run on this machine found and set.

What it sets by itself are defaults: what is given comes before. A virtual machine that runs already, of an earlier
session or of spark-submit, is left as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.spark import java, worker_python
from klamm.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"

EVERYWHERE: Final = {
    "spark.ui.showConsoleProgress": "false",
    # Under load a Python process may take long until it has connected back; 15 s are not enough then.
    "spark.python.authenticate.socketTimeout": "120s",
}
LOCAL: Final = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
}
"""For masters within this process: nothing listens to the outside."""


class NoSpark(SparkError):
    """PySpark is not installed."""


def make(name: str, master: str | None, settings: Mapping[str, object]) -> SparkSession:
    """See `klamm.spark.session`."""
    if find_spec("pyspark") is None:
        raise NoSpark("PySpark is not installed.", 'Install it: pip install "klamm[spark]".')
    from pyspark.sql import SparkSession

    from klamm.spark import register

    given = {_setting(setting): _text(value) for setting, value in settings.items()}
    if master is not None:
        given["spark.master"] = master
    if not _is_settled():
        given = _complete(given)
    builder = SparkSession.builder.appName(name)
    for setting, value in given.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _is_settled() -> bool:
    """Somebody else has said where and how: there is a session already, or this is a program of spark-submit."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _complete(given: dict[str, str]) -> dict[str, str]:
    from pyspark import SparkContext

    found = {"spark.master": "local[*]", **given}
    if SparkContext._gateway is None:  # else the virtual machine of a session that has ended goes on
        prepare(found["spark.master"])
        found |= _logging(given)
    return {**defaults(found["spark.master"]), **found}


def _setting(name: str) -> str:
    """A name with dots in it is Spark's own, and may have underscores, too: `spark.executorEnv.AWS_REGION`."""
    return name if "." in name else name.replace("_", ".")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_local(master: str) -> bool:
    """Driver and executors are on this machine, and started by this process."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def prepare(master: str) -> None:
    """What Spark takes from the environment, before its virtual machine starts: Java, and which Python the workers
    are. On this machine that is this one, which has Klamm; on a cluster it is what somebody has set, if anybody has."""
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = worker_python.find()
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    found = java.find()
    os.environ["JAVA_HOME"] = str(java.home_for_spark(found))


def defaults(master: str) -> dict[str, str]:
    found = dict(EVERYWHERE)
    if is_local(master):
        found |= LOCAL
        # Spark's own, 200, is for clusters: a query with state would run as many tasks for each batch.
        found["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    return found


def _logging(given: dict[str, str]) -> dict[str, str]:
    """Errors only, unless whoever runs this has log settings of Spark's."""
    theirs = given.get(_JVM_OPTIONS, "")
    if "log4j2" in theirs or "SPARK_CONF_DIR" in os.environ:
        return {}
    ours = f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    return {_JVM_OPTIONS: f"{ours} {theirs}".strip()}
