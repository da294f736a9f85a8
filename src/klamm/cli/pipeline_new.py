"""`klamm pipeline new`: a small pipeline to begin with."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Mapping, Sequence

from klamm.cli.parsing import UsageError

_PIPELINE = """\
# What the topic {topic} holds, counted in windows of ten seconds. `klamm pipeline check` says what is wrong here.
name: {name}
bootstrap: localhost:9092

inputs:
  clicks:                         # a view for SQL
    topic: {topic}
    format: json                  # or csv, text, raw
    schema: user string, page string, at timestamp
    event_time: at
    watermark: 10 seconds         # so long a record may be late
    starting: earliest            # where to begin the first time; or latest
    # What is no such JSON goes to the topic {topic}.dead.

flows:
  clicks_by_page:                 # in its turn a view for the flows below it
    sql: clicks_by_page.sql
    output: {{topic: {result}, key: page, format: json}}
    mode: update                  # each window again whenever it changes; append: once, when it is over
    trigger: 1 second
"""
_SQL = """\
-- Clicks on each page in every ten seconds, by the time that the records themselves have.
SELECT
  window(at, '10 seconds').start AS begins,
  page,
  count(*) AS clicks,
  approx_count_distinct(user) AS users
FROM clicks
GROUP BY window(at, '10 seconds'), page
"""
_README = """\
# {name}

Clicks on pages, counted in windows of ten seconds. `pipeline.yml` says what is read and written,
`clicks_by_page.sql` what happens in between.

{first}

In another terminal:

{then}

A pipeline that was stopped or killed goes on where it was: that stands in `.checkpoints`. Remove that folder to begin
anew.
"""
_FIRST = (
    ("klamm start", "a broker, in a terminal of its own"),
    ("klamm topic create {topic}", ""),
    ("klamm pipeline check {folder}", "is all well?"),
    ("klamm pipeline run {folder}", "until Ctrl-C; with --once until all is read"),
)
_THEN = (
    ("""echo '{{"user": "ann", "page": "/home", "at": "'$(date -u +%FT%TZ)'"}}' | klamm produce {topic}""", ""),
    ("klamm consume {result} --from beginning", ""),
    ("klamm pipeline status {folder}", "rates, lag, time of a batch"),
    ("echo 'no JSON' | klamm produce {topic}", "goes to the topic {topic}.dead"),
)
_IGNORE = ".checkpoints/\n"


def run_new(args: argparse.Namespace) -> int:
    folder: str = args.folder
    try:
        if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
            raise UsageError(f"{folder} is there already, and not an empty folder; name another")
        os.makedirs(folder, exist_ok=True)
        for name, text in files(folder).items():
            with open(os.path.join(folder, name), "x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"cannot make a pipeline in {folder}: {error.strerror}") from None
    print(f"Made a pipeline in {folder}. Its README.md says how to try it; begin with:")
    print(f"  klamm pipeline check {shlex.quote(folder)} --no-cluster")
    return 0


def files(folder: str) -> dict[str, str]:
    """The names and texts of what is in a new pipeline's folder."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.basename(os.path.abspath(folder))).strip("-") or "clicks"
    words = {"name": name, "folder": shlex.quote(folder), "topic": "clicks", "result": "clicks-by-page"}
    words |= {"first": _commands(_FIRST, words), "then": _commands(_THEN, words)}
    return {
        "pipeline.yml": _PIPELINE.format(**words),
        "clicks_by_page.sql": _SQL,
        "README.md": _README.format(**words),
        ".gitignore": _IGNORE,
    }


def _commands(lines: Sequence[tuple[str, str]], words: Mapping[str, str]) -> str:
    """One below the other, with their remarks in a column."""
    filled = [(command.format(**words), remark.format(**words)) for command, remark in lines]
    width = max(len(command) for command, remark in filled if remark)
    return "\n".join(
        f"    {command.ljust(width)}  # {remark}" if remark else f"    {command}" for command, remark in filled
    )
