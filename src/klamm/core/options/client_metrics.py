"""The options of a subscription to clients' metrics (KIP-714). Nobody asks clients for metrics here yet; what is set is
kept and checked.

Loaded only when somebody asks for or changes one.
"""

from __future__ import annotations

import re

from klamm.core.options.option import Kind, Option, OptionError, Value
from klamm.core.options.options import unknown_name

MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def _pattern_problem(value: Value) -> str | None:
    for item in value if isinstance(value, tuple) else ():
        name, equals, pattern = item.partition("=")
        if not equals or name.strip() not in MATCHED:
            return f"is not NAME=PATTERN with one of {', '.join(MATCHED)}"
        try:
            re.compile(pattern.strip())
        except re.error as error:
            return f"has a pattern that cannot be read: {error}"
    return None


_TABLE = (
    Option(
        "interval.ms",
        Kind.INT,
        300_000,
        "How often clients send their metrics.",
        at_least=100,
        at_most=3_600_000,
        honoured=False,
    ),
    Option(
        "match",
        Kind.LIST,
        (),
        "Which clients are meant: NAME=PATTERN, separated by commas; nothing means all.",
        check=_pattern_problem,
        honoured=False,
    ),
    Option("metrics", Kind.LIST, (), "Prefixes of the names of metrics; * means all.", honoured=False),
)

CLIENT_METRICS_OPTIONS = {option.name: option for option in _TABLE}


def check_client_metrics(name: str, text: str) -> Value:
    option = CLIENT_METRICS_OPTIONS.get(name)
    if option is None:
        raise OptionError(unknown_name(name, CLIENT_METRICS_OPTIONS, "client metrics option"))
    return option.parse(text)
