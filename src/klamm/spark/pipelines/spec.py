"""A pipeline's folder, read and checked as far as that goes without Spark: `load`."""

from __future__ import annotations

from klamm.spark.pipelines.mistakes import Mistake, Mistakes, Place
from klamm.spark.pipelines.model import Flow, Input, Output, Pipeline, Python, Sql, Table

__all__ = ["Flow", "Input", "Mistake", "Mistakes", "Output", "Pipeline", "Place", "Python", "Sql", "Table", "load"]


def load(folder: str) -> Pipeline:
    """The pipeline in this folder; `Mistakes` has all that is wrong with it."""
    raise NotImplementedError
