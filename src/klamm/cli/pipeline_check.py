"""`klamm pipeline check`."""

from __future__ import annotations

import argparse
from typing import Final

from klamm.cli.output import remark
from klamm.cli.parsing import Failed
from klamm.cli.pipeline_load import load_pipeline

_WRONG: Final = 2


def run_check(args: argparse.Namespace) -> int:
    pipeline = load_pipeline(args.folder, args.bootstrap)
    if pipeline is None:
        return _WRONG
    from klamm.client.errors import ClientError
    from klamm.spark.pipelines.check import check

    try:
        found = check(pipeline, cluster=not args.no_cluster)
    except ClientError as error:  # no Java, say
        raise Failed(error.text, error.hint) from None
    for warning in found.warnings:
        remark(f"{warning.place}: warning: {warning.text}{' ' if warning.hint else ''}{warning.hint}")
    for mistake in found.mistakes:
        print(mistake)
    if found.mistakes:
        return _WRONG
    print("\n".join(found.summary()))
    return 0
