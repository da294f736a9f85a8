"""`klamm pipeline`: folders with a pipeline.yml that run on Spark. Neither Spark nor YAML is imported before a command
needs it: both are in the extra `klamm[spark]`, and slow to import."""

from __future__ import annotations

import argparse

from klamm.cli.parsing import add_verb, seconds, whole_number
from klamm.cli.pipeline_check import run_check
from klamm.cli.pipeline_new import run_new
from klamm.cli.pipeline_run import LOG_LEVELS, run_run
from klamm.cli.pipeline_status import run_status

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

_RUN = """
  klamm pipeline run activity                                until Ctrl-C
  klamm pipeline run activity --once                         what is there now, and no more
  klamm pipeline run activity --master spark://host:7077     on a cluster
"""
_RUN_ABOUT = """\
Run a pipeline: one streaming query for each flow with an output, and one for the dead letters of each input that can
have them. It goes on where it was when it ended, however it ended.

Ctrl-C (exit code 130) and SIGTERM (exit code 0) stop it; what was begun and not written is done again next time. If a
query fails, all are stopped, and the exit code is 1. What Spark has to say is in spark.log, beside the checkpoints."""
_STATUS = """
  klamm pipeline status activity
  klamm pipeline status activity -n 1 -o json | jq '.queries[] | {name, lag, error}'
"""
_STATUS_ABOUT = """\
Watch a pipeline: for each flow rows a second in and out, how far it is behind, its last batch and how long that took,
all rows since it was started, how many rows its state has, and its watermark. Rates are of the last ten seconds.

The process that runs the pipeline leaves these figures beside its checkpoints. LAG is asked for in the cluster: it is
that of the group PIPELINE.FLOW, which klamm group describe shows by partition."""


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
    _configure_run(verbs)
    _configure_status(verbs)


def _configure_run(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    start = add_verb(verbs, "run", "run a pipeline on Spark", run_run, about=_RUN_ABOUT, examples=_RUN)
    start.add_argument("folder", metavar="DIR", help="the folder with its pipeline.yml")
    start.add_argument("--once", action="store_true", help="end when all that is there now is read")
    start.add_argument("--master", metavar="URL", help="where Spark runs it: local[4], spark://host:7077 (default: "
                       "spark.master in pipeline.yml, or all cores of this machine)")  # fmt: skip
    start.add_argument("--log-level", choices=LOG_LEVELS, default="error", metavar="LEVEL",
                       help=f"of Spark: {', '.join(LOG_LEVELS)} (default: error); all but error go to standard error, "
                       "and debug also shows Spark's traces of a failure")  # fmt: skip
    add_bootstrap(start)
    add_checkpoints(start)


def _configure_status(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    look = add_verb(verbs, "status", "watch the flows of a pipeline, live", run_status, about=_STATUS_ABOUT,
                    examples=_STATUS)  # fmt: skip
    look.add_argument("folder", metavar="DIR", help="the folder with its pipeline.yml")
    look.add_argument("-i", "--interval", metavar="SECONDS", type=seconds, default=2.0,
                      help="time between two looks (default: 2)")  # fmt: skip
    look.add_argument("-n", "--count", metavar="N", type=whole_number(1), help="end after so many (default: never)")
    look.add_argument("-o", "--output", choices=["screen", "table", "json"], metavar="FORMAT",
                      help="screen, table (one after the other), json (one object a line); default: screen in a "
                      "terminal, else table")  # fmt: skip
    add_bootstrap(look)
    add_checkpoints(look)


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--bootstrap", "--bootstrap-server", metavar="HOST:PORT",
                        help="a broker of the cluster to use in place of the one in pipeline.yml")  # fmt: skip


def add_checkpoints(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoints", metavar="DIR",
                        help="a folder to use in place of the one in pipeline.yml: one for each cluster")  # fmt: skip
