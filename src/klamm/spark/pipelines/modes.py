"""Whether a flow can be written in its mode: Spark only says so when a query starts. Here it is asked before."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from klamm.spark.pipelines.mistakes import Mistake, Place
from klamm.spark.pipelines.model import Flow, Sql
from klamm.spark.pipelines.queries import refused
from klamm.spark.pipelines.spark_said import plain
from klamm.spark.pipelines.yaml_lines import listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_WATERMARK: Final = "without watermark"
_CLAUSES: Final = (("Sorting", r"\b(order|sort)\s+by\b"), ("Limit", r"\blimit\b"))
"""What Spark complains of without saying where it stands, and how it is found."""


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
