"""What the verbs of `klamm pipeline` share: the pipeline that a folder holds, as this command line wants it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from klamm.cli.parsing import Failed

if TYPE_CHECKING:
    from klamm.spark.pipelines.model import Pipeline


def need_spark() -> None:
    """`Failed` where what pipelines stand on is not installed."""
    from importlib.util import find_spec

    if find_spec("pyspark") is None or find_spec("yaml") is None:
        raise Failed(
            "pipelines need Spark, and it is not installed here.",
            "Install it from the folder of Klamm's sources: pip install '.[spark]'",
        )


def load_pipeline(folder: str, bootstrap: str | None = None, checkpoints: str | None = None) -> Pipeline | None:
    """The pipeline in this folder; None if there are mistakes in its files, which are told on standard output."""
    need_spark()
    from klamm.spark.pipelines.spec import Mistakes, load

    if checkpoints is not None and "://" not in checkpoints:
        checkpoints = os.path.abspath(checkpoints)
    try:
        found = load(folder, checkpoints)
    except Mistakes as mistakes:
        print(mistakes)
        return None
    return found if bootstrap is None else replace(found, bootstrap=bootstrap)
