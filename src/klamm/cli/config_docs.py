"""`klamm config docs`: the options there are and what they do, from the table in this program; no broker is asked."""

from __future__ import annotations

import argparse
from typing import Any

from klamm.cli.output import add_output, print_fields, print_json, print_table
from klamm.cli.parsing import UsageError, add_verb, did_you_mean

_EXAMPLES = """
  klamm config docs                              options that do something, with their defaults
  klamm config docs retention.ms                 all about one
  klamm config docs compression                  those whose name has this in it
  klamm config docs --all                        also those of Kafka that have no effect here
  klamm config docs --markdown > options.md      the whole table as a page
"""

_WIDEST_DEFAULT = 27


def add_docs(verbs: Any) -> None:
    parser = add_verb(verbs, "docs", "explain the options there are", run, examples=_EXAMPLES)
    parser.add_argument("name", metavar="NAME", nargs="?", help="an option, or a part of its name")
    parser.add_argument("-a", "--all", action="store_true", help="with the options of Kafka that have no effect here")
    parser.add_argument("--markdown", action="store_true", help="the whole table as Markdown")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    from klamm.core.options import reference

    if args.markdown:
        if args.name:
            raise UsageError("--markdown shows the whole table; leave out the name")
        print(reference.markdown(), end="")
        return 0
    exact = list(reference.find(args.name)) if args.name else []
    found = exact or [
        (section, option)
        for section in reference.sections()
        for option in section.options
        if (args.name or "") in option.name and (args.all or args.name or option.honoured)
    ]
    if not found:
        raise UsageError(f"no option is named {args.name}{did_you_mean(args.name, reference.names())}")
    if args.output == "json":
        print_json(
            [dict(reference.fields(section, option)) | {"honoured": option.honoured} for section, option in found]
        )
    elif exact or len(found) == 1:
        for number, (section, option) in enumerate(found):
            if number:
                print()
            print_fields(reference.fields(section, option))
    else:
        print_table(
            ["OF", "OPTION", "DEFAULT", "WHAT IT DOES"],
            [(section.of, option.name, _short(reference.default(option)), _doc(option.doc, option.honoured))
             for section, option in found],
        )  # fmt: skip
    return 0


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST_DEFAULT else f"{text[: _WIDEST_DEFAULT - 3]}..."


def _doc(doc: str, honoured: bool) -> str:
    return doc if honoured else f"(no effect) {doc}"
