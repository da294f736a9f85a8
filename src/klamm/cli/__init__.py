"""The `klamm` command: one module for each verb, imported only when it is the one that was asked for.

argparse and not a framework: `import typer` takes 0.12 s and `import argparse` 0.01 s of the 0.3 s in which a broker
has to be up. A verb's module has a `configure(parser)` that adds its arguments and sets `run`, a function from the
parsed arguments to an exit code.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import klamm

VERBS = {
    "start": "start a broker",
    "log": "look into the files of a log, and repair one",
}


class UsageError(Exception):
    """A mistake of the user's: its text is one sentence that says what to do; no traceback, exit code 2."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where help is, instead of showing the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"klamm: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    parser = _Parser(prog="klamm", description="A Kafka-compatible event-streaming platform.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"klamm {klamm.__version__}")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(
            verb,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if verb in args[:1]:
            importlib.import_module(f"klamm.cli.{verb}").configure(sub)
    if not args:
        parser.print_help(sys.stderr)
        return 2
    options, unknown = parser.parse_known_args(args)
    if unknown:  # told by the verb, whose help is the one to see
        verbs.choices.get(args[0], parser).error(f"unknown arguments: {' '.join(unknown)}")
    try:
        code: int = options.run(options)
    except UsageError as mistake:
        print(f"klamm: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output (head, less) has had enough
        sys.stderr.close()
        return 0
    return code
