"""How `klamm top` looks: a model becomes lines of text for a terminal of a given size. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from klamm.cli.output import plural, table
from klamm.cli.top_model import BrokerRow, Model, TopicRow
from klamm.cli.units import show_count, show_size

_BARS: Final = "▁▂▃▄▅▆▇█"
_GRAPH: Final = 20
_NARROW: Final = 90
"""In a terminal with fewer columns the graphs of topics are left out."""
_JSON_NAMES: Final = {
    "records_s": "records_per_s",
    "written_s": "written_bytes_per_s",
    "read_s": "read_bytes_per_s",
    "requests_s": "requests_per_s",
    "received_s": "received_bytes_per_s",
    "sent_s": "sent_bytes_per_s",
    "errors_s": "errors_per_s",
    "size": "size_bytes",
    "memory": "memory_bytes",
}
BOLD: Final = "\x1b[1m"
REVERSED: Final = "\x1b[7m"
RED: Final = "\x1b[31m"
PLAIN: Final = "\x1b[0m"


class Look(NamedTuple):
    """What the keys have chosen."""

    sort: str = "rate"
    internal: bool = False
    paused: bool = False
    pattern: str = ""


def screen(model: Model, look: Look, width: int, height: int, trouble: str = "") -> list[str]:
    """At most `height` lines of at most `width` characters, with colours."""
    lines = _head(model, look, width, trouble)
    brokers = _broker_table(model.brokers())
    if len(lines) + len(brokers) + 6 <= height:  # a small terminal keeps its lines for the topics
        lines += [("", line) if i else (BOLD, line) for i, line in enumerate(brokers)]
        lines.append(("", ""))
    topics = topic_table(_chosen(model, look), model if width >= _NARROW else None)
    room = max(1, height - len(lines) - 1)
    shown = topics[:room]
    if len(topics) > room:
        shown[-1] = f"... and {len(topics) - room + 1} more"
    lines += [("", line) if i else (BOLD, line) for i, line in enumerate(shown)]
    lines += [("", "")] * (height - 1 - len(lines))
    lines = [*lines[: height - 1], (REVERSED, _keys(look).ljust(width))]
    return [f"{style}{line[:width]}{PLAIN if style else ''}" for style, line in lines]


def _head(model: Model, look: Look, width: int, trouble: str) -> list[tuple[str, str]]:
    if model.now is None:
        return [(BOLD, "klamm top"), (RED, trouble) if trouble else ("", "asking ..."), ("", "")]
    metadata = model.now.metadata
    partitions = sum(len(topic.partitions) for topic in metadata.topics.values())
    counts = [plural(len(metadata.brokers), "broker"), plural(len(metadata.topics), "topic"),
              plural(partitions, "partition")]  # fmt: skip
    records, written, read = model.totals()
    rates = [f"{_rate(records) or '-'} records/s", f"written {_speed(written) or '-'}"]
    if read is not None:
        rates.append(f"read {_speed(read)}")
    peak = f"  peak {show_count(max(model.total_history))}" if model.total_history else ""
    lines = [
        (BOLD, f"klamm top  cluster {metadata.cluster_id or '-'}  {', '.join(counts)}"),
        ("", f"{', '.join(rates)}  {graph(model.total_history, min(_GRAPH * 2, width // 3))}{peak}"),
    ]
    if trouble:
        lines.append((RED, trouble))
    elif model.problems:
        lines.append((RED, f"problems: {'; '.join(model.problems)}"))
    return [*lines, ("", "")]


def _keys(look: Look) -> str:
    state = " PAUSED " if look.paused else " "
    narrowed = f"  names with {look.pattern!r}" if look.pattern else ""
    return (
        f"{state}q quit  space pause  sort: r rate, n name, c records, z size (now {look.sort})  i internal{narrowed}"
    )


def topic_table(rows: Sequence[TopicRow], model: Model | None = None) -> list[str]:
    headers = ["TOPIC", "PARTITIONS", "RECORDS/S", "WRITTEN/S", "READ/S", "RECORDS", "SIZE"]
    cells: list[list[object]] = [
        [row.name, row.partitions, _rate(row.records_s), _speed(row.written_s), _speed(row.read_s),
         None if row.records is None else show_count(row.records), _size(row.size)]
        for row in rows
    ]  # fmt: skip
    if model is not None:
        headers.append("LATELY")
        for row, line in zip(rows, cells, strict=True):
            line.append(graph(model.history(row.name), _GRAPH))
    headers.append("NOTES")
    for row, line in zip(rows, cells, strict=True):
        line.append(row.notes)
    return table(headers, cells) if rows else ["(no topics)"]


def _broker_table(rows: Sequence[BrokerRow]) -> list[str]:
    headers = ("BROKER", "ADDRESS", "LEADS", "REPLICAS", "CONNECTIONS", "REQUESTS/S", "IN/S", "OUT/S", "ERRORS/S",
               "CPU", "MEMORY", "NOTES")  # fmt: skip
    return table(headers, [
        (row.id, row.address, row.leads, row.replicas, row.connections, _rate(row.requests_s), _speed(row.received_s),
         _speed(row.sent_s), _rate(row.errors_s), None if row.cpu is None else f"{row.cpu * 100:.0f}%",
         _size(row.memory), row.notes)
        for row in rows
    ])  # fmt: skip


def as_text(model: Model, look: Look) -> list[str]:
    """The same for a pipe or a file: no colours, nothing cut."""
    records, written, _ = model.totals()
    lines = [f"{_rate(records) or '-'} records/s, written {_speed(written) or '-'}"]
    lines += [f"problem: {problem}" for problem in model.problems]
    return [*lines, *topic_table(_chosen(model, look)), ""]


def as_json(model: Model, look: Look) -> dict[str, Any]:
    """Rates are by the second."""
    records, written, read = model.totals()
    return {
        "records_per_s": records,
        "written_bytes_per_s": written,
        "read_bytes_per_s": read,
        "problems": model.problems,
        "brokers": [_renamed(row._asdict()) for row in model.brokers()],
        "topics": [_renamed(row._asdict()) for row in _chosen(model, look)],
    }


def _chosen(model: Model, look: Look) -> list[TopicRow]:
    rows = model.topics(look.sort, internal=look.internal)
    return [row for row in rows if look.pattern in row.name]


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    return {_JSON_NAMES.get(name, name): value for name, value in row.items()}


def graph(values: Sequence[float], width: int) -> str:
    """The last `width` values as bars, the highest of them as a full one."""
    shown = list(values)[-width:] if width > 0 else []
    top = max(shown, default=0)
    if not top:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * len(_BARS)))] for value in shown)


def _rate(rate: float | None) -> str | None:
    return None if rate is None else show_count(rate)


def _speed(rate: float | None) -> str | None:
    return None if rate is None else f"{show_size(rate)}/s"


def _size(size: float | None) -> str | None:
    return None if size is None else show_size(size)
