"""What the lists of options without effect are written with: a line each, and short words for what repeats."""

from __future__ import annotations

from collections.abc import Sequence

from klamm.core.options.option import Kind, Option, Update, Value

BOOL, STRING, INT, SHORT, LONG = Kind.BOOL, Kind.STRING, Kind.INT, Kind.SHORT, Kind.LONG
DOUBLE, LIST, CLASS, PASSWORD = Kind.DOUBLE, Kind.LIST, Kind.CLASS, Kind.PASSWORD

PER_BROKER = Update.PER_BROKER
ANY_TIME = Update.CLUSTER_WIDE


def idle(
    name: str,
    kind: Kind,
    default: Value,
    doc: str,
    at_least: float | None = None,
    at_most: float | None = None,
    *,
    choices: Sequence[str] = (),
    update: Update = Update.READ_ONLY,
    internal: bool = False,
) -> Option:
    """Defaults, bounds and the way to change it are Kafka 4.3's: a value that Kafka would refuse is a mistake here
    too."""
    return Option(
        name,
        kind,
        default,
        doc,
        at_least=at_least,
        at_most=at_most,
        choices=choices,
        update=update,
        honoured=False,
        internal=internal,
    )
