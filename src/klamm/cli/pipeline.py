"""`klamm pipeline`: folders with a pipeline.yml that run on Spark. Neither Spark nor YAML is imported before a command
needs it: both are in the extra `klamm[spark]`, and slow to import."""

from __future__ import annotations

import argparse

from klamm.cli.parsing import add_verb
from klamm.cli.pipeline_check import run_check
from klamm.cli.pipeline_new import run_new

_CHECK = """
  klamm pipeline check activity
  klamm pipeline check activity --bootstrap broker:9092
  klamm pipeline check activity --no-cluster                 without a broker
"""
_CHECK_ABOUT = """\
Say what is wrong with a pipeline, before anything runs: a line FILE:LINE:COLUMN: TEXT for each mistake, and exit code 2
if there is any.

It reads pipeline.yml, asks the cluster for the topics, and has Spark look at columns and types of every flow. Nothing
is read, written or created. Python files of flows are imported, and their functions called: they make a plan, and no
data goes through them."""
_NEW = """
  klamm pipeline new clicks
  klamm pipeline check clicks --no-cluster
"""
_NEW_ABOUT = """\
Make a folder with a small pipeline that works: a topic with JSON is counted in windows of time by SQL, into another
topic. Its README.md has the commands to try it. Change it into your own."""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    make = add_verb(verbs, "new", "make a folder with a small pipeline to begin with", run_new, about=_NEW_ABOUT,
                    examples=_NEW)  # fmt: skip
    make.add_argument("folder", metavar="DIR", help="a folder that is empty or not there yet")
    check = add_verb(verbs, "check", "find the mistakes in a pipeline before it runs", run_check, about=_CHECK_ABOUT,
                     examples=_CHECK)  # fmt: skip
    check.add_argument("folder", metavar="DIR", help="the folder with its pipeline.yml")
    add_bootstrap(check)
    check.add_argument("--no-cluster", action="store_true", help="do not ask the cluster for topics")


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--bootstrap", "--bootstrap-server", metavar="HOST:PORT",
                        help="a broker of the cluster to use in place of the one in pipeline.yml")  # fmt: skip
