"""The `klamm` command: one module for each verb, imported only when it is the one that was asked for.

argparse and not a framework: `import typer` takes 0.12 s and `import argparse` 0.01 s of the 0.3 s in which a broker
has to be up. A verb's module has a `configure(parser)` that adds its arguments and sets `run`, a function from the
parsed arguments to an exit code: 0 done, 1 the cluster said no, 2 a mistake in the command, 130 Ctrl-C. A user's
mistake never shows a traceback.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import klamm
from klamm.cli.parsing import Failed, Parser, UsageError, sentence

__all__ = ["VERBS", "Failed", "UsageError", "build_parser", "main"]

VERBS = {
    "start": "start a broker",
    "produce": "write lines, files or JSON to a topic",
    "consume": "read topics from the beginning, the end, an offset or a time",
    "topic": "create, list, describe, alter and delete topics",
    "group": "list and describe consumer groups, show and reset their offsets, delete them",
    "txn": "list, describe and abort transactions, find those that hang",
    "config": "show and change options of topics and brokers",
    "cluster": "show the brokers of a cluster and what they can do",
    "top": "watch the rates of topics and brokers, live",
    "pipeline": "make, check and run pipelines on Spark",
    "log": "look into the files of a log, and repair one",
    "info": "show what is installed here, and which code reads records",
    "completion": "print the script that completes this command in your shell",
}

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_EXAMPLES = """\
examples:
  klamm start                                  a broker at 127.0.0.1:9092, its data in ./klamm-data
  klamm topic create orders --partitions 3
  echo 'hello, stream' | klamm produce orders
  klamm consume orders --from beginning --exit-at-end
  klamm topic describe orders                  partitions, offsets, sizes, configs
  klamm top                                    what is going on, live
  klamm help topic create                      all about one command, with examples

Commands that talk to a cluster work with any Kafka. They find it by --bootstrap HOST:PORT, the variable
KLAMM_BOOTSTRAP, or a profile in ~/.config/klamm/profiles.toml; else they try localhost:9092.
"""


class _Version(argparse.Action):
    """Brings the record code only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from klamm.records.kernel import implementation

        print(f"klamm {klamm.__version__} (records: {implementation})")
        parser.exit()


def build_parser(verb: str | None) -> tuple[Parser, dict[str, Parser]]:
    """The parser, with the arguments of this one verb, and the parsers of all verbs."""
    parser = Parser(prog="klamm", description="A Kafka-compatible event-streaming platform.", epilog=_EXAMPLES)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version, and which code reads records")
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in VERBS.items():
        sub = verbs.add_parser(name, help=summary, description=sentence(summary))
        sub.set_defaults(parser=sub)
        if name == verb:
            importlib.import_module(f"klamm.cli.{name}").configure(sub)
    return parser, dict(verbs.choices)


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return _main(argv)
    except KeyboardInterrupt:  # also while a verb is being imported
        return 130


def _main(argv: Sequence[str] | None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["__complete"]:
        return _complete(args[1:])
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    parser, verbs = build_parser(args[0] if args else None)
    if not args:
        parser.print_help(sys.stderr)
        return 2
    options, unknown = parser.parse_known_args(args)
    if unknown:  # told by the verb, whose help is the one to see
        getattr(options, "parser", verbs.get(args[0], parser)).unknown(unknown)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except UsageError as mistake:
        print(f"klamm: {mistake}", file=sys.stderr)
        return 2
    except Failed as failure:
        print(f"klamm: {failure}", file=sys.stderr)
        if failure.hint:
            print(failure.hint, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output (head, less) has had enough
        _drop_output()
        return 0
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _drop_output()
        print(f"klamm: the output could not be written: {error.strerror}", file=sys.stderr)
        return 1
    return code


def _drop_output() -> None:
    """What is still buffered has to go somewhere when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complete(words: list[str]) -> int:
    """For shells: never says anything but candidates."""
    from klamm.cli import complete

    try:
        return complete.run(words)
    except (UsageError, OSError, KeyboardInterrupt):
        return 1
