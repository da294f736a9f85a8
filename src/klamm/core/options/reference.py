"""The table of options for people: what `klamm config docs` and docs/options.md show. Loaded only for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klamm.core.options.brokers import BROKER_OPTIONS
from klamm.core.options.client_metrics import CLIENT_METRICS_OPTIONS
from klamm.core.options.groups import GROUP_OPTIONS
from klamm.core.options.known import KNOWN_OPTIONS
from klamm.core.options.option import INT_MAX, LONG_MAX, Kind, Option, text_of
from klamm.core.options.topics import TOPIC_OPTIONS

_TYPES = {
    Kind.BOOL: "boolean",
    Kind.STRING: "string",
    Kind.INT: "int",
    Kind.SHORT: "short",
    Kind.LONG: "long",
    Kind.DOUBLE: "double",
    Kind.LIST: "list",
    Kind.CLASS: "class",
    Kind.PASSWORD: "password",
}

_INTRO = """\
# Options

Made from the table in the source by `klamm config docs --markdown`; `klamm config docs NAME` shows one option.

Options have Kafka's names, types, defaults and bounds; where a default or a bound is not Kafka's, the source says why.
Names that begin with `klamm.` are ours. Broker options come from a properties file (`klamm start --config`, Kafka's own
`server.properties` loads) and from `--set NAME=VALUE`. A name that no option has is a warning in a file and a mistake
anywhere else.

*Change* says when a broker option may be changed, in Kafka's words: `read-only` at a start, `per-broker` while the
broker runs (`klamm config set`, `kafka-configs`), `cluster-wide` the same for one broker or for all. Such a change is
in force at once and outlives a restart. Topic options can be changed at any time. A topic's own value goes before the
broker's, a dynamic value before the file's, and one for a broker before one for all.
"""


class Section(NamedTuple):
    title: str
    of: str
    about: str
    options: list[Option]

    @property
    def of_broker(self) -> bool:
        return self.of == "brokers"


def sections() -> list[Section]:
    topics = list(TOPIC_OPTIONS.values())
    return [
        Section("Topic options", "topics", "", [option for option in topics if option.honoured]),
        Section("Broker options", "brokers", "", _sorted(BROKER_OPTIONS.values())),
        Section(
            "Topic options without effect",
            "topics",
            "Accepted, kept and shown; the broker warns that they change nothing.",
            [option for option in topics if not option.honoured],
        ),
        Section(
            "Broker options without effect",
            "brokers",
            "Every other broker option of Kafka 4.3: accepted, with one warning for all, so that a Kafka file loads.",
            _sorted(KNOWN_OPTIONS.values()),
        ),
        Section("Group options", "groups", "Checked and kept; they change nothing yet.", list(GROUP_OPTIONS.values())),
        Section(
            "Client metrics options",
            "subscriptions to client metrics",
            "Checked and kept; they change nothing yet.",
            list(CLIENT_METRICS_OPTIONS.values()),
        ),
    ]


def find(name: str) -> Iterator[tuple[Section, Option]]:
    """A name may be an option of topics and of brokers."""
    for section in sections():
        for option in section.options:
            if option.name == name:
                yield section, option


def names() -> list[str]:
    return sorted({option.name for section in sections() for option in section.options})


def fields(section: Section, option: Option) -> list[tuple[str, str]]:
    """One option in full, as names and values."""
    found = [
        ("name", option.name),
        ("of", section.of),
        ("type", _TYPES[option.kind]),
        ("default", default(option)),
        ("allowed", allowed(option)),
        ("what it does", option.doc),
    ]  # fmt: skip
    if section.of_broker:
        found.append(("change", option.update.value))
    if option.synonyms:
        found.append(("broker option", ", ".join(synonym.name for synonym in option.synonyms)))
    if not option.honoured:
        found.append(("effect", "none in Klamm, known from Kafka"))
    return found


def default(option: Option) -> str:
    if option.default is None:
        return "not set"
    return text_of(option.default) or "empty"


def allowed(option: Option) -> str:
    if option.choices:
        return ", ".join(option.choices)
    low, high = _number(option.at_least), _number(option.at_most)
    if low and high:
        text = f"{low} to {high}"
    else:
        text = f"from {low}" if low else f"up to {high}" if high else ""
    return f"{text} or {option.or_else}" if option.or_else is not None else text


def _number(value: float | None) -> str:
    return "" if value is None or value in (INT_MAX, LONG_MAX) else f"{value:g}" if value % 1 else str(int(value))


def markdown() -> str:
    parts = [_INTRO]
    for section in sections():
        parts.append(f"\n## {section.title}\n")
        if section.about:
            parts.append(f"\n{section.about}\n")
        parts.append("\n" + "\n".join(_rows(section)) + "\n")
    return "".join(parts)


def _rows(section: Section) -> Iterator[str]:
    change = " Change |" if section.of_broker else " Broker option |" if _has_synonyms(section) else ""
    yield f"| Name | Type | Default | Allowed |{change} What it does |"
    yield "|---" * (6 if change else 5) + "|"
    for option in section.options:
        cells = [f"`{option.name}`", _TYPES[option.kind], default(option), allowed(option)]
        if section.of_broker:
            cells.append(option.update.value)
        elif change:
            cells.append(", ".join(f"`{synonym.name}`" for synonym in option.synonyms))
        cells.append(option.doc)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _has_synonyms(section: Section) -> bool:
    return any(option.synonyms for option in section.options)


def _sorted(options: Iterable[Option]) -> list[Option]:
    return sorted(options, key=lambda option: option.name)
