"""`klamm pipeline check`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from klamm.cli.output import remark
from klamm.cli.pipeline_load import load_pipeline
from klamm.cli.pipeline_session import start_session

if TYPE_CHECKING:
    from klamm.spark.pipelines.mistakes import Mistake

_WRONG: Final = 2


def run_check(args: argparse.Namespace) -> int:
    pipeline = load_pipeline(args.folder, args.bootstrap)
    if pipeline is None:
        return _WRONG
    from klamm.spark.pipelines.check import check
    from klamm.spark.pipelines.mistakes import Mistakes

    with TemporaryDirectory() as folder:
        log = os.path.join(folder, "spark.log")
        try:
            spark = start_session(pipeline, "local[1]", log, _of_the_process(pipeline.spark))
        except Mistakes as mistakes:
            tell_mistakes(mistakes.found)
            return _WRONG
        try:
            found = check(pipeline, spark, cluster=not args.no_cluster)
        finally:
            spark.stop()
    for warning in found.warnings:
        remark(f"{warning.place}: warning: {warning.text}{' ' if warning.hint else ''}{warning.hint}")
    if tell_mistakes(found.mistakes):
        return _WRONG
    print("\n".join(found.summary()))
    return 0


def _of_the_process(settings: Mapping[str, str]) -> dict[str, str]:
    """Those that have to be there before Spark starts. The others are set later, where a bad one can be told."""
    early = ("spark.sql.extensions", "spark.sql.catalog", "spark.sql.warehouse.dir")
    return {
        name: value
        for name, value in settings.items()
        if name != "spark.master" and (name.startswith(early) or not name.startswith("spark.sql."))
    }


def tell_mistakes(mistakes: Iterable[Mistake]) -> bool:
    """A line for each; whether there are any."""
    lines = "".join(f"{mistake}\n" for mistake in mistakes)
    print(lines, end="", flush=True)
    return bool(lines)
