"""SQL and plans, looked at by Spark's parser and its checks for streams, without carrying anything out."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException

from klamm.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical."
_NO_QUERIES: Final = ("Command", "ParsedStatement", "UnaryParsedStatement", "CompoundBody")
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_RELATION: Final = re.compile(r"UnresolvedRelation \[(?:[^\],]+, )*([^\],]+)\]")


@contextmanager
def quiet() -> Iterator[None]:
    """PySpark logs every error that has a place in a query, with all its traces. Here they are told otherwise."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


class NoSelect(SparkError):
    """SQL that is no query."""

    def __init__(self) -> None:
        super().__init__("This is no SELECT.", "A flow is one SELECT; its output says where the rows go.")


def views_named(spark: SparkSession, text: str) -> set[str]:
    """The views that a SELECT names. `NoSelect` if the text is something else: Spark would carry it out at once."""
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    gateway = spark.sparkContext._gateway
    if any(is_instance_of(gateway, plan, _PLANS + name) for name in _NO_QUERIES):
        raise NoSelect
    return set(_RELATION.findall(plan.toString()))


def refused(spark: SparkSession, frame: DataFrame, mode: str) -> AnalysisException | None:
    """What Spark says to a query of these rows in this mode, without starting one. None if it takes it, or cannot be
    asked in this version: then it says so when the query is started."""
    jvm: Any = spark._jvm
    try:
        output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), output_mode)
    except AnalysisException as error:
        return error
    except (Py4JError, TypeError):
        return None
    return None
