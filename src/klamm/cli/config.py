"""`klamm config`: the options in force, and changing them."""

from __future__ import annotations

import argparse

from klamm.cli import config_docs, config_values


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    config_values.add_verbs(verbs)
    config_docs.add_docs(verbs)
