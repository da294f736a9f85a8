"""SQL and plans, looked at by Spark's parser and its checks for streams, without carrying anything out: is it a SELECT,
which views does it name, can it be written in its mode. Spark itself only says the last when a query starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from klamm.spark.errors import SparkError
from klamm.spark.pipelines.mistakes import Mistake, Place
from klamm.spark.pipelines.model import Flow, Sql
from klamm.spark.pipelines.said import plain
from klamm.spark.pipelines.yaml_lines import listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical."
_NO_QUERIES: Final = ("Command", "ParsedStatement", "UnaryParsedStatement", "CompoundBody")
_NO_WATERMARK: Final = "without watermark"
_CLAUSES: Final = (("Sorting", r"\b(order|sort)\s+by\b"), ("Limit", r"\blimit\b"))
"""What Spark complains of without saying where it stands, and how it is found."""
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_RELATION: Final = re.compile(r"UnresolvedRelation \[(?:[^\],]+, )*([^\],]+)\]")


@contextmanager
def quiet() -> Iterator[None]:
    """PySpark logs every error that has a place in a query, with all its traces. Here they are told otherwise."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]  # plain ones of that name would not do for PySpark
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


def wrong_mode(spark: SparkSession, flow: Flow, frame: DataFrame) -> Mistake | None:
    error = refused(spark, frame, flow.mode)
    if error is None:
        return None
    others = [mode for mode in ("append", "update", "complete") if refused(spark, frame, mode) is None]
    use = f"Use mode: {listed(others, 'or')}." if others else ""
    said = plain(str(error))
    if _NO_WATERMARK in said:
        why = "In append mode a result is written when it is final, and without a watermark none ever is."
        more = "give the input a watermark, and group by a window of its event time."
        return Mistake(flow.at("mode"), why, f"{use} Or {more}" if use else more.capitalize())
    if flow.mode == "complete" and others:
        why = "In complete mode all results are written each time, and a flow without GROUP BY keeps none."
        return Mistake(flow.at("mode"), why, use)
    if "output mode" in said.lower() and others:
        return Mistake(flow.at("mode"), said, use)
    return Mistake(_clause(flow, said), said)


def _clause(flow: Flow, said: str) -> Place:
    if isinstance(flow.code, Sql):
        for word, pattern in _CLAUSES:
            places = list(re.finditer(pattern, flow.code.text, re.IGNORECASE))
            if word in said and places:
                before = flow.code.text[: places[-1].start()]
                return Place(flow.code.place.file, before.count("\n") + 1, len(before) - before.rfind("\n"))
    return flow.code.place


def grows(spark: SparkSession, flow: Flow, frame: DataFrame) -> Mistake | None:
    """State that nothing ever takes away. In append mode Spark refuses it, in complete mode it is what is wanted."""
    if flow.mode != "update" or _NO_WATERMARK not in str(refused(spark, frame, "append") or ""):
        return None
    text = "What this flow remembers only grows: it groups by nothing that has a watermark."
    return Mistake(flow.place, text, "Give the input a watermark, and group by a window of its event time.")
